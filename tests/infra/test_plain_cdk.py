"""From a fresh clone to a standing fleet by `npx cdk` alone, by the guide's own lines: no make, no fleet named.

The lines that bring Python's packages are not run: of this environment's, those that requirements.txt names are lent to
the clone, and no others. The emulator's image is built at once. Not run in a real account.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.fleet.parts import REPOSITORY_ROOT
from tests.infra.clone import fresh_clone, operators_environment, type_in
from tests.infra.deployment import CDK
from tests.infra.moto_server import MotoServer, running_moto

pytestmark = [
    pytest.mark.slow,  # six synths
    pytest.mark.skipif(not CDK.exists(), reason="the CDK CLI is not installed: `make test` does, or `npm ci` by hand"),
    pytest.mark.skipif(not (REPOSITORY_ROOT / ".git").exists(), reason="this is no git checkout"),
]
METHODS = {"diff": "template", "deploy": "direct"}
Done = dict[str, subprocess.CompletedProcess[str]]


def lines_of(guide: str) -> list[str]:
    """The commands of the guide's section, but for those that install Python's packages."""
    section = guide.partition("## With npx cdk alone\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [line for line in str(block).splitlines() if "pip install" not in line]


def ready(folder: Path) -> Path:
    """A clone as the first lines leave it."""
    clone = fresh_clone(folder, "requirements.txt")
    for stamp in (clone / ".venv").glob("*.stamp"):
        stamp.unlink()
    return clone


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    log = tmp_path_factory.mktemp("plain") / "server.log"
    with running_moto(log, EMULATOR_BUILDS_AT_ONCE="1") as made:
        made.client("ec2").describe_images(Owners=["self"])  # moto reads its tables at the first call
        yield made


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory, server: MotoServer) -> Done:
    clone, home = ready(tmp_path_factory.mktemp("clone")), tmp_path_factory.mktemp("home")
    (home / ".cdk.json").write_text(json.dumps({"notices": False}))  # they are of a site that the emulator is not
    beside = Path(sys.executable).parent  # Node
    environment = operators_environment(server, clone / ".venv" / "bin", beside) | {"HOME": str(home)}
    done: Done = {}
    for line in lines_of((clone / "docs" / "fleet.md").read_text(encoding="utf-8")):
        # The emulator's change sets are not CloudFormation's: the CLI reads from its environment to do without.
        how = [{"CDK_METHOD": METHODS[word]} for word in METHODS if line.startswith(f"npx cdk {word}")]
        done[line] = type_in(clone, environment | (how[0] if how else {}), line)
        if done[line].returncode:
            break
    return done


def test_every_line_succeeds_as_it_stands_there_and_none_of_them_is_make_s(typed: Done) -> None:
    lines = lines_of((REPOSITORY_ROOT / "docs" / "fleet.md").read_text(encoding="utf-8"))
    for line, done in typed.items():
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert list(typed) == lines
    assert not [line for line in lines if "make" in line.partition("#")[0]]
    assert {"npx cdk synth", "npx cdk diff", "npx cdk deploy --all"} <= {
        line.partition("#")[0].strip() for line in lines
    }


def test_a_synth_warns_of_nothing(typed: Done) -> None:
    (done,) = [done for line, done in typed.items() if line.startswith("npx cdk synth")]
    said = done.stdout + done.stderr
    for warning in ("reserved context key", "feature flags", "[Warning", "[Error"):
        assert warning not in said


def test_dev_stands_with_the_image_that_was_baked(typed: Done, server: MotoServer) -> None:
    assert typed
    stacks = server.client("cloudformation").describe_stacks()["Stacks"]
    said = {stack["StackName"]: stack["StackStatus"] for stack in stacks}
    wanted = ("network", "image", "rollout", "cell-1", "edge", "observability", "spending")
    assert said.keys() == {"CDKToolkit", *(f"peakplan-dev-{name}" for name in wanted)}
    assert set(said.values()) <= {"CREATE_COMPLETE", "UPDATE_COMPLETE"}, said
    parameter = server.client("ssm").get_parameter(Name="/imagebuilder/peakplan/dev/machine-image")
    launched = server.client("ec2").describe_launch_template_versions(
        LaunchTemplateName="peakplan-dev-cell-1-inf2", Versions=["$Latest"]
    )["LaunchTemplateVersions"]
    assert [each["LaunchTemplateData"]["ImageId"] for each in launched] == [parameter["Parameter"]["Value"]]
