"""Image Builder documents: valid by AWS's rules, sound as shell, and made of files that are there."""

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

from tests.ami.programs import AMI

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


@pytest.mark.parametrize(
    "broken",
    [
        {"schemaVersion": 1.0},
        {"schemaVersion": 2.0, "phases": []},
        {"schemaVersion": 1.0, "phases": [{"name": "bake", "steps": [{"name": "A", "action": "Reboot"}]}]},
        {"schemaVersion": 1.0, "phases": [{"name": "build", "steps": [{"name": "A", "action": "ExecuteBash"}]}]},
        {"schemaVersion": 1.0, "phases": [{"name": "build", "steps": [{"name": "A", "action": "Format"}]}]},
        {"schemaVersion": 1.0, "parameters": [{"ab": {"type": "string"}}], "phases": []},
        {
            "schemaVersion": 1.0,
            "phases": [{"name": "build", "steps": [{"name": "A", "action": "Reboot", "timeoutSeconds": 0}]}],
        },
    ],
    ids=["no phases", "version", "phase", "no inputs", "action", "short name", "no time"],
)
def test_the_schema_refuses_what_image_builder_would(broken: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(SCHEMA).validate(broken)


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
