"""The host's scripts from boot to termination, against a fake account and the real service."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ami.programs import AMI, Host, Programs, assert_refused
from tests.server_process import REPOSITORY


def action(hook: str) -> str:
    return (
        f"aws autoscaling complete-lifecycle-action --lifecycle-action-result CONTINUE --lifecycle-hook-name {hook} "
        "--instance-id i-1 --auto-scaling-group-name group --region us-east-1"
    )


@pytest.mark.parametrize("target", ["InService", "Warmed:Stopped"])
def test_the_launch_goes_on_once_the_planner_is_ready_and_its_model_plans(host: Host, target: str) -> None:
    host.targets, host.unready_answers, host.sources = [target], 3, ["fallback", "fallback", "model"]
    done = host.run("ready")
    assert (done.returncode, host.asked()) == (0, [action("prove-ready")])
    assert (host.unready_answers < 0, host.sources) == (True, ["model"]), "a plan that rules made is no proof"
    first, second, *_ = done.stdout.splitlines()
    assert first == "not ready: 503 no replica of the model is up", "why it waits is said once"
    assert "a plan came from its fallback" in second
    assert (len(done.stdout.splitlines()), "s after boot" in done.stdout) == (3, True)


@pytest.mark.parametrize(
    ("word", "aws", "url", "code", "said"),
    [
        ("ready", "ValidationError: No active Lifecycle Action found", "", 0, ""),  # it was only started again
        ("ready", "AccessDenied: not authorized", "", 1, "of prove-ready does not go on: AccessDenied"),
        ("drain", "", "http://127.0.0.1:1", 1, "refused"),  # by the metadata service
        ("dance", "", "", 2, "ready|drain|wait"),
    ],
)
def test_what_cannot_be_done_is_said_and_left_to_systemd(
    host: Host, word: str, aws: str, url: str, code: int, said: str
) -> None:
    Programs(host.folder).add("aws", f"echo '{aws}' >&2; exit 254")
    host.url = url or host.url
    assert_refused(host.run(word), said, code)


STOPS = ["systemctl stop peakplan.service", action("drain")]


@pytest.mark.parametrize(
    ("word", "targets", "stop", "asked"),
    [
        ("ready", [""], "", []),  # no launch is under way
        ("drain", ["InService", "InService", "Terminated"], "", STOPS),
        ("drain", ["InService", "Warmed:Stopped"], "", STOPS),
        (
            "drain",
            ["Warmed:Stopped", "Warmed:Stopped", "InService", "Warmed:Stopped"],
            "",
            STOPS,
        ),  # first into the pool
        ("drain", ["Terminated"], "exit 1", STOPS),  # a service that will not stop does not keep the host
    ],
)
def test_a_host_that_is_to_go_stops_serving_before_it_says_so(
    host: Host, word: str, targets: list[str], stop: str, asked: list[str]
) -> None:
    host.targets, last = targets, targets[-1]
    Programs(host.folder).add("systemctl", stop)
    assert host.run(word).returncode == 0
    assert (host.asked(), host.targets) == (asked, [last]), "it drained before it was in service"


def test_a_drain_that_systemd_restarts_remembers_that_the_host_was_in_service(host: Host) -> None:
    Programs(host.folder).add("aws", "echo 'Throttling: slowly' >&2; exit 254")
    host.targets = ["InService", "Warmed:Stopped"]
    assert host.run("drain").returncode == 1
    Programs(host.folder).add("aws")
    assert host.run("drain").returncode == 0
    assert host.asked()[-1] == action("drain")


def test_a_host_wanted_back_before_its_drain_ever_looked_is_drained_all_the_same(host: Host) -> None:
    for word, target in (("ready", "InService"), ("drain", "Warmed:Stopped")):
        host.targets = [target]
        assert host.run(word).returncode == 0
    assert host.asked()[-1] == action("drain")


# Like docker: `run` becomes the container's first process with its settings, `stop` ends it and waits.
DOCKER = """
while read -r setting; do export "$setting"; done < <(cat {folder}/etc/image.env {folder}/etc/host.env)
case $1 in
  run) echo $$ > {folder}/pid; cd {repository}; exec {python} -m service.container ;;
  stop) kill -TERM $(cat {folder}/pid); while readlink /proc/$(cat {folder}/pid)/exe >/dev/null; do sleep 0.05; done ;;
esac
"""


@dataclass
class Boot:
    """A host of the inf2 group with one chip, and the environment that its units start with."""

    host: Host
    environment: dict[str, str]

    def start(self, *command: str | Path) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([str(word) for word in command], env=self.environment)


def write(file: Path, settings: Mapping[str, object]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")


@pytest.fixture
def boot(host: Host, tiny_model_dir: Path) -> Iterator[Boot]:
    folder = host.folder
    for made in ("dev", "etc", "compiled/inf2"):
        (folder / made).mkdir(parents=True)
    (folder / "dev/neuron0").touch()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    baked = {"PEAKPLAN_TENSOR_PARALLEL": 2, "PEAKPLAN_MODEL_DIR": tiny_model_dir, "PEAKPLAN_REPLICAS": 1}
    write(folder / "etc/image.env", baked | {"PEAKPLAN_DTYPE": "float32", "HOST": "127.0.0.1", "PORT": port})
    programs = Programs(folder)
    programs.add("docker", DOCKER.format(folder=folder, repository=REPOSITORY, python=sys.executable))
    programs.add("getent", "echo neuron:x:998:")
    programs.add("agent-ctl")
    programs.add("systemctl", f'[[ "$*" == "stop peakplan.service" ]] && exec bash {AMI}/host/serve.sh stop')
    places = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PEAKPLAN_DEVICES": folder / "dev",
        "PEAKPLAN_CONFIGURATION": folder / "etc",
        "PEAKPLAN_HOME": folder,
        "PEAKPLAN_AGENT_TEMPLATES": AMI / "agent",
        "PEAKPLAN_AGENT_FOLDER": folder / "etc",
        "PEAKPLAN_AGENT_CONTROL": folder / "agent-ctl",
    }
    host.service_url = f"http://127.0.0.1:{port}"
    host.environment = {name: str(value) for name, value in places.items()}
    yield Boot(host, dict(host.environment))
    if (folder / "pid").exists():
        pid = int((folder / "pid").read_text(encoding="ascii"))
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_from_user_data_to_the_first_plan_and_to_the_last(boot: Boot) -> None:
    began = time.monotonic()
    known = "FLEET=dev CELL=cell-1 GROUP=inf2 LOG_GROUP=/peakplan/dev/cell-1 DRAIN_SECONDS=1"
    told = dict(f"PEAKPLAN_{word}".split("=") for word in known.split())
    write(boot.host.folder / "etc/host.env", told)
    boot.environment |= told

    service = boot.start("bash", AMI / "host" / "serve.sh", "start")
    assert boot.start(sys.executable, AMI / "host" / "telemetry.py").wait(300) == 0
    first_plan = boot.host.run("ready")
    print(f"\nfrom user data to the completed launch: {time.monotonic() - began:.1f} s")
    assert first_plan.returncode == 0, first_plan.stderr
    assert any("complete-lifecycle-action" in line and "prove-ready" in line for line in boot.host.asked())

    boot.host.targets = ["Terminated"]
    assert boot.host.run("drain").returncode == 0
    assert service.wait(60) == 0  # drained, not killed
    calls = [line.split()[0] for line in boot.host.asked()]
    assert calls[-3:] == ["systemctl", "docker", "aws"]
