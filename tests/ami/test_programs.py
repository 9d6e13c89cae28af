"""An image without a program that its hosts will call is refused where it is baked."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ami.programs import AMI, Programs

SCRIPT = AMI / "bake" / "check-programs.sh"
TEXT = SCRIPT.read_text(encoding="utf-8")
(CALLED,) = (set(names.split()) for names in re.findall(r"^called=\((.+)\)$", TEXT, re.MULTILINE))
PATHS = set(re.findall(r"^  (/\S+)$", TEXT, re.MULTILINE))


@pytest.fixture
def image(tmp_path: Path, programs: Programs) -> Path:
    """A root with everything that units start, and every program that scripts call."""
    for path in PATHS:
        file = tmp_path / "root" / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    for name in ("aws", "docker", "systemctl"):
        programs.add(name)
    return tmp_path / "root"


def check(
    programs: Programs, root: Path, chips: str = "inf2", **environment: object
) -> subprocess.CompletedProcess[str]:
    return programs.run("bash", SCRIPT, chips, PEAKPLAN_ROOT=root, **environment)


def test_what_units_start_is_looked_for() -> None:
    units = "\n".join(unit.read_text(encoding="utf-8") for unit in (AMI / "systemd").iterdir())
    started = set(
        re.findall(r"(?<![\w.=/-])(/(?:bin|opt|usr)/[\w./-]+)", re.sub(r"^Environment.*$", "", units, flags=re.M))
    )
    started |= set(re.findall(r"^Exec\w+=[-@:+!]*(/\S+)", units, re.MULTILINE))
    ours = {path for path in started if path.startswith("/opt/peakplan")}  # which 10-release.yaml unpacks
    assert started - ours <= PATHS
    telemetry = (AMI / "host/telemetry.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(/opt/aws/[^"]+)"', telemetry)) <= PATHS


def test_what_scripts_call_is_looked_for() -> None:
    lifecycle = (AMI / "host/lifecycle.py").read_text(encoding="utf-8")
    called = set(re.findall(r'\["([a-z][\w-]+)", "', lifecycle))
    called |= programs_of((AMI / "host/serve.sh").read_text(encoding="utf-8"))
    assert {"aws", "systemctl", "docker", "getent", "sed", "lscpu", "cut"} <= called
    assert called <= CALLED


def programs_of(script: str) -> set[str]:
    """What a shell script calls that is neither the shell's own nor a function of the script."""
    first = r"(?:^|\$\(|\||;|&&|\b(?:exec|then|do)\b)[ ]*([a-z][a-z-]*)(?=[\s)]|$)"
    own = subprocess.run(["bash", "-c", "compgen -bk"], capture_output=True, text=True, check=True).stdout.split()
    functions = re.findall(r"^(\w+)\(\)", script, re.MULTILINE)
    script = re.sub(r"(?:^|\s)#.*", "", script)
    script = re.sub(r"^ *[a-z][a-z |]*\) *", "", script, flags=re.MULTILINE)  # the words of a case; what follows stays
    return set(re.findall(first, script, re.MULTILINE)) - {*own, *functions}


def test_a_whole_image_passes(programs: Programs, image: Path) -> None:
    done = check(programs, image)
    assert done.returncode == 0, done.stderr
    assert programs.asked()[-2:] == [
        "aws autoscaling complete-lifecycle-action --generate-cli-skeleton",
        "systemctl is-enabled --quiet peakplan.target",
    ]


def test_an_image_without_a_program_is_refused_by_name(programs: Programs, image: Path) -> None:
    (image / "usr/sbin/logrotate").unlink()
    done = check(programs, image)
    assert done.returncode == 1
    assert "the image lacks /usr/sbin/logrotate" in done.stderr


def test_an_image_for_processors_alone_needs_nothing_of_neurons(programs: Programs, image: Path) -> None:
    shutil.rmtree(image / "opt/aws/neuron")
    assert check(programs, image, "cpu").returncode == 0
    done = check(programs, image, "inf2 cpu")
    assert "the image lacks /opt/aws/neuron/bin/neuron-monitor" in done.stderr


def test_an_image_without_the_aws_cli_is_refused(tmp_path: Path, programs: Programs, image: Path) -> None:
    (programs.folder / "aws").unlink()
    only = tmp_path / "only"
    only.mkdir()
    for name in CALLED - {"aws"}:
        (only / name).symlink_to("/bin/true")
    environment = {"PATH": str(only), "PEAKPLAN_ROOT": str(image)}
    command = ["/bin/bash", str(SCRIPT), "inf2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the image lacks aws" in done.stderr


def test_an_image_that_would_not_start_by_itself_is_refused(programs: Programs, image: Path) -> None:
    programs.add("systemctl", "exit 1")
    assert check(programs, image).returncode != 0
