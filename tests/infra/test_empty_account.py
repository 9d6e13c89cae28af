"""From an empty account to a serving fleet by the guide's own lines, as they stand there, in a fresh clone.

The lines run in a shell as people type them: `make` installs the CDK CLI, and starts it. Python's packages are lent to
the clone instead of being installed a second time. The emulator's image is built at once, and the fleet file, which is
the reader's to fill in, watches no cell after its deploy. Not run in a real account.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from infra.fleet.parts import REPOSITORY_ROOT
from tests.infra.clone import fresh_clone, operators_environment, type_in
from tests.infra.deployment import CDK
from tests.infra.moto_server import MotoServer, running_moto

pytestmark = [
    pytest.mark.slow,  # a rehearsal and four synths
    pytest.mark.skipif(not CDK.exists(), reason="the CDK CLI is not installed: npm ci"),
    pytest.mark.skipif(
        not (REPOSITORY_ROOT / ".git").exists(), reason="this is no git checkout: clone the repository to run it"
    ),
]

GUIDE, FLEET = "docs/fleet.md", "my-fleet.yaml"
MOST = 8
# What the guide's first line tells the reader to set; the rest of the file is dev's.
OWN = {
    "name": "mine",
    "region": "us-east-1",
    "availability_zones": ["us-east-1a", "us-east-1b", "us-east-1c"],
    "callers": [{"name": "assistant", "accounts": ["111122223333"]}],
    "on_call": "planner@example.com",
    "rollout": {"canary_bake_minutes": 0},
}


def lines_of(guide: str) -> list[str]:
    """The commands of the guide's section."""
    section = guide.partition("## From an empty account\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return str(block).splitlines()


def fill_in(file: Path) -> None:
    """What a reader does to the copied fleet file."""
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text(encoding="utf-8")) | OWN), encoding="utf-8")


@dataclass(frozen=True)
class Walk:
    """The guide's lines and what became of each, in an account that was empty before the first."""

    server: MotoServer
    clone: Path
    done: dict[str, subprocess.CompletedProcess[str]]

    def said(self, target: str) -> str:
        (done,) = [
            done
            for line, done in self.done.items()
            if line.startswith((f"make {target} ", f"peakplan fleet {target} "))
        ]
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("walk")
    clone = fresh_clone(folder)
    with running_moto(folder / "server.log", EMULATOR_BUILDS_AT_ONCE="1") as server:
        assert server.client("cloudformation").describe_stacks()["Stacks"] == []
        done: dict[str, subprocess.CompletedProcess[str]] = {}
        for line in lines_of((clone / GUIDE).read_text(encoding="utf-8")):
            done[line] = type_in(clone, operators_environment(server, clone / ".venv" / "bin"), line)
            if done[line].returncode:
                break
            if line.startswith("cp "):
                fill_in(clone / FLEET)
        yield Walk(server, clone, done)


def test_every_line_of_the_guide_succeeds_as_it_stands_there(walk: Walk) -> None:
    lines = lines_of((walk.clone / GUIDE).read_text(encoding="utf-8"))
    for line, done in walk.done.items():
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert list(walk.done) == lines
    assert 3 < len(lines) <= MOST


def test_preflight_found_nothing_missing_before_the_bake_and_the_deploy(walk: Walk) -> None:
    assert "mine can be deployed" in walk.said("preflight")
    assert "no machine image yet" in walk.said("preflight"), "the bake comes after it"
    assert "mine can be deployed" in walk.said("deploy")
    assert "no machine image yet" not in walk.said("deploy")


def test_the_account_has_the_fleet_with_the_image_that_was_baked(walk: Walk) -> None:
    stacks = walk.server.client("cloudformation").describe_stacks()["Stacks"]
    assert {stack["StackStatus"] for stack in stacks} <= {"CREATE_COMPLETE", "UPDATE_COMPLETE"}
    names = {stack["StackName"] for stack in stacks}
    wanted = ("network", "image", "rollout", "cell-1", "edge", "observability", "spending")
    assert names == {"CDKToolkit", *(f"peakplan-mine-{name}" for name in wanted)}
    release = walk.server.client("ssm").get_parameter(Name="/imagebuilder/peakplan/dev/machine-image")
    image = release["Parameter"]["Value"]
    assert f"Release {image}" in walk.said("deploy")
    versions = walk.server.client("ec2").describe_launch_template_versions(
        LaunchTemplateName="peakplan-mine-cell-1-inf2", Versions=["$Latest"]
    )["LaunchTemplateVersions"]
    assert {each["LaunchTemplateData"]["ImageId"] for each in versions} == {image}
    groups = walk.server.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert [group["DesiredCapacity"] >= 3 for group in groups] == [True, True]


def test_the_clone_is_as_clean_as_before(walk: Walk) -> None:
    said = subprocess.run(
        ["git", "status", "--porcelain"], cwd=walk.clone, capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == [f"?? {FLEET}"], "keys, packages and templates are ignored by git"
