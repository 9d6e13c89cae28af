"""The machine images of a release: one for each architecture that the fleet's processors have.

A release is named by one of them, the main one, which is for x86_64 wherever a group has that. Both are baked of the
same sources, and their tags say so (release_tags.py). Everything that differs between the two is here.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.fleet.instances import Architecture
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings


@dataclass(frozen=True)
class Image:
    """One architecture's machine image: where it is named, and what it is baked on."""

    architecture: Architecture
    base_parameter: str  # of SSM, with the id of the image that it is baked on
    base_name: str
    base_owner: str  # an account, or an alias of one
    base_sdk: str | None  # that the base's description must name
    container: str  # that the service's is built on
    parameter: str  # of SSM, with the id of the newest one
    stack_parameter: str  # of a cell's stack, with the id that its hosts boot
    suffix: str  # of the names and outputs of what bakes it
    groups: tuple[Group, ...]

    @property
    def baked_on(self) -> Group:
        """The group whose instance type builds the image and proves what was compiled for its chip."""
        return next((group for group in self.groups if group.engine == "neuron"), self.groups[0])

    @property
    def pipeline_output(self) -> str:
        """The output of the Image stack that names its pipeline."""
        return f"{self.suffix.capitalize()}PipelineArn"


MAIN, COMPANION = "MachineImageId", "Arm64MachineImageId"
# In their place: what the image pipeline made last, whose parameter NEWEST_OF names. Checks of templates want an id.
NEWEST, NEWEST_OF = "ami-lastbake", "Newest{}"
# The account of Canonical, by which its images are told from others of the same name (Canonical, "Find
# Ubuntu images on AWS").
CANONICAL = "099720109477"


def images(settings: FleetSettings) -> tuple[Image, ...]:
    """Return the images of the fleet's groups, the main one first."""
    needed = {group.instance.architecture for group in settings.groups}
    order: tuple[Architecture, ...] = ("x86_64", "arm64")
    found = [architecture for architecture in order if architecture in needed]
    return tuple(_image(settings, architecture, is_main=architecture == found[0]) for architecture in found)


def image_of(settings: FleetSettings, group: Group) -> Image:
    """Return the image that the hosts of a group boot."""
    return next(image for image in images(settings) if group in image.groups)


def _image(settings: FleetSettings, architecture: Architecture, *, is_main: bool) -> Image:
    machine = settings.machine_image
    groups = tuple(group for group in settings.groups if group.instance.architecture == architecture)
    stack_parameter = MAIN if is_main else COMPANION
    if architecture == "x86_64":
        return Image(
            architecture="x86_64", base_parameter=machine.base_parameter, base_name=machine.base_name,
            base_owner="amazon", base_sdk=settings.model.sdk, container=settings.model.image,
            parameter=machine.parameter, stack_parameter=stack_parameter, suffix="", groups=groups,
        )  # fmt: skip
    return Image(
        architecture="arm64", base_parameter=machine.arm64_base_parameter, base_name=machine.arm64_base_name,
        base_owner=CANONICAL, base_sdk=None, container=machine.arm64_container,
        parameter=f"{machine.parameter}-arm64", stack_parameter=stack_parameter, suffix="arm64", groups=groups,
    )  # fmt: skip
