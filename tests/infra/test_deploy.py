"""The dev fleet deploys as `make deploy` does it, changes, goes back and goes, and reads back as a user relies on it.

The unmodified CDK CLI creates the stacks; the state machine that the fleet deploys changes them, interpreted by moto.

Against moto: this proves the command line, assets, order, references and parameters. It does not prove permissions,
quotas, instance refresh or scaling itself; those want a real account.
"""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from infra.fleet.alarms import alarm_name
from infra.fleet.settings import FleetSettings
from tests.infra.deployment import CDK, Deployment, as_it_ships, bake, deploy, prepare, run_line, synthesise
from tests.infra.fleet.fleets import dev_fleet, dev_with
from tests.infra.moto_server import MotoServer

EVENT = {"name": "sale", "start": "2030-07-13T07:00:00Z", "end": "2030-07-14T07:00:00Z", "multiplier": 2}

pytestmark = pytest.mark.skipif(not CDK.exists(), reason="the CDK CLI is not installed: npm ci")


@pytest.fixture(scope="module")
def account(moto_server: MotoServer) -> MotoServer:
    """An account as the guide prepares it: bootstrapped, with a certificate and machine images in its parameters."""
    prepare(moto_server)
    return moto_server


@pytest.fixture(scope="module")
def releases(account: MotoServer) -> list[str]:
    """Three machine images; the second is made after the first deploy, and the third after the second."""
    return [bake(account, "0000aaaa")]


@pytest.fixture(scope="module")
def protected_fleet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The dev fleet with deletion protection, which it ships without."""
    file = tmp_path_factory.mktemp("fleet") / "protected.yaml"
    file.write_text(yaml.safe_dump(dev_with({"deletion_protection": True})), encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def protected(account: MotoServer, protected_fleet: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a deploy of it synthesises; it is deployed twice."""
    return synthesise(account, protected_fleet, tmp_path_factory.mktemp("assembly") / "protected")


@pytest.fixture(scope="module")
def failed(
    account: MotoServer, releases: list[str], protected_fleet: str, protected: Path
) -> subprocess.CompletedProcess[str]:
    """A first deploy in whose way something stands, that somebody then takes away."""
    assert len(releases) == 1
    ec2, name = account.client("ec2"), "peakplan-dev-cell-1-inf2"
    ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"InstanceType": "t3.micro"})
    done = deploy(account, protected_fleet, assembly=protected)
    ec2.delete_launch_template(LaunchTemplateName=name)
    return done


@pytest.fixture(scope="module")
def first(
    account: MotoServer, failed: subprocess.CompletedProcess[str], protected_fleet: str, protected: Path
) -> subprocess.CompletedProcess[str]:
    """The first deploy of the dev fleet that succeeds."""
    assert failed.returncode != 0
    (stack,) = account.client("cloudformation").describe_stacks(StackName="peakplan-dev-cell-1")["Stacks"]
    said = failed.stdout + failed.stderr
    assert stack["StackStatus"] == "ROLLBACK_FAILED", (
        f"its balancers are protected, so it cannot be rolled back: {said}"
    )
    return deploy(account, protected_fleet, assembly=protected)


@pytest.fixture(scope="module")
def changed_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dev fleet with another law: an event, more room, another SLO."""
    file = tmp_path_factory.mktemp("fleet") / "changed.yaml"
    changes = {"events": [EVENT], "groups.0.maximum": 8, "slo.p99_ms": 400, "deletion_protection": True}
    file.write_text(yaml.safe_dump(dev_with(changes)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def changed(account: MotoServer, changed_fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a deploy of it synthesises; it is deployed twice."""
    return synthesise(account, str(changed_fleet), tmp_path_factory.mktemp("assembly") / "changed")


@pytest.fixture(scope="module")
def deployed(
    account: MotoServer,
    releases: list[str],
    first: subprocess.CompletedProcess[str],
    changed_fleet: Path,
    changed: Path,
) -> Deployment:
    """The dev fleet, first deployed as it ships, then again with another law."""
    assert first.returncode == 0, first.stdout + first.stderr
    before = Deployment(account, dev_fleet())
    for name, group in before.groups().items():
        assert (group["MinSize"], group["MaxSize"]) == (before.laws()[name].minimum, before.laws()[name].maximum)
    releases.append(bake(account, "0000bbbb"))
    again = deploy(account, str(changed_fleet), assembly=changed)
    assert again.returncode == 0, again.stdout + again.stderr
    return Deployment(account, FleetSettings.from_yaml(changed_fleet))


@pytest.fixture(scope="module", autouse=True)
def gone_at_the_end(deployed: Deployment) -> Iterator[None]:
    """After every other test the fleet is destroyed by its command, and nothing is left but what that names."""
    yield
    command = (sys.executable, "-m", "infra.operations.teardown", "dev")
    refused = run_line(deployed.server, *command, "--name", "prime-day")
    assert (refused.returncode, "nothing was deleted" in refused.stderr) == (2, True)
    assert deployed.groups() != {}
    done = run_line(deployed.server, *command, "--name", "dev")
    assert done.returncode == 0, done.stdout + done.stderr
    stacks = deployed.client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in stacks] == ["CDKToolkit"]
    assert deployed.groups() == {}
    assert deployed.client("elbv2").describe_load_balancers()["LoadBalancers"] == []
    kept = done.stdout.partition("Kept, and yours to delete:")[2].split()
    groups = {group["logGroupName"] for group in deployed.client("logs").describe_log_groups()["logGroups"]}
    assert groups <= set(kept)
    left = deployed.client("ssm").describe_parameters()["Parameters"]
    ours = ("/peakplan/dev/d", "/peakplan/dev/rollout/")
    assert not [each["Name"] for each in left if each["Name"].startswith(ours)], "neither state, lock nor marks"


def images(deployed: Deployment) -> set[str]:
    """The images of the newest versions of the cell's launch templates."""
    found = deployed.client("ec2").describe_launch_template_versions(
        LaunchTemplateName="peakplan-dev-cell-1-inf2", Versions=["$Latest"]
    )["LaunchTemplateVersions"]
    return {each["LaunchTemplateData"]["ImageId"] for each in found}


def test_a_fleet_goes_from_under_the_cells_to_over_them(
    first: subprocess.CompletedProcess[str], deployed: Deployment
) -> None:
    assert "its creation failed (ROLLBACK_FAILED); it is made anew" in first.stdout
    said = [line for line in first.stdout.splitlines() if line.startswith(("Deploying ", "Creating "))]
    creating = ["Creating cell-1", "Creating Edge", "Creating Observability", "Creating Spending"]
    assert said == ["Deploying Network, Image, Rollout", *creating]
    assert "cell-1 has it" in first.stdout
    stacks = deployed.client("cloudformation").describe_stacks()["Stacks"]
    assert {stack["StackStatus"] for stack in stacks} == {"CREATE_COMPLETE", "UPDATE_COMPLETE"}


def test_the_deploy_s_marker_is_what_holds_the_cell_s_page_back(deployed: Deployment) -> None:
    watching = deployed.client("cloudwatch")
    found = watching.describe_alarms(AlarmTypes=["CompositeAlarm"], AlarmNamePrefix="peakplan-dev-cell-1-")
    composites = {alarm["AlarmName"]: alarm for alarm in found["CompositeAlarms"]}
    quiet = composites[alarm_name("dev", "cell-1", "quiet")]
    assert composites[alarm_name("dev", "cell-1", "page")]["ActionsSuppressor"] == quiet["AlarmArn"]
    assert f'ALARM("{alarm_name("dev", "cell-1", "deploying")}")' in quiet["AlarmRule"]

    (deploying,) = watching.describe_alarms(AlarmNames=[alarm_name("dev", "cell-1", "deploying")])["MetricAlarms"]
    (metric,) = [each["MetricStat"]["Metric"] for each in deploying["Metrics"] if "MetricStat" in each]
    now = datetime.now(UTC)
    marks = watching.get_metric_statistics(
        **metric,
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=5),
        Period=60,
        Statistics=["Maximum"],
    )["Datapoints"]

    assert {mark["Maximum"] for mark in marks} == {1.0}


@pytest.fixture(scope="module")
def running(deployed: Deployment) -> set[str]:
    """The images of the fleet as it was deployed, before anything below befalls it."""
    return images(deployed)


@pytest.fixture(scope="module")
def stopped(
    deployed: Deployment, running: set[str], releases: list[str], changed_fleet: Path, changed: Path
) -> subprocess.CompletedProcess[str]:
    """A deploy of a third release during which the cell's alarm is on, and which goes back by itself.

    The tests may come in any order, what befalls the fleet may not.
    """
    assert running
    releases.append(bake(deployed.server, "0000cccc"))
    watching, alarm = deployed.client("cloudwatch"), alarm_name("dev", "cell-1", "deploy-health")
    watching.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a test", StateReasonData="{}")
    done = deploy(deployed.server, str(changed_fleet), assembly=changed)
    watching.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="a test", StateReasonData="{}")
    return done


@pytest.fixture(scope="module")
def rolled_back(deployed: Deployment, stopped: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The rollback after it."""
    assert stopped.returncode != 0
    return run_line(deployed.server, sys.executable, "-m", "infra.operations.rollback", "dev")


def test_hosts_run_the_release_of_the_last_deploy(running: set[str], releases: list[str]) -> None:
    assert running == {releases[1]}


def test_a_hurt_cell_stops_the_deploy(stopped: subprocess.CompletedProcess[str]) -> None:
    assert stopped.returncode == 1, stopped.stdout + stopped.stderr
    alarm = alarm_name("dev", "cell-1", "deploy-health")
    assert alarm in stopped.stderr
    assert "fired, so no further cell is deployed" in stopped.stderr
    assert "Stopped at cell-1" in stopped.stderr


def test_a_rollback_brings_the_release_before(
    deployed: Deployment, releases: list[str], rolled_back: subprocess.CompletedProcess[str]
) -> None:
    assert rolled_back.returncode == 0, rolled_back.stdout + rolled_back.stderr
    assert images(deployed) == {releases[0]}
    refused = deploy(deployed.server, "dev", assembly=Path(as_it_ships()))
    assert refused.returncode == 3
    assert "bake another image" in refused.stderr
