"""systemd units: verified by systemd itself, in a root of the test's own that has what they start."""

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from tests.ami.programs import AMI

UNITS = sorted((AMI / "systemd").iterdir())
# Units of the base image that ours lean on.
OTHERS = ("docker.service", "network-online.target", "sysinit.target", "basic.target", "shutdown.target")


def executables(unit: Path) -> set[str]:
    """The programs that a unit starts."""
    text = unit.read_text(encoding="utf-8")
    return set(re.findall(r"^Exec\w+=[-@:+!]*(/\S+)", text, re.MULTILINE))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root file system with our units and stand-ins for what is beside them."""
    system = tmp_path / "etc/systemd/system"
    system.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(unit, system)
        for program in executables(unit):
            file = tmp_path / program.removeprefix("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("#!/bin/sh\n", encoding="ascii")
            file.chmod(0o755)
    for name in OTHERS:
        service = "[Service]\nExecStart=/bin/true\n" if name.endswith(".service") else ""
        (system / name).write_text(f"[Unit]\nDescription={name}\nDefaultDependencies=no\n{service}", encoding="ascii")
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin/true").write_text("#!/bin/sh\n", encoding="ascii")
    (tmp_path / "bin/true").chmod(0o755)
    return tmp_path


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: apt-get install systemd)"
)
def test_systemd_finds_nothing_wrong(root: Path) -> None:
    command = ["systemd-analyze", "verify", f"--root={root}", "--recursive-errors=yes", "--man=no", "--generators=no"]
    done = subprocess.run([*command, *(unit.name for unit in UNITS)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: apt-get install systemd)"
)
def test_systemd_would_find_a_misspelt_line(root: Path) -> None:
    unit = root / "etc/systemd/system/peakplan.service"
    unit.write_text(unit.read_text(encoding="utf-8").replace("ExecStart=", "ExecStrat="), encoding="utf-8")
    command = ["systemd-analyze", "verify", f"--root={root}", "--recursive-errors=yes", "--man=no", "--generators=no"]
    done = subprocess.run([*command, "peakplan.service"], capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_the_target_starts_every_unit() -> None:
    target = (AMI / "systemd" / "peakplan.target").read_text(encoding="utf-8")
    wanted = {name for line in re.findall(r"^Wants=(.+)$", target, re.MULTILINE) for name in line.split()}
    started_otherwise = {"peakplan.target", "peakplan-logrotate.service"}  # by user data, by its timer
    assert wanted == {unit.name for unit in UNITS} - started_otherwise


def test_every_program_of_ours_is_installed() -> None:
    install = "\n".join(path.read_text(encoding="utf-8") for path in (AMI / "components").glob("*.yaml"))
    ours = {program for unit in UNITS for program in executables(unit) if program.startswith("/usr/local/bin/peakplan")}
    assert ours
    for program in ours:
        assert f" {program}" in install, program


def test_systemd_waits_longer_for_the_stop_than_docker_may_take() -> None:
    """Killed by systemd in its longest drain, a host would drop what the balancer sent."""
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(AMI / "systemd" / "peakplan.service")
    (after,) = re.findall(r"after_drain_seconds=(\d+)", (AMI / "host" / "serve.sh").read_text(encoding="utf-8"))
    longest_drain = 300  # infra/fleet/settings.py: drain_seconds
    assert int(parser["Service"]["TimeoutStopSec"]) > longest_drain + int(after)


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.suffix == ".service"], ids=lambda unit: unit.name)
def test_every_service_is_kept_from_what_it_does_not_need(unit: Path) -> None:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    service = parser["Service"]
    assert [service.get(name) for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp")] == ["yes"] * 3
    assert service.get("ProtectSystem") in ("strict", "full")
