"""From an empty account to a standing fleet by the guide's own lines, as they stand there, in fresh clones.

The lines run in a shell as people type them; those that bring Python's packages are not run: the packages are lent to
the clone, for `npx cdk` alone only those that requirements.txt names. The emulator's image is built at once, and the
fleet file, which is the reader's to fill in, watches no cell after its deploy. Not run in a real account.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.parts import REPOSITORY_ROOT
from tests.infra.deployment import CDK, fresh_clone, operators_environment, type_in
from tests.infra.moto_server import MotoServer, running_moto

pytestmark = [
    pytest.mark.slow,  # a rehearsal and ten synths
    pytest.mark.skipif(not CDK.exists(), reason="the CDK CLI is not installed: `make test` does, or `npm ci` by hand"),
    pytest.mark.skipif(not (REPOSITORY_ROOT / ".git").exists(), reason="this is no git checkout: clone the repository"),
]
FLEET, MOST_LINES = "my-fleet.yaml", 8
# What the guide's first line tells the reader to set; the rest of the file is dev's.
OWN = {
    "name": "mine",
    "region": "us-east-1",
    "availability_zones": ["us-east-1a", "us-east-1b", "us-east-1c"],
    "callers": [{"name": "assistant", "accounts": ["111122223333"]}],
    "on_call": "planner@example.com",
    "rollout": {"canary_bake_minutes": 0},
}
# The emulator's change sets are not CloudFormation's: the CLI reads from its environment to do without.
METHODS = {"npx cdk diff": {"CDK_METHOD": "template"}, "npx cdk deploy": {"CDK_METHOD": "direct"}}


@dataclass(frozen=True)
class Walk:
    """A section's lines and what became of each, in an account that was empty before the first."""

    server: MotoServer
    clone: Path
    lines: list[str]
    done: dict[str, subprocess.CompletedProcess[str]]

    def said(self, *starts: str) -> str:
        (done,) = [done for line, done in self.done.items() if line.startswith(starts)]
        return done.stdout + done.stderr

    def succeeded(self) -> None:
        for line, done in self.done.items():
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        assert list(self.done) == self.lines

    def stands(self, fleet: str) -> str:
        """See that the fleet's stacks are there, with hosts of the image that was baked, and return its id."""
        stacks = self.server.client("cloudformation").describe_stacks()["Stacks"]
        said = {stack["StackName"]: stack["StackStatus"] for stack in stacks}
        wanted = ("network", "image", "rollout", "cell-1", "edge", "observability", "spending")
        assert said.keys() == {"CDKToolkit", *(f"peakplan-{fleet}-{name}" for name in wanted)}
        assert set(said.values()) <= {"CREATE_COMPLETE", "UPDATE_COMPLETE"}, said
        parameter = self.server.client("ssm").get_parameter(Name="/imagebuilder/peakplan/dev/machine-image")
        launched = self.server.client("ec2").describe_launch_template_versions(
            LaunchTemplateName=f"peakplan-{fleet}-cell-1-inf2", Versions=["$Latest"]
        )["LaunchTemplateVersions"]
        image = str(parameter["Parameter"]["Value"])
        assert [each["LaunchTemplateData"]["ImageId"] for each in launched] == [image]
        return image


def walked(server: MotoServer, clone: Path, heading: str, environment: dict[str, str]) -> Walk:
    """Type the commands of a section of the guide, to the first that fails."""
    guide = (clone / "docs" / "fleet.md").read_text(encoding="utf-8")
    section = guide.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    walk = Walk(server, clone, [line for line in str(block).splitlines() if "pip install" not in line], {})
    for line in walk.lines:
        how: dict[str, Any] = next((METHODS[word] for word in METHODS if line.startswith(word)), {})
        walk.done[line] = type_in(clone, environment | how, line)
        if walk.done[line].returncode:
            break
        if line.startswith("cp "):  # what a reader does to the copied fleet file
            file = clone / FLEET
            file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text(encoding="utf-8")) | OWN), encoding="utf-8")
    return walk


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """By make and peakplan."""
    folder = tmp_path_factory.mktemp("walk")
    clone = fresh_clone(folder)
    with running_moto(folder / "server.log", EMULATOR_BUILDS_AT_ONCE="1") as server:
        assert server.client("cloudformation").describe_stacks()["Stacks"] == []
        yield walked(server, clone, "From an empty account", operators_environment(server, clone / ".venv" / "bin"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """By `npx cdk`: no make, no fleet named."""
    folder, home = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("home")
    clone = fresh_clone(folder, "requirements.txt")
    for stamp in (clone / ".venv").glob("*.stamp"):
        stamp.unlink()
    (home / ".cdk.json").write_text(json.dumps({"notices": False}))  # they are of a site that the emulator is not
    with running_moto(folder / "server.log", EMULATOR_BUILDS_AT_ONCE="1") as server:
        server.client("ec2").describe_images(Owners=["self"])  # moto reads its tables at the first call
        programs = (clone / ".venv" / "bin", Path(sys.executable).parent)  # Node is beside Python
        environment = operators_environment(server, *programs) | {"HOME": str(home)}
        yield walked(server, clone, "With npx cdk alone", environment)


def test_every_line_of_the_guide_succeeds_as_it_stands_there_and_the_fleet_with_its_image_stands(made: Walk) -> None:
    made.succeeded()
    assert 3 < len(made.lines) <= MOST_LINES
    preflight, deploy = made.said("make preflight "), made.said("make deploy ")
    assert "mine can be deployed" in preflight
    assert "no machine image yet" in preflight, "the bake comes after it"
    assert "mine can be deployed" in deploy
    assert "no machine image yet" not in deploy
    assert f"Release {made.stands('mine')}" in deploy
    groups = made.server.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert [group["DesiredCapacity"] >= 3 for group in groups] == [True, True]
    command = ["git", "status", "--porcelain"]
    said = subprocess.run(command, cwd=made.clone, capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"?? {FLEET}"], "keys, packages and templates are ignored by git"


def test_npx_cdk_alone_makes_dev_stand_without_warnings_and_none_of_its_lines_is_make_s(plain: Walk) -> None:
    plain.succeeded()
    assert not [line for line in plain.lines if "make" in line.partition("#")[0]]
    typed = {line.partition("#")[0].strip() for line in plain.lines}
    assert {"npx cdk synth", "npx cdk diff", "npx cdk deploy --all"} <= typed
    plain.stands("dev")
    said = plain.said("npx cdk synth")
    for warning in ("reserved context key", "feature flags", "[Warning", "[Error"):
        assert warning not in said
