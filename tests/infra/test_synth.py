"""Both fleets synthesise: deterministic, clean by every check, in cells that stand alone."""

import json
import os
import re
from pathlib import Path

import pytest

from infra.fleet.settings import FLEETS, FleetSettings
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import (
    Template,
    app_of,
    findings,
    lint_findings,
    resources,
    synthesised,
    templates,
    templates_of,
    told,
)

FLEET_NAMES = ("dev", "dev-cpu", "prime-day", "mistral-7b")
GROUP = "AWS::AutoScaling::AutoScalingGroup"
# By which EC2 knows a reservation that was asked for before: a digest of the request, and so of the cell's name.
_TOKEN = re.compile(r"ClientToken\W+[0-9a-f]{64}")


@pytest.mark.parametrize("fleet", FLEET_NAMES)
def test_every_stack_of_the_fleet_is_there(fleet: str) -> None:
    settings = FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml")
    cells = {f"Cell-{number}" for number in range(1, settings.cells + 1)}
    assert set(templates(fleet)) == {"Network", "Image", "Rollout", "Edge", "Observability", "Spending"} | cells


@pytest.mark.parametrize("fleet", FLEET_NAMES)
def test_no_check_finds_anything_that_is_not_accepted_with_a_reason(fleet: str) -> None:
    outdir, _ = synthesised(fleet)
    assert findings(str(outdir)) == []


def test_two_synths_are_the_same() -> None:
    assert templates_of(app_of(dev_fleet())) == templates("dev"), "nor does it matter whether types are checked"
    for file in synthesised("dev")[0].glob("*.template.json"):  # metadata has stack traces, which nothing deploys
        assert "jsii-kernel" not in file.read_text(encoding="utf-8"), f"{file.name} names a folder of this run"


def test_node_keeps_what_it_compiled_for_the_next_synth() -> None:
    synthesised("dev")
    assert any(Path(os.environ["NODE_COMPILE_CACHE"]).iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("fleet", FLEET_NAMES)
@pytest.mark.parametrize("stack", ["Network", "Image", "Cell-1", "Edge", "Observability", "Spending"])
def test_cfn_lint_is_content(fleet: str, stack: str) -> None:
    assert lint_findings(templates(fleet)[stack]) == []


def test_prime_day_has_at_least_four_cells_alike_but_for_their_names() -> None:
    cells = {name: template for name, template in templates("prime-day").items() if name.startswith("Cell-")}
    assert len(cells) >= 4
    first = _without_names(cells["Cell-1"], "Cell-1")
    for name, template in cells.items():
        assert _without_names(template, name) == first
    tokens = [set(_TOKEN.findall(json.dumps(template))) for template in cells.values()]
    assert all(tokens)
    assert len(set.union(*tokens)) == sum(map(len, tokens)), "else EC2 would take one cell's reservation for another's"


def test_prime_day_s_processors_stand_in_for_chips_from_the_same_image() -> None:
    settings, stacks = FleetSettings.from_yaml(FLEETS / "prime-day.yaml"), templates("prime-day")
    (stands_in,) = [group for group in settings.groups if group.stands_in]
    cell = stacks["Cell-1"]
    found = {each["Properties"]["AutoScalingGroupName"]: each for each in resources(cell, GROUP).values()}
    processors = found["peakplan-prime-day-cell-1-cpu"]["Properties"]
    assert (processors["MinSize"], processors["MaxSize"]) == (str(stands_in.minimum), str(stands_in.maximum))
    templated = resources(cell, "AWS::EC2::LaunchTemplate").values()
    hosts = [each["Properties"]["LaunchTemplateData"] for each in templated]
    assert {json.dumps(each["ImageId"]) for each in hosts} == {json.dumps(told("MachineImageId"))}
    assert {each["InstanceType"] for each in hosts} == {group.instance_type for group in settings.groups}
    pools = {
        json.dumps(each["Properties"]["AutoScalingGroupName"]): each["Properties"]["MaxGroupPreparedCapacity"]
        for each in resources(cell, "AWS::AutoScaling::WarmPool").values()
    }
    assert stands_in.maximum in pools.values()
    assert '"standing in"' in json.dumps(stacks["Observability"]).replace("\\", "")


@pytest.mark.parametrize("fleet", FLEET_NAMES)
def test_cells_stand_alone(fleet: str) -> None:
    """No import from any stack, and no word of another cell: each template deploys beside the network's parameters."""
    cells = {name: json.dumps(each) for name, each in templates(fleet).items() if name.startswith("Cell-")}
    for name, text in cells.items():
        assert "Fn::ImportValue" not in text
        assert not [other for other in cells if other != name and f'{other.lower()}"' in text]


@pytest.mark.parametrize("fleet", FLEET_NAMES)
def test_templates_fit_cloudformation(fleet: str) -> None:
    for template in templates(fleet).values():
        assert len(json.dumps(template)) < 1_000_000
        assert len(template["Resources"]) <= 500


def test_people_can_tell_what_a_stack_and_its_resources_are() -> None:
    stacks = templates("prime-day")
    for template in stacks.values():
        assert template["Description"].startswith("Peakplan prime-day: ")
        assert template["Outputs"]
    wanted = {"peakplan:fleet": "prime-day", "peakplan:part": "cell-1", "cost-center": "peakplan"}
    for hosts in resources(stacks["Cell-1"], "AWS::EC2::LaunchTemplate").values():
        for made in hosts["Properties"]["LaunchTemplateData"]["TagSpecifications"]:
            assert {tag["Key"]: tag["Value"] for tag in made["Tags"]}.items() >= wanted.items()


def _without_names(template: Template, cell: str) -> list[str]:
    """A cell's resources without its name, nor the ids and digests that are made of it."""
    named = rf"{_TOKEN.pattern}|{cell}|{cell.replace('-', '')}\w*|peakplan\w+TrustStore\w+"
    texts = [json.dumps(resource) for resource in template["Resources"].values()]
    return sorted(re.sub(named, "cell", text, flags=re.IGNORECASE) for text in texts)
