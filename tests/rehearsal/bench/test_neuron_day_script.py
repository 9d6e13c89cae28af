"""What `peakplan bench neuron-day` mounts and passes, with a docker of the test's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from tests.ami.programs import Programs

SCRIPT = REPOSITORY_ROOT / "rehearsal" / "bench" / "neuron_day" / "on-host.sh"


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "neuron0").touch()
    (tmp_path / "programs").mkdir()
    found = Programs(tmp_path / "programs")
    found.add("getent", "echo neuron:x:998:")
    return found


def started(programs: Programs, does: str, **environment: object) -> subprocess.CompletedProcess[str]:
    programs.add("docker", does)
    places = {"PEAKPLAN_DEVICES": programs.folder.parent / "dev", "PEAKPLAN_DATA": programs.folder} | environment
    return programs.run("bash", SCRIPT, "--chip", "trn1", "--cores", "1", "2", **places)


def test_one_command_mounts_all_that_the_image_lacks(programs: Programs) -> None:
    done = started(programs, "")
    assert done.returncode == 0, done.stderr
    command = programs.asked()[-1]
    for words in (
        f"--volume {REPOSITORY_ROOT}:/checkout --workdir /checkout --env PYTHONPATH=/checkout:/checkout/clients ",
        f"--device={programs.folder.parent}/dev/neuron0", "--group-add 998", f"--user {os.getuid()}:{os.getgid()}",
        f"--volume {programs.folder}:/data:ro --env PEAKPLAN_DATA=/data",
        "--entrypoint python peakplan:baked -m rehearsal.bench.neuron_day --device-rights none --cores-waited 0 ",
        "--chip trn1 --cores 1 2",
    ):  # fmt: skip
        assert words in command


@pytest.mark.parametrize(
    ("needs", "rights"),
    [
        ("--cap-drop ALL", "none"),
        ("--ulimit memlock=-1:-1", "memory"),
        ("--cap-add SYS_ADMIN --cap-add IPC_LOCK", "aws"),
    ],
)
def test_the_runtime_is_tried_with_more_and_more_rights(programs: Programs, needs: str, rights: str) -> None:
    done = started(programs, f'[[ $* != *device.py || "$*" == *"{needs}"* ]]')
    assert done.returncode == 0, done.stderr
    assert f"the runtime starts with device_rights: {rights}" in done.stdout
    assert f"-m rehearsal.bench.neuron_day --device-rights {rights} " in programs.asked()[-1]


def test_the_image_that_was_built_here_serves_where_none_was_baked(programs: Programs) -> None:
    assert started(programs, "[[ $* != *peakplan:baked* ]]").returncode == 0
    assert " peakplan:latest -m rehearsal.bench.neuron_day" in programs.asked()[-1]


@pytest.mark.parametrize(
    ("does", "environment", "words"),
    [
        ("[[ $1 != image ]]", {}, "build it (docker build --file service/Dockerfile"),
        ("[[ $1 != image ]]", {"PEAKPLAN_IMAGE": "mine:1"}, "no image mine:1"),
        ("[[ $1 == ps ]] && echo 0123; true", {}, "stop it first (sudo systemctl stop peakplan.service)"),
        ("", {"PEAKPLAN_DEVICES": "/nowhere"}, "is the Neuron driver loaded?"),
        ("[[ $* != *device.py ]]", {}, "the runtime does not start with any rights"),
        ("[[ $* != *'command -v g++'* ]]", {}, "build it again with this checkout's service/Dockerfile"),
        (
            'if [[ $* == *device.py ]]; then [[ ! -e "$0.held" ]] && touch "$0.held"; fi',
            {"PEAKPLAN_CORES_SECONDS": 1},
            "for its file, under model: lost_replica_seconds: 1",
        ),
    ],
    ids=[
        "no image",
        "no image of that name",
        "the service holds the cores",
        "no chip",
        "no rights help",
        "no compiler",
        "cores that stay taken",
    ],
)
def test_what_would_fail_later_is_said_first(
    programs: Programs, does: str, environment: dict[str, str], words: str
) -> None:
    done = started(programs, does, **environment)
    assert done.returncode == 2
    assert words in done.stderr
    assert not [line for line in programs.asked() if "rehearsal.bench.neuron_day" in line]


def test_shellcheck_finds_nothing() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
