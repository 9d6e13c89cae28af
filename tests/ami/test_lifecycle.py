"""The host's lifecycle script against a metadata service, a planner and an AWS CLI of the test's own."""

import pytest

from tests.ami.host import Host
from tests.ami.programs import Programs


def action(hook: str) -> str:
    return (
        f"aws autoscaling complete-lifecycle-action --lifecycle-action-result CONTINUE --lifecycle-hook-name {hook} "
        "--instance-id i-1 --auto-scaling-group-name group --region us-east-1"
    )


@pytest.mark.parametrize("target", ["InService", "Warmed:Stopped"])
def test_the_launch_goes_on_once_the_planner_is_ready(host: Host, target: str) -> None:
    host.targets, host.unready_answers = [target], 3
    assert host.run("ready").returncode == 0
    assert host.unready_answers < 0
    assert host.asked() == [action("prove-ready")]


def test_a_plan_that_rules_made_is_no_proof(host: Host) -> None:
    host.sources = ["fallback", "fallback", "model"]
    done = host.run("ready")
    assert done.returncode == 0
    assert host.sources == ["model"]
    assert done.stdout.count("a plan came from its fallback") == 1
    assert host.asked() == [action("prove-ready")]


def test_why_it_waits_is_said_once_in_the_service_s_words(host: Host) -> None:
    host.unready_answers = 5
    done = host.run("wait")
    assert done.stdout.splitlines()[0] == "not ready: 503 no replica of the model is up"
    assert len(done.stdout.splitlines()) == 2
    assert "s after boot" in done.stdout


def test_a_host_that_was_only_started_again_has_nothing_to_complete(host: Host) -> None:
    Programs(host.folder).add("aws", "echo 'ValidationError: No active Lifecycle Action found' >&2; exit 254")
    assert host.run("ready").returncode == 0


def test_what_aws_refuses_is_said_and_left_to_systemd(host: Host) -> None:
    Programs(host.folder).add("aws", "echo 'AccessDenied: not authorized' >&2; exit 254")
    done = host.run("ready")
    assert done.returncode == 1
    assert "the lifecycle action of prove-ready does not go on: AccessDenied" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_metadata_service_that_is_not_there_is_an_error_in_words(host: Host) -> None:
    host.url = "http://127.0.0.1:1"
    done = host.run("drain")
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_service_that_will_not_stop_does_not_keep_the_host(host: Host) -> None:
    host.targets = ["Terminated"]
    Programs(host.folder).add("systemctl", "exit 1")
    assert host.run("drain").returncode == 0
    assert host.asked()[-1] == action("drain")


def test_a_host_outside_a_launch_completes_nothing(host: Host) -> None:
    host.targets = [""]
    assert host.run("ready").returncode == 0
    assert host.asked() == []


def test_a_host_that_is_to_go_stops_serving_before_it_says_so(host: Host) -> None:
    host.targets = ["InService", "InService", "Terminated"]
    assert host.run("drain").returncode == 0
    assert host.asked() == ["systemctl stop peakplan.service", action("drain")]


def test_a_host_that_returns_to_the_warm_pool_drains_and_says_so_at_once(host: Host) -> None:
    host.targets = ["InService", "Warmed:Stopped"]
    assert host.run("drain").returncode == 0
    assert host.asked() == ["systemctl stop peakplan.service", action("drain")]


def test_a_host_on_its_way_into_the_warm_pool_is_not_drained(host: Host) -> None:
    host.targets = ["Warmed:Stopped", "Warmed:Stopped", "InService", "Warmed:Stopped"]
    assert host.run("drain").returncode == 0
    assert host.targets == ["Warmed:Stopped"], "it drained before it was in service"


def test_a_drain_that_systemd_restarts_remembers_that_the_host_was_in_service(host: Host) -> None:
    Programs(host.folder).add("aws", "echo 'Throttling: slowly' >&2; exit 254")
    host.targets = ["InService", "Warmed:Stopped"]
    assert host.run("drain").returncode == 1
    Programs(host.folder).add("aws")
    assert host.run("drain").returncode == 0
    assert host.asked()[-1] == action("drain")


def test_a_host_wanted_back_before_its_drain_ever_looked_is_drained_all_the_same(host: Host) -> None:
    host.targets = ["InService"]
    assert host.run("ready").returncode == 0
    host.targets = ["Warmed:Stopped"]
    assert host.run("drain").returncode == 0
    assert host.asked()[-1] == action("drain")


def test_a_word_it_does_not_know_is_refused(host: Host) -> None:
    done = host.run("dance")
    assert done.returncode == 2
    assert "ready|drain|wait" in done.stderr
