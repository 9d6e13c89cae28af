"""The script that starts and stops a host's container, run with a fake docker."""

import re
import subprocess
from pathlib import Path

import pytest

from infra.constructs.shopper_events import events_environment
from service.settings import Settings
from tests.ami.programs import AMI, Programs, assert_refused
from tests.infra.fleet.fleets import dev_fleet

SCRIPT = AMI / "host" / "serve.sh"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host of the inf2 group: what was baked, who it is, and no chip yet."""
    for folder in ("dev", "etc", "compiled/inf2"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/image.env").write_text("PEAKPLAN_ENGINE=triton\nPEAKPLAN_TENSOR_PARALLEL=2\n", encoding="utf-8")
    (tmp_path / "etc/host.env").write_text("PEAKPLAN_GROUP=inf2\nPEAKPLAN_DRAIN_SECONDS=30\n", encoding="utf-8")
    return tmp_path


def serve(
    programs: Programs, word: str, host: Path, *, chips: int = 0, docker: str = ""
) -> subprocess.CompletedProcess[str]:
    programs.add("docker", docker)
    programs.add("getent", "echo neuron:x:998:")
    for number in range(chips):
        (host / "dev" / f"neuron{number}").touch()
    places = {"PEAKPLAN_DEVICES": host / "dev", "PEAKPLAN_CONFIGURATION": host / "etc", "PEAKPLAN_HOME": host}
    return programs.run("bash", SCRIPT, word, **places)


def started(programs: Programs) -> str:
    (command,) = [line for line in programs.asked() if line.startswith("docker run")]
    return command


def test_the_container_gets_every_chip_and_no_rights(programs: Programs, host: Path) -> None:
    done = serve(programs, "start", host, chips=12)
    assert done.returncode == 0, done.stderr
    command = started(programs)
    assert command.count("--device=") == 12
    assert not [line for line in programs.asked() if line.startswith("aws")], "a fleet without events needs no key"
    for option in (
        "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges", "--group-add 998", "--pull never",
        f"{host}/model:/opt/peakplan/model:ro", f"{host}/compiled/inf2:/opt/peakplan/compiled:ro",
        "PEAKPLAN_COMPILED_DIR=/opt/peakplan/compiled",
        f"--env-file {host}/etc/image.env --env-file {host}/etc/host.env", "PEAKPLAN_REPLICAS=12",
    ):  # fmt: skip
        assert option in command
    assert "--privileged" not in command


CLOSED = "--cap-drop ALL --security-opt no-new-privileges"
OPEN = "--cap-add SYS_ADMIN --cap-add IPC_LOCK --cap-add DAC_OVERRIDE --security-opt no-new-privileges --user 0 "


@pytest.mark.parametrize(
    ("baked", "chips", "options"),
    [
        ("PEAKPLAN_DEVICE_RIGHTS=none", 1, f"{CLOSED} --pids-limit"),
        ("PEAKPLAN_DEVICE_RIGHTS=memory", 1, f"{CLOSED} --ulimit memlock=-1:-1 --pids-limit"),
        ("PEAKPLAN_DEVICE_RIGHTS=aws", 1, OPEN),
        ("PEAKPLAN_ENGINE=triton", 1, "PEAKPLAN_REPLICAS=2 "),  # unless it was baked otherwise, every core has one
        ("PEAKPLAN_TENSOR_PARALLEL=1", 12, "PEAKPLAN_REPLICAS=24 "),
        ("PEAKPLAN_TENSOR_PARALLEL=8", 12, "PEAKPLAN_REPLICAS=3 "),
    ],
)
def test_the_container_may_do_what_the_fleet_file_says_and_has_replicas_on_all_cores(
    programs: Programs, host: Path, baked: str, chips: int, options: str
) -> None:
    (host / "etc/image.env").write_text(f"{baked}\n", encoding="utf-8")
    assert serve(programs, "start", host, chips=chips).returncode == 0
    assert options in started(programs)


def test_a_processor_s_host_runs_a_replica_a_core_without_devices(programs: Programs, host: Path) -> None:
    (host / "etc/host.env").write_text("PEAKPLAN_GROUP=cpu\nPEAKPLAN_ENGINE=torch\n", encoding="utf-8")
    programs.add("lscpu", "echo '# CORE,SOCKET'; for core in 0 1 2 3; do echo $core,0; echo $core,0; done")
    done = serve(programs, "start", host)
    assert done.returncode == 0, done.stderr
    command = started(programs)
    assert "PEAKPLAN_REPLICAS=4 " in command, "four cores of two threads each"
    assert "--device" not in command
    assert "compiled" not in command
    assert f"--env-file {host}/etc/image.env --env-file {host}/etc/host.env" in command, "the host's engine wins"


@pytest.mark.parametrize(
    ("word", "file", "says", "chips", "words"),
    [
        ("start", "host", "GROUP=inf2", 0, "is the Neuron driver loaded?"),
        ("start", "host", "GROUP=trn1", 1, "nothing was compiled for 'trn1'"),  # it would take a quarter of an hour
        ("start", "image", "DEVICE_RIGHTS=all", 1, "PEAKPLAN_DEVICE_RIGHTS=all is none of none, memory, aws"),
        ("dance", "host", "GROUP=inf2", 0, "start|stop"),
    ],
)
def test_what_cannot_be_started_is_said_and_starts_nothing(
    programs: Programs, host: Path, word: str, file: str, says: str, chips: int, words: str
) -> None:
    (host / f"etc/{file}.env").write_text(f"PEAKPLAN_{says}\n", encoding="utf-8")
    assert_refused(serve(programs, word, host, chips=chips), words, code=2 if word == "dance" else 1)
    assert not [line for line in programs.asked() if line.startswith("docker")]


def test_a_stop_waits_longer_than_the_drain(programs: Programs, host: Path) -> None:
    """Docker kills after that time: what the balancer sent while the gateway served on would be lost."""
    assert serve(programs, "stop", host).returncode == 0
    (asked,) = programs.asked()
    seconds = int(asked.split()[3])
    assert asked == f"docker stop --time {seconds} peakplan"
    assert seconds > 30 + Settings().shutdown_seconds
    (host / "etc/host.env").write_text("PEAKPLAN_AUTO_SCALING_GROUP=\n", encoding="utf-8")
    assert serve(programs, "stop", host).returncode == 0, "without being told how long a drain is"


EVENTS = (
    "PEAKPLAN_GROUP=inf2\nPEAKPLAN_OUTCOMES_DIR=/var/lib/peakplan/outcomes\n"
    "PEAKPLAN_OUTCOMES_KEY_PARAMETER=/peakplan/dev/outcomes-key\nPEAKPLAN_REGION=us-east-1\n"
)


def test_events_are_kept_on_the_host_under_the_fleet_s_key(programs: Programs, host: Path) -> None:
    (host / "etc/host.env").write_text(EVENTS, encoding="utf-8")
    programs.add("aws", "echo secret")
    note = f'echo "key $PEAKPLAN_OUTCOMES_KEY" >> {programs.folder}/environment'
    assert serve(programs, "start", host, chips=1, docker=note).returncode == 0
    command = started(programs)
    assert "--volume /var/lib/peakplan/outcomes:/var/lib/peakplan/outcomes" in command
    assert "--env PEAKPLAN_OUTCOMES_KEY " in command
    assert "secret" not in command, "a list of processes would show it"
    assert (programs.folder / "environment").read_text("utf-8").splitlines()[-1] == "key secret"
    (asked,) = [line for line in programs.asked() if line.startswith("aws")]
    assert "--name /peakplan/dev/outcomes-key --with-decryption" in asked
    assert "--region us-east-1" in asked


def test_without_the_key_a_host_plans_and_keeps_no_events_nor_an_experiment(
    programs: Programs, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = {"name": "autumn", "arms": {"control": 50, "rules": 50}}
    told = events_environment(dev_fleet({"shopper_events": {"enabled": True, "experiment": arms}}))
    lines = "".join(f"{name}={value}\n" for name, value in told.items())
    (host / "etc/host.env").write_text(EVENTS + lines, encoding="utf-8")
    programs.add("aws", "exit 254")
    done = serve(programs, "start", host, chips=1)
    assert done.returncode == 0
    assert "/peakplan/dev/outcomes-key cannot be read" in done.stderr
    command = started(programs)
    assert "--env PEAKPLAN_OUTCOMES_DIR= " in command
    assert "/var/lib/peakplan" not in command
    for name, value in (told | dict(re.findall(r"--env (\w+)=(\S*)", command))).items():
        monkeypatch.setenv(name, value)
    assert not Settings().experiment.name, "docker's --env comes after --env-file"
