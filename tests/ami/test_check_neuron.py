"""The bake-time check of driver, runtime and devices against the pinned SDK, with a driver and a container of ours."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.fleet.rules import NEWEST_SDK
from tests.ami.programs import AMI, Programs

SCRIPT = AMI / "bake" / "check_neuron.py"
PINS = json.loads((AMI / "bake" / "neuron-pins.json").read_text(encoding="utf-8"))["sdk"]
SDK = ".".join(map(str, NEWEST_SDK))


def check(
    programs: Programs, folder: Path, *, driver: str = "2.26.10.0", runtime: str = "2.30.51.0-faafe26f0", sdk: str = SDK
) -> subprocess.CompletedProcess[str]:
    programs.add("modinfo", f"echo {driver}" if driver else "echo 'ERROR: Module neuron not found.' >&2; exit 1")
    programs.add("docker", f"echo {runtime}" if runtime else "echo 'no packages found' >&2; exit 1")
    if not (programs.folder / "neuron-ls").exists():
        programs.add("neuron-ls", "echo []")
    return programs.run(
        sys.executable, SCRIPT, sdk, "the-container", PEAKPLAN_DEVICES=folder, PEAKPLAN_NEURON_LS="neuron-ls"
    )


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("neuron0", "neuron1", "null"):
        (folder / name).touch()
    return folder


def test_what_fits_is_reported(programs: Programs, devices: Path) -> None:
    done = check(programs, devices)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sdk": SDK,
        "driver": "2.26.10.0",
        "runtime": "2.30.51.0-faafe26f0",
        "devices": ["neuron0", "neuron1"],
    }


def test_the_newest_sdk_of_fleets_is_pinned() -> None:
    assert SDK in PINS


def test_the_driver_that_is_called_latest_is_refused_with_the_way_out(programs: Programs, devices: Path) -> None:
    """AMIs of SDK 2.31 carry driver 2.29, which refuses the runtime of SDK 2.28."""
    done = check(programs, devices, driver="2.29.0.0")
    assert done.returncode == 1
    assert "too new" in done.stderr
    assert f"description says Neuron SDK {SDK}" in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"driver": ""}, "Module neuron not found"),
        ({"driver": "unknown"}, "is no version"),
        ({"driver": "2.26.5.0"}, "is older than 2.26.10, which mends kernel 6.18"),
        ({"runtime": "2.33.1.0"}, "the container's runtime is 2.33.1.0"),
        ({"runtime": ""}, "no packages found"),
        ({"sdk": "2.29"}, "SDK 2.29 is not in neuron-pins.json"),
    ],
)
def test_what_does_not_fit_stops_the_bake(programs: Programs, devices: Path, given: dict[str, str], said: str) -> None:
    done = check(programs, devices, **given)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_instance_without_chips_is_refused(programs: Programs, tmp_path: Path) -> None:
    done = check(programs, tmp_path)
    assert done.returncode == 1
    assert "inf2 or trn1" in done.stderr


def test_a_driver_that_does_not_answer_is_refused(programs: Programs, devices: Path) -> None:
    programs.add("neuron-ls", "echo 'neuron-ls: no neuron device found' >&2; exit 2")
    done = check(programs, devices)
    assert done.returncode == 1
    assert "no neuron device found" in done.stderr
