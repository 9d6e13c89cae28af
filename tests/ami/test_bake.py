"""The scripts that bake an image (build, compile, check, harden), run with fakes of the system's programs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.fleet.rules import NEWEST_SDK
from tests.ami.programs import AMI, Programs, assert_refused


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("model", "release/service", "compiled", "packages"):
        (tmp_path / "home" / folder).mkdir(parents=True)
    (tmp_path / "home/model/model.json").write_text("{}", encoding="utf-8")
    return tmp_path / "home"


def build(programs: Programs, home: Path) -> subprocess.CompletedProcess[str]:
    return programs.run("bash", AMI / "bake" / "build-container.sh", "the-base:sdk2.28.0", PEAKPLAN_HOME=home)


def compile_for(programs: Programs, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return programs.run("bash", AMI / "bake" / "compile-model.sh", *words, PEAKPLAN_HOME=home)


def test_the_container_is_built_from_the_release_on_the_pinned_base(programs: Programs, home: Path) -> None:
    programs.add("docker", f"[[ $1 == build ]] && ls {home}/release/model >> {programs.folder}/context; true")
    done = build(programs, home)
    assert done.returncode == 0, done.stderr
    built, copied = programs.asked()
    assert "--build-arg BASE=the-base:sdk2.28.0 --build-arg MODEL=model" in built
    assert "--tag peakplan:baked" in built
    assert (programs.folder / "context").read_text(encoding="utf-8") == "model.json\n"
    assert "prometheus_client" in copied
    assert not (home / "release").exists()


def test_arm64_has_no_container_of_neurons_and_brings_its_own_torch(programs: Programs, home: Path) -> None:
    programs.add("docker")
    programs.add("uname", "echo aarch64")
    assert build(programs, home).returncode == 0
    built = next(line for line in programs.asked() if line.startswith("docker build"))
    assert "--build-arg REQUIREMENTS=service --build-arg TORCH=torch" in built
    assert "--build-arg REPLICA= --build-arg TRITON=" in built


def test_docker_is_installed_where_the_base_image_has_none(tmp_path: Path, programs: Programs) -> None:
    programs.add("apt-get")
    script = AMI / "bake" / "install-docker.sh"
    without = f"{programs.folder}:{tmp_path}"
    (tmp_path / "bash").symlink_to("/bin/bash")
    for name in ("cat", "printf", "echo", "env"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    assert programs.run("bash", script, PATH=without).returncode == 0
    updated, installed = programs.asked()
    assert (updated, installed.endswith(" docker.io docker-buildx")) == ("apt-get update", True)
    assert "DPkg::Lock::Timeout=" in installed, "unattended upgrades hold the lock of a fresh instance"
    programs.add("docker")
    asked = len(programs.asked())
    assert programs.run("bash", script, PATH=without).returncode == 0
    assert len(programs.asked()) == asked


def test_a_build_that_fails_stops_the_bake(programs: Programs, home: Path) -> None:
    programs.add("docker", "echo 'no space left on device' >&2; exit 1")
    assert_refused(build(programs, home), "no space left")
    assert len(programs.asked()) == 1


def test_the_model_is_compiled_and_checked_for_every_chip_without_a_network(programs: Programs, home: Path) -> None:
    programs.add("docker")
    done = compile_for(programs, home, "inf2 trn1", "--tensor-parallel", "2")
    assert done.returncode == 0, done.stderr
    asked = programs.asked()
    assert all("--network none" in line and "--pull never" in line for line in asked)
    assert all("--entrypoint /opt/peakplan/replica/bin/python" in line for line in asked), "the SDK is there alone"
    for chip, (compiled, checked) in zip(("inf2", "trn1"), (asked[:2], asked[2:]), strict=True):
        assert compiled.endswith(f"compile --output /opt/peakplan/compiled/{chip} --chip {chip} --tensor-parallel 2")
        assert checked.endswith(f"check --compiled /opt/peakplan/compiled/{chip}")


def test_a_model_that_does_not_compile_stops_the_bake(programs: Programs, home: Path) -> None:
    programs.add("docker", "echo 'Not compiled for Neuron: seq_len' >&2; exit 2")
    assert_refused(compile_for(programs, home, "inf2"), "Not compiled for Neuron", code=2)
    assert len(programs.asked()) == 1


def test_neither_runs_without_being_told_what(programs: Programs, home: Path) -> None:
    assert "usage" in compile_for(programs, home).stderr
    assert "usage" in programs.run("bash", AMI / "bake" / "build-container.sh").stderr


PROGRAMS_SCRIPT = AMI / "bake" / "check-programs.sh"
PROGRAMS_TEXT = PROGRAMS_SCRIPT.read_text(encoding="utf-8")
(CALLED,) = (set(names.split()) for names in re.findall(r"^called=\((.+)\)$", PROGRAMS_TEXT, re.MULTILINE))
PATHS = set(re.findall(r"^  (/\S+)$", PROGRAMS_TEXT, re.MULTILINE))


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


def check_programs(
    programs: Programs, root: Path, chips: str = "inf2", **environment: object
) -> subprocess.CompletedProcess[str]:
    return programs.run("bash", PROGRAMS_SCRIPT, chips, PEAKPLAN_ROOT=root, **environment)


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
    done = check_programs(programs, image)
    assert done.returncode == 0, done.stderr
    assert programs.asked()[-2:] == [
        "aws autoscaling complete-lifecycle-action --generate-cli-skeleton",
        "systemctl is-enabled --quiet peakplan.target",
    ]


def test_an_image_without_a_program_or_that_would_not_start_is_refused(programs: Programs, image: Path) -> None:
    (image / "usr/sbin/logrotate").unlink()
    assert_refused(check_programs(programs, image), "the image lacks /usr/sbin/logrotate")
    (image / "usr/sbin/logrotate").touch()
    programs.add("systemctl", "exit 1")
    assert check_programs(programs, image).returncode != 0


def test_an_image_for_processors_alone_needs_nothing_of_neurons(programs: Programs, image: Path) -> None:
    shutil.rmtree(image / "opt/aws/neuron")
    assert check_programs(programs, image, "cpu").returncode == 0
    assert_refused(check_programs(programs, image, "inf2 cpu"), "the image lacks /opt/aws/neuron/bin/neuron-monitor")


def test_an_image_without_the_aws_cli_is_refused(tmp_path: Path, programs: Programs, image: Path) -> None:
    (programs.folder / "aws").unlink()
    only = tmp_path / "only"
    only.mkdir()
    for name in CALLED - {"aws"}:
        (only / name).symlink_to("/bin/true")
    environment = {"PATH": str(only), "PEAKPLAN_ROOT": str(image)}
    command = ["/bin/bash", str(PROGRAMS_SCRIPT), "inf2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert_refused(done, "the image lacks aws")


NEURON_SCRIPT = AMI / "bake" / "check_neuron.py"
SDK = ".".join(map(str, NEWEST_SDK))


def check_neuron(
    programs: Programs, folder: Path, *, driver: str = "2.26.10.0", runtime: str = "2.30.51.0-faafe26f0", sdk: str = SDK
) -> subprocess.CompletedProcess[str]:
    programs.add("modinfo", f"echo {driver}" if driver else "echo 'ERROR: Module neuron not found.' >&2; exit 1")
    programs.add("docker", f"echo {runtime}" if runtime else "echo 'no packages found' >&2; exit 1")
    if not (programs.folder / "neuron-ls").exists():
        programs.add("neuron-ls", "echo []")
    return programs.run(
        sys.executable, NEURON_SCRIPT, sdk, "the-container", PEAKPLAN_DEVICES=folder, PEAKPLAN_NEURON_LS="neuron-ls"
    )


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in ("neuron0", "neuron1", "null"):
        (folder / name).touch()
    return folder


def test_what_fits_is_reported(programs: Programs, devices: Path) -> None:
    done = check_neuron(programs, devices)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "sdk": SDK,
        "driver": "2.26.10.0",
        "runtime": "2.30.51.0-faafe26f0",
        "devices": ["neuron0", "neuron1"],
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        # AMIs of SDK 2.31 carry driver 2.29, which refuses the runtime of SDK 2.28.
        ({"driver": "2.29.0.0"}, "too new"),
        ({"driver": "2.29.0.0"}, f"description says Neuron SDK {SDK}"),
        ({"driver": ""}, "Module neuron not found"),
        ({"driver": "unknown"}, "is no version"),
        ({"driver": "2.26.5.0"}, "is older than 2.26.10, which mends kernel 6.18"),
        ({"runtime": "2.33.1.0"}, "the container's runtime is 2.33.1.0"),
        ({"runtime": ""}, "no packages found"),
        ({"sdk": "2.29"}, "SDK 2.29 is not in neuron-pins.json"),
    ],
)
def test_what_does_not_fit_stops_the_bake(programs: Programs, devices: Path, given: dict[str, str], said: str) -> None:
    assert_refused(check_neuron(programs, devices, **given), said)


def test_an_instance_without_chips_or_whose_driver_does_not_answer_is_refused(
    programs: Programs, devices: Path, tmp_path: Path
) -> None:
    assert_refused(check_neuron(programs, tmp_path), "inf2 or trn1")
    programs.add("neuron-ls", "echo 'neuron-ls: no neuron device found' >&2; exit 2")
    assert_refused(check_neuron(programs, devices), "no neuron device found")


HARDEN_SCRIPT = AMI / "bake" / "harden.sh"
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
    return programs.run("bash", HARDEN_SCRIPT, chips, PEAKPLAN_ROOT=root)


def test_what_neuron_and_the_agents_need_is_left_alone(programs: Programs, root: Path) -> None:
    done = harden(programs, root)
    assert done.returncode == 0, done.stderr
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
    kept = {"apt-mark hold linux-aws", "apt-mark hold aws-neuronx-dkms"}
    assert kept <= set(programs.asked()), "the driver and its kernel stay together"


def test_a_device_is_open_to_its_group_alone_docker_is_told_and_files_are_closed(
    programs: Programs, root: Path
) -> None:
    assert harden(programs, root).returncode == 0
    rule = (root / "etc/udev/rules.d/99-peakplan-neuron.rules").read_text(encoding="utf-8")
    assert 'GROUP="neuron", MODE="0660"' in rule
    assert "groupadd --system neuron" in programs.asked()
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


def test_a_rule_that_does_not_hold_and_devices_that_are_gone_stop_the_bake(programs: Programs, root: Path) -> None:
    assert_refused(harden(programs, root, group="root 666"), "udev rule does not hold")
    (root / "dev" / "neuron0").unlink()
    assert_refused(harden(programs, root), "the Neuron devices are gone")
