"""Image Builder documents: valid by AWS's rules and as shell, with existing files and the right parameters."""

import json
import re
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
from infra.fleet.settings import FLEETS, FleetSettings
from service.engines.neuron.__main__ import _parser
from service.settings import Settings
from tests.ami.programs import AMI
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import resources, synthesised, templates

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
def test_follows_the_document_schema(document: Path) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(read(document))
    assert len(document.read_text(encoding="utf-8")) <= INLINE_LIMIT


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_names_are_unique_and_parameters_known_and_used(document: Path) -> None:
    content = read(document)
    phases = [phase["name"] for phase in content["phases"]]
    assert len(phases) == len(set(phases))
    for phase in content["phases"]:
        names = [step["name"] for step in phase["steps"]]
        assert len(names) == len(set(names))
    declared = {name for parameter in content.get("parameters", []) for name in parameter}
    assert declared == set(re.findall(r"\{\{ *([\w-]+) *\}\}", document.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("name", "commands"), BASH, ids=[name for name, _ in BASH])
def test_a_step_ends_at_its_first_failure(name: str, commands: list[str]) -> None:
    """All commands of a step are one script, and only the last one's exit code would count."""
    assert commands[0].splitlines()[0] == "set -euo pipefail", name


@pytest.mark.parametrize(("name", "commands"), BASH, ids=[name for name, _ in BASH])
def test_shellcheck_finds_nothing_in_steps(name: str, commands: list[str]) -> None:
    script = re.sub(r"\{\{ *\w+_SECONDS *\}\}", "600", "\n".join(commands))  # in arithmetic a word would be a variable
    script = re.sub(r"\{\{ *[\w-]+ *\}\}", "value", script)
    done = subprocess.run(
        [SHELLCHECK, "--shell", "bash", "-"], input=script, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{name}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("script", sorted(AMI.rglob("*.sh")), ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_scripts(script: Path) -> None:
    done = subprocess.run([SHELLCHECK, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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


def test_every_file_of_ours_that_a_step_names_is_there() -> None:
    named = {path for _, commands in BASH for path in re.findall(r"/opt/peakplan/host/([\w./-]+)", "\n".join(commands))}
    assert named
    for path in named:
        assert (AMI / path).exists(), path


def test_folders_of_a_download_are_made_before_it() -> None:
    """S3Download fails where its destination's folder is not there."""
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


@pytest.fixture
def told() -> dict[str, str]:
    """Each parameter of the recipe's components, by its name."""
    (recipe,) = resources(templates("dev")["Image"], "AWS::ImageBuilder::ImageRecipe").values()
    parameters = [each for component in recipe["Properties"]["Components"] for each in component.get("Parameters", [])]
    return {parameter["Name"]: parameter["Value"][0] for parameter in parameters}


@pytest.fixture
def fleet() -> FleetSettings:
    return FleetSettings.from_yaml(FLEETS / "dev.yaml")


@pytest.mark.slow
def test_the_service_takes_the_settings_that_the_image_decides(
    told: dict[str, str], fleet: FleetSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in told["SETTINGS"].split():
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PEAKPLAN_COMPILED_DIR", "/opt/peakplan/compiled")  # serve.sh adds these two
    monkeypatch.setenv("PEAKPLAN_REPLICAS", "1")
    settings = Settings()
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
    for word in told["SETTINGS"].split():
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PEAKPLAN_COMPILED_DIR", "/opt/peakplan/compiled")
    monkeypatch.setenv("PEAKPLAN_REPLICAS", "2")

    settings, compiled = (
        Settings(),
        _parser(Settings()).parse_args(["compile", "--output", "x", *told["COMPILE"].split()]),
    )

    assert (settings.engine, settings.batch_size) == ("neuron", 8)
    assert (compiled.batch_size, compiled.speculation_length, compiled.context_buckets) == (8, 48, (64, 384))
    assert compiled.sequence_length == 576
    assert (compiled.graph, compiled.weight_layout) == ("chain", True)
    assert "PEAKPLAN_DEVICE_RIGHTS=memory" in told["SETTINGS"].split()
    assert settings.queue.lost_replica_seconds == batched.model.lost_replica_seconds == 300


@pytest.mark.slow
def test_the_compiler_takes_the_fleet_s_model(told: dict[str, str], fleet: FleetSettings) -> None:
    chips = told["CHIPS"].split()
    assert chips == [group.chip for group in fleet.groups]
    for chip in chips:
        words = ["compile", "--output", "x", "--chip", chip, *told["COMPILE"].split()]
        taken = _parser(Settings()).parse_args(words)
        assert taken.tensor_parallel == fleet.model.tensor_parallel
        assert taken.speculation_length == fleet.model.speculation_length
        assert taken.sequence_length == fleet.model.sequence_length


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
