"""The machine images of a release: one for each architecture that the fleet's processors have.

A release is named by one of them, the main one, which is for x86_64 wherever a group has that. Both are baked of the
same sources, and their tags say so. Everything that differs between the two is here.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from infra.fleet.instances import Architecture
from infra.fleet.parts import REPOSITORY_ROOT, Group
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


FLEET, MODEL, COMMIT, MODEL_HASH, MANIFEST, BOOT_SECONDS = (
    f"peakplan:{name}" for name in ("fleet", "model", "commit", "model-hash", "manifest", "boot-seconds")
)
_HASH = 12  # of the 64 hexadecimal digits of a content's hash; a tag has 256 characters


def release_tags(settings: FleetSettings, contents: Mapping[str, str], commit: str) -> dict[str, str]:
    """Return the tags of an image made at `commit` of `contents` (the content hashes of service, model and host)."""
    manifest = {name: digest[:_HASH] for name, digest in sorted(contents.items())} | {"sdk": settings.model.sdk}
    return {
        FLEET: settings.name,
        MODEL: settings.model.id,
        COMMIT: commit,
        MODEL_HASH: contents["model"][:_HASH],
        MANIFEST: json.dumps(manifest, separators=(",", ":")),
        BOOT_SECONDS: str(settings.boot_seconds),  # within which the bake saw a fresh instance ready, or it failed
    }


def commit() -> str:
    """Return the checkout's commit, with -dirty where files differ from it.

    Where there is no git, PEAKPLAN_COMMIT gives the commit.
    """
    if told := os.environ.get("PEAKPLAN_COMMIT"):
        return told
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=REPOSITORY_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()
