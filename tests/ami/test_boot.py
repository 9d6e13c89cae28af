"""A host's life from the first second to the last, by the image's own scripts over the real service.

Docker, the CloudWatch agent, systemd and AWS are the test's own; the model is tiny. `pytest -s` shows how long it took.
"""

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

from tests.ami.host import Host
from tests.ami.programs import AMI, Programs
from tests.server_process import REPOSITORY

pytestmark = pytest.mark.slow  # a start of the service

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

    def do(self, *command: str | Path) -> None:
        assert self.start(*command).wait(300) == 0


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
    baked |= {"PEAKPLAN_DTYPE": "float32", "HOST": "127.0.0.1", "PORT": port}
    (folder / "etc/image.env").write_text(
        "".join(f"{name}={value}\n" for name, value in baked.items()), encoding="utf-8"
    )
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


def test_from_user_data_to_the_first_plan_and_to_the_last(boot: Boot) -> None:
    began = time.monotonic()
    known = "FLEET=dev CELL=cell-1 GROUP=inf2 LOG_GROUP=/peakplan/dev/cell-1 DRAIN_SECONDS=1"
    told = dict(f"PEAKPLAN_{word}".split("=") for word in known.split())
    write(boot.host.folder / "etc/host.env", told)
    boot.environment |= told

    service = boot.start("bash", AMI / "host" / "serve.sh", "start")
    boot.do(sys.executable, AMI / "host" / "telemetry.py")
    first_plan = boot.host.run("ready")
    print(f"\nfrom user data to the completed launch: {time.monotonic() - began:.1f} s")
    assert first_plan.returncode == 0, first_plan.stderr
    assert any("complete-lifecycle-action" in line and "prove-ready" in line for line in boot.host.asked())

    boot.host.targets = ["Terminated"]
    assert boot.host.run("drain").returncode == 0
    assert service.wait(60) == 0  # drained, not killed
    calls = [line.split()[0] for line in boot.host.asked()]
    assert calls[-3:] == ["systemctl", "docker", "aws"]
