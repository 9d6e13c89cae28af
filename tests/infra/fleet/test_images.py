"""A fleet of two architectures has two machine images; each group boots the one of its own."""

import pytest

from infra.constructs.image_components import component_parameters
from infra.fleet.images import image_of, images
from tests.infra.fleet.fleets import GRAVITON, dev_fleet

ALONE = {
    "groups": [GRAVITON["groups.2"] | {"instance_type": "c7g.4xlarge", "stands_in": False, "maximum": 9}],
    "traffic.plans_per_minute": 1000,
}


def test_each_group_boots_the_image_of_its_architecture() -> None:
    fleet = dev_fleet(GRAVITON)
    main, beside = images(fleet)
    assert [image_of(fleet, group) for group in fleet.groups] == [main, main, beside]
    assert (main.stack_parameter, beside.stack_parameter) == ("MachineImageId", "Arm64MachineImageId")
    assert beside.parameter == f"{main.parameter}-arm64"
    assert (main.baked_on.instance_type, beside.baked_on.instance_type) == ("inf2.xlarge", "c8g.4xlarge")
    assert "neuron" in main.container
    assert "neuron" not in beside.container


@pytest.mark.parametrize(("changes", "architecture"), [({}, "x86_64"), (ALONE, "arm64")], ids=["chips", "Graviton"])
def test_a_fleet_of_one_architecture_has_one_image(changes: dict[str, object], architecture: str) -> None:
    (image,) = images(dev_fleet(changes))
    assert (image.architecture, image.stack_parameter) == (architecture, "MachineImageId")


def test_nothing_is_compiled_for_processors_and_torch_runs_there() -> None:
    fleet = dev_fleet(GRAVITON)
    chips, processors = (component_parameters(fleet, image) for image in images(fleet))
    assert (chips["CHIPS"], processors["CHIPS"]) == ("inf2 trn1", "cpu")
    assert "PEAKPLAN_ENGINE=triton" in chips["SETTINGS"]
    assert "PEAKPLAN_ENGINE=torch" in processors["SETTINGS"]
