"""The hardening script on a folder that stands for the root, with a system of the test's own around it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.ami.programs import AMI, Programs

SCRIPT = AMI / "bake" / "harden.sh"
SYSTEM = ("groupadd", "udevadm", "sysctl", "apt-mark", "systemctl", "modprobe", "dpkg-query")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for folder in ("dev", "etc/cron.daily"):
        (root / folder).mkdir(parents=True)
    for name in ("passwd", "group", "shadow", "gshadow"):
        (root / "etc" / name).touch()
    (root / "dev" / "neuron0").touch()
    return root


def harden(
    programs: Programs, root: Path, *, group: str = "neuron 660", chips: str = "inf2 cpu"
) -> subprocess.CompletedProcess[str]:
    for name in SYSTEM:
        programs.add(name)
    programs.add("getent", "exit 2")
    programs.add("stat", f"echo {group}")
    return programs.run("bash", SCRIPT, chips, PEAKPLAN_ROOT=root)


def test_a_device_is_open_to_its_group_alone(programs: Programs, root: Path) -> None:
    done = harden(programs, root)
    assert done.returncode == 0, done.stderr
    rule = (root / "etc/udev/rules.d/99-peakplan-neuron.rules").read_text(encoding="utf-8")
    assert 'GROUP="neuron", MODE="0660"' in rule
    assert "groupadd --system neuron" in programs.asked()


def test_what_neuron_and_the_agents_need_is_left_alone(programs: Programs, root: Path) -> None:
    assert harden(programs, root).returncode == 0
    modules = (root / "etc/modprobe.d/peakplan.conf").read_text(encoding="utf-8")
    kernel = (root / "etc/sysctl.d/90-peakplan.conf").read_text(encoding="utf-8")
    assert "squashfs" not in modules  # the SSM agent is a snap
    assert "neuron" not in modules
    assert "modules_disabled" not in kernel
    assert "ip_forward" not in kernel  # Docker's
    masked = [line.split()[-1] for line in programs.asked() if line.startswith("systemctl mask")]
    assert {"ssh.service", "ssh.socket", "apt-daily-upgrade.timer"} <= set(masked)
    assert not [unit for unit in masked if "ssm" in unit or "docker" in unit or "neuron" in unit]
    assert "modprobe neuron" in programs.asked()


def test_the_driver_and_its_kernel_stay_together(programs: Programs, root: Path) -> None:
    assert harden(programs, root).returncode == 0
    assert {"apt-mark hold linux-aws", "apt-mark hold aws-neuronx-dkms"} <= set(programs.asked())


def test_docker_is_told_and_files_are_closed(programs: Programs, root: Path) -> None:
    assert harden(programs, root).returncode == 0
    daemon = json.loads((root / "etc/docker/daemon.json").read_text(encoding="utf-8"))
    assert daemon["no-new-privileges"] is True
    assert (root / "etc/shadow").stat().st_mode & 0o777 == 0o640
    assert (root / "etc/cron.daily").stat().st_mode & 0o777 == 0o700


def test_twice_is_as_good_as_once(programs: Programs, root: Path) -> None:
    assert harden(programs, root).returncode == 0
    once = {path: path.read_bytes() for path in (root / "etc").rglob("*") if path.is_file()}
    assert harden(programs, root).returncode == 0
    assert {path: path.read_bytes() for path in (root / "etc").rglob("*") if path.is_file()} == once


def test_an_image_for_processors_alone_needs_no_neuron_driver(programs: Programs, root: Path) -> None:
    (root / "dev" / "neuron0").unlink()
    done = harden(programs, root, chips="cpu")
    assert done.returncode == 0, done.stderr
    assert not [line for line in programs.asked() if line.startswith(("modprobe", "udevadm", "groupadd"))]
    assert not (root / "etc/udev").exists()


def test_devices_that_are_gone_stop_the_bake(programs: Programs, root: Path) -> None:
    (root / "dev" / "neuron0").unlink()
    done = harden(programs, root)
    assert done.returncode == 1
    assert "the Neuron devices are gone" in done.stderr


def test_a_rule_that_does_not_hold_stops_the_bake(programs: Programs, root: Path) -> None:
    done = harden(programs, root, group="root 666")
    assert done.returncode == 1
    assert "udev rule does not hold" in done.stderr
