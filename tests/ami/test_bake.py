"""Image Builder documents, and the scripts that bake an image, run with fakes of the system's programs."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from infra.constructs.image import component_parameters
from infra.fleet.images import images
from infra.fleet.rules import NEWEST_SDK
from infra.fleet.settings import FLEETS, FleetSettings
from service.engines.neuron.__main__ import _parser
from service.settings import Settings
from tests.ami.programs import AMI, Programs, assert_refused
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import resources, synthesised, templates


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


def test_the_container_is_built_from_the_release_on_the_pinned_base_of_either_architecture(
    programs: Programs, home: Path
) -> None:
    programs.add("docker", f"[[ $1 == build ]] && ls {home}/release/model >> {programs.folder}/context; true")
    done = build(programs, home)
    assert done.returncode == 0, done.stderr
    built, copied = programs.asked()
    assert "--build-arg BASE=the-base:sdk2.28.0 --build-arg MODEL=model" in built
    assert "--tag peakplan:baked" in built
    assert (programs.folder / "context").read_text(encoding="utf-8") == "model.json\n"
    assert "prometheus_client" in copied
    assert not (home / "release").exists()
    (home / "release/service").mkdir(parents=True)
    programs.add("uname", "echo aarch64")  # which has no container of Neuron's and brings its own PyTorch
    assert build(programs, home).returncode == 0
    built = next(line for line in programs.asked()[2:] if line.startswith("docker build"))
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


def test_what_fails_stops_the_bake(programs: Programs, home: Path) -> None:
    programs.add("docker", "echo 'Not compiled for Neuron: seq_len' >&2; exit 2")
    assert_refused(compile_for(programs, home, "inf2"), "Not compiled for Neuron", code=2)
    assert len(programs.asked()) == 1
    programs.add("docker", "echo 'no space left on device' >&2; exit 1")
    assert_refused(build(programs, home), "no space left")
    assert len(programs.asked()) == 2
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


def check_programs(programs: Programs, root: Path, chips: str = "inf2") -> subprocess.CompletedProcess[str]:
    return programs.run("bash", PROGRAMS_SCRIPT, chips, PEAKPLAN_ROOT=root)


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


def test_a_whole_image_passes_and_one_for_processors_alone_needs_nothing_of_neurons(
    programs: Programs, image: Path
) -> None:
    done = check_programs(programs, image)
    assert done.returncode == 0, done.stderr
    assert programs.asked()[-2:] == [
        "aws autoscaling complete-lifecycle-action --generate-cli-skeleton",
        "systemctl is-enabled --quiet peakplan.target",
    ]
    shutil.rmtree(image / "opt/aws/neuron")
    assert check_programs(programs, image, "cpu").returncode == 0
    assert_refused(check_programs(programs, image, "inf2 cpu"), "the image lacks /opt/aws/neuron/bin/neuron-monitor")


def test_an_image_without_a_program_or_that_would_not_start_is_refused(
    tmp_path: Path, programs: Programs, image: Path
) -> None:
    (image / "usr/sbin/logrotate").unlink()
    assert_refused(check_programs(programs, image), "the image lacks /usr/sbin/logrotate")
    (image / "usr/sbin/logrotate").touch()
    programs.add("systemctl", "exit 1")
    assert check_programs(programs, image).returncode != 0
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


def test_what_fits_is_reported_and_an_instance_without_chips_or_whose_driver_does_not_answer_is_refused(
    programs: Programs, devices: Path, tmp_path: Path
) -> None:
    done = check_neuron(programs, devices)
    assert done.returncode == 0, done.stderr
    versions = {"sdk": SDK, "driver": "2.26.10.0", "runtime": "2.30.51.0-faafe26f0"}
    assert json.loads(done.stdout) == versions | {"devices": ["neuron0", "neuron1"]}
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


def test_an_image_is_hardened_and_what_neuron_and_the_agents_need_is_left_alone(programs: Programs, root: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (root / "etc").rglob("*") if path.is_file()}

    done = harden(programs, root)
    assert done.returncode == 0, done.stderr
    modules = (root / "etc/modprobe.d/peakplan.conf").read_text(encoding="utf-8")
    kernel = (root / "etc/sysctl.d/90-peakplan.conf").read_text(encoding="utf-8")
    assert "squashfs" not in modules  # the SSM agent is a snap
    assert "neuron" not in modules
    assert "modules_disabled" not in kernel
    assert "ip_forward" not in kernel  # Docker's
    asked = programs.asked()
    masked = [line.split()[-1] for line in asked if line.startswith("systemctl mask")]
    assert {"ssh.service", "ssh.socket", "apt-daily-upgrade.timer"} <= set(masked)
    assert not [unit for unit in masked if "ssm" in unit or "docker" in unit or "neuron" in unit]
    kept = {"apt-mark hold linux-aws", "apt-mark hold aws-neuronx-dkms"}
    assert kept <= set(asked), "the driver and its kernel stay together"
    assert {"modprobe neuron", "groupadd --system neuron"} <= set(asked)
    rule = (root / "etc/udev/rules.d/99-peakplan-neuron.rules").read_text(encoding="utf-8")
    assert 'GROUP="neuron", MODE="0660"' in rule, "a device is open to its group alone"
    assert json.loads((root / "etc/docker/daemon.json").read_text(encoding="utf-8"))["no-new-privileges"] is True
    assert (root / "etc/shadow").stat().st_mode & 0o777 == 0o640
    assert (root / "etc/cron.daily").stat().st_mode & 0o777 == 0o700
    once = files()
    assert harden(programs, root).returncode == 0
    assert files() == once, "twice is as good as once"


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


DOCUMENTS = sorted((AMI / "components").glob("*.yaml"))
SCHEMA = json.loads(Path(__file__).with_name("component_schema.json").read_text(encoding="utf-8"))
INLINE_LIMIT = 16_000  # characters of CreateComponent's `data`, which is how the CDK hands them over
SHELLCHECK = Path(sys.executable).with_name("shellcheck")


def read(document: Path) -> Any:
    return yaml.safe_load(document.read_text(encoding="utf-8"))


def steps() -> Iterator[tuple[str, Any]]:
    for document in DOCUMENTS:
        for phase in read(document)["phases"]:
            for step in phase["steps"]:
                yield f"{document.stem}: {step['name']}", step


BASH = [(name, step["inputs"]["commands"]) for name, step in steps() if step["action"] == "ExecuteBash"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_a_document_follows_the_schema_with_unique_names_and_known_parameters(document: Path) -> None:
    content, text = read(document), document.read_text(encoding="utf-8")
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    assert len(text) <= INLINE_LIMIT
    for names in ([each["name"] for each in parts] for parts in named_parts(content)):
        assert len(names) == len(set(names))
    declared = {name for parameter in content.get("parameters", []) for name in parameter}
    assert declared == set(re.findall(r"\{\{ *([\w-]+) *\}\}", text))


def named_parts(content: Any) -> list[Any]:
    return [content["phases"], *(phase["steps"] for phase in content["phases"])]


def shellcheck(*words: str | Path, script: str | None = None) -> None:
    done = subprocess.run([SHELLCHECK, *words], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("commands", [each for _, each in BASH], ids=[name for name, _ in BASH])
def test_shellcheck_finds_nothing_in_a_step_which_ends_at_its_first_failure(commands: list[str]) -> None:
    """All commands of a step are one script, and only the last one's exit code would count."""
    assert commands[0].splitlines()[0] == "set -euo pipefail"
    script = re.sub(r"\{\{ *\w+_SECONDS *\}\}", "600", "\n".join(commands))  # in arithmetic a word would be a variable
    shellcheck("--shell", "bash", "-", script=re.sub(r"\{\{ *[\w-]+ *\}\}", "value", script))


def test_shellcheck_finds_nothing_in_scripts() -> None:
    shellcheck(*sorted(AMI.rglob("*.sh")))


@pytest.mark.parametrize(("within", "code"), [(100, 0), (99, 1)], ids=["in time", "a second late"])
def test_a_bake_fails_where_an_instance_is_not_ready_in_time(within: int, code: int) -> None:
    """The system's own boot took 97 s, and the service is ready 3 s after its start by bash's clock."""
    (commands,) = [commands for name, commands in BASH if name.endswith("PlansOnAFreshInstance")]
    told = {"CHIPS": "inf2 trn1", "BOOT_SECONDS": str(within)}
    script = re.sub(r"\{\{ *([\w-]+) *\}\}", lambda found: told[found[1]], "\n".join(commands))
    script = script.replace("/etc/peakplan/host.env", "/dev/null").replace(
        "/usr/local/bin/peakplan-lifecycle wait", "wait_for"
    )
    world = 'systemctl() { case "$1" in show) echo 97000000 ;; esac; }\nwait_for() { SECONDS=3; }\n'
    done = subprocess.run(["bash", "-c", world + script], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert f"ready after 97 s of boot and 3 s of the service, of {within} s" in done.stdout


def test_files_of_ours_that_a_step_names_are_there_and_folders_of_a_download_are_made_before_it() -> None:
    """S3Download fails where its destination's folder is not there."""
    named = {path for _, commands in BASH for path in re.findall(r"/opt/peakplan/host/([\w./-]+)", "\n".join(commands))}
    assert named
    assert [path for path in named if not (AMI / path).exists()] == []
    made = ""
    for _, step in steps():
        if step["action"] == "ExecuteBash":
            made += "\n".join(line for line in step["inputs"]["commands"] if line.startswith("install -d"))
        elif step["action"] == "S3Download":
            assert {str(Path(each["destination"]).parent) in made for each in step["inputs"]} == {True}


def test_nothing_is_fetched_once_the_image_is_proven() -> None:
    """The last word belongs to a plan: no step after the hardening changes what was proven."""
    assert [document.stem.partition("-")[2] for document in DOCUMENTS][-2:] == ["hardening", "proof"]
    assert {phase["name"] for phase in read(DOCUMENTS[-1])["phases"]} == {"validate", "test"}


def read_by_the_service(monkeypatch: pytest.MonkeyPatch, told: dict[str, str], replicas: str) -> Settings:
    """The settings that the service makes of what an image decides; serve.sh adds the last two."""
    decided = dict(word.split("=", 1) for word in told["SETTINGS"].split())
    beside = {"PEAKPLAN_COMPILED_DIR": "/opt/peakplan/compiled", "PEAKPLAN_REPLICAS": replicas}
    for name, value in (decided | beside).items():
        monkeypatch.setenv(name, value)
    return Settings()


@pytest.mark.slow
def test_the_service_and_the_compiler_take_what_the_image_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FleetSettings.from_yaml(FLEETS / "dev.yaml")
    (recipe,) = resources(templates("dev")["Image"], "AWS::ImageBuilder::ImageRecipe").values()
    parameters = [each for component in recipe["Properties"]["Components"] for each in component.get("Parameters", [])]
    told = {parameter["Name"]: parameter["Value"][0] for parameter in parameters}
    assert told["CHIPS"].split() == [group.chip for group in fleet.groups]
    for chip in told["CHIPS"].split():
        words = ["compile", "--output", "x", "--chip", chip, *told["COMPILE"].split()]
        taken = _parser(Settings()).parse_args(words)
        assert taken.tensor_parallel == fleet.model.tensor_parallel
        assert taken.speculation_length == fleet.model.speculation_length
        assert taken.sequence_length == fleet.model.sequence_length
    settings = read_by_the_service(monkeypatch, told, "1")
    assert (settings.engine, settings.hosted_engine) == ("triton", "neuron")
    assert settings.neuron.tensor_parallel == fleet.model.tensor_parallel
    assert settings.max_prompt_tokens == fleet.model.max_prompt_tokens


@pytest.mark.slow
def test_a_batch_is_compiled_and_run_by_replicas_of_the_gateway_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "model.batch_size": 8, "model.speculation_length": 48, "model.context_buckets": [64, 384],
        "model.graph": "chain", "model.weight_layout": True, "model.device_rights": "memory",
    }  # fmt: skip
    batched = dev_fleet(changes)
    (image,) = images(batched)
    told = component_parameters(batched, image)
    compiled = _parser(Settings()).parse_args(["compile", "--output", "x", *told["COMPILE"].split()])
    settings = read_by_the_service(monkeypatch, told, "2")
    assert (settings.engine, settings.batch_size) == ("neuron", 8)
    assert (compiled.batch_size, compiled.speculation_length, compiled.context_buckets) == (8, 48, (64, 384))
    assert (compiled.sequence_length, compiled.graph, compiled.weight_layout) == (576, "chain", True)
    assert "PEAKPLAN_DEVICE_RIGHTS=memory" in told["SETTINGS"].split()
    assert settings.queue.lost_replica_seconds == batched.model.lost_replica_seconds == 300


@pytest.mark.slow
def test_the_release_holds_all_that_the_dockerfile_copies() -> None:
    outdir = synthesised("dev")[0]
    (release,) = [path.parents[1] for path in outdir.glob("asset.*/service/Dockerfile")]
    lines = (release / "service" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", lines, re.MULTILINE) for word in line.split()]
    assert "requirements-image.txt" in copied
    missing = [name for name in copied if name != "${MODEL}" and not (release / name).exists()]
    assert not (release / "requirements-dev.txt").exists(), "what tests need would make another release"
    assert missing == [], "build-container.sh would fail where an image is baked"
