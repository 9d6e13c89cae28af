"""A release: one immutable machine image for each architecture of a fleet, whose tags say what it was made of."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.images import BOOT_SECONDS, COMMIT, FLEET, MANIFEST, MODEL_HASH, Image, images
from infra.fleet.settings import FleetSettings
from infra.operations.command import parameter


class ReleaseError(Exception):
    """A release that is missing or cannot be deployed. The message says what to do and is written for operators."""


@dataclass(frozen=True)
class Release:
    """One machine image and the tags that describe its contents.

    `companions` has its images for other architectures, by the parameter of a cell's stack that each belongs in.
    `boot_seconds` is the time within which its bake saw an instance ready; 0 where its tags do not say.
    """

    image_id: str
    commit: str
    model_hash: str
    manifest: dict[str, str]
    companions: Mapping[str, str] = field(default_factory=dict)
    boot_seconds: int = 0

    def __str__(self) -> str:
        named = " with ".join((self.image_id, *self.companions.values()))
        return f"{named} (commit {self.commit}, model {self.model_hash})"


def newest_release(settings: FleetSettings, ssm: Any, ec2: Any) -> Release:
    """Return the release that the image pipelines made last.

    Raise ReleaseError where there is none yet, where it has no tags of ours, or where only one of its images is made.
    """
    main, *others = images(settings)
    release = _release_of(settings, main, _newest(main.parameter, ssm), ec2)
    companions = {}
    for other in others:
        companion = _release_of(settings, other, _newest(other.parameter, ssm), ec2)
        if (companion.commit, companion.manifest) != (release.commit, release.manifest):
            raise ReleaseError(
                f"{companion}, in {other.parameter}, is not of the same sources as {release}, in {main.parameter}: one "
                "of them was baked without the other. Run peakplan fleet bake, then deploy"
            )
        companions[other.stack_parameter] = companion.image_id
    return whole(settings, replace(release, companions=companions))


def _newest(name: str, ssm: Any) -> str:
    if found := parameter(ssm, name):
        return str(found["Value"])
    raise ReleaseError(
        f"no machine image yet: the parameter {name} is written by the image pipeline. "
        "Run peakplan fleet bake, then deploy"
    )


def release_of(settings: FleetSettings, image_id: str, ec2: Any) -> Release:
    """Return the release that an image is, with the newest images for other architectures that are of its sources.

    Raise ReleaseError for an image that is gone or that has no release tags. A release from before the fleet had
    another architecture lacks the companion, which `whole` refuses.
    """
    main, *others = images(settings)
    release = _release_of(settings, main, image_id, ec2)
    companions = {}
    for other in others:
        tags = {FLEET: settings.name, COMMIT: release.commit, MODEL_HASH: release.model_hash}
        asked = [{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]
        found = ec2.describe_images(Owners=["self"], Filters=asked)["Images"]
        alike = [each for each in found if _fits(each, other) and _manifest(each) == release.manifest]
        if alike:
            companions[other.stack_parameter] = max(alike, key=lambda each: str(each["CreationDate"]))["ImageId"]
    return replace(release, companions=companions)


def whole(settings: FleetSettings, release: Release) -> Release:
    """Return the release if it has an image for every architecture of the fleet, and hosts have the time to boot it.

    Raise ReleaseError otherwise.
    """
    if settings.boot_seconds < release.boot_seconds:
        raise ReleaseError(
            f"{release} was ready within {release.boot_seconds} s where it was baked, and boot_seconds of the fleet "
            f"file is {settings.boot_seconds}: hosts could be abandoned before they are ready, again and again. Write "
            f"{release.boot_seconds}, or run peakplan fleet bake, which measures it"
        )
    for image in images(settings)[1:]:
        if image.stack_parameter not in release.companions:
            raise ReleaseError(
                f"{release} has no machine image for {image.architecture}, which {image.groups[0].instance_type} "
                "needs: run peakplan fleet bake at its commit"
            )
    return release


def companions_of(settings: FleetSettings, ec2: Any) -> Callable[[str], Mapping[str, str]]:
    """Return what finds the companions of a release; a fleet of one architecture asks for nothing."""
    if len(images(settings)) == 1:
        return lambda _: {}
    return lambda image_id: release_of(settings, image_id, ec2).companions


def _fits(described: Mapping[str, Any], image: Image) -> bool:
    return (described.get("Architecture") or image.architecture) == image.architecture


def _manifest(described: Mapping[str, Any]) -> dict[str, str]:
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", [])}
    return dict(json.loads(tags.get(MANIFEST, "{}")))


def _release_of(settings: FleetSettings, image: Image, image_id: str, ec2: Any) -> Release:
    try:
        found = ec2.describe_images(ImageIds=[image_id])["Images"]
    except ClientError as error:
        if "InvalidAMIID" not in error.response["Error"]["Code"]:
            raise
        found = []
    if not found:
        raise ReleaseError(f"{image_id}: no such machine image in {settings.region}; was it deregistered?")
    tags = {tag["Key"]: tag["Value"] for tag in found[0].get("Tags", [])}
    if missing := [name for name in (FLEET, COMMIT, MODEL_HASH, MANIFEST) if name not in tags]:
        raise ReleaseError(
            f"{image_id} has no tag {', '.join(missing)}: it is not of this project's image pipeline, and nobody could "
            "say what runs. Tag it by hand if you know"
        )
    if tags[FLEET] != settings.name:
        raise ReleaseError(f"{image_id} was made for fleet {tags[FLEET]}, not {settings.name}")
    if not _fits(found[0], image):
        raise ReleaseError(
            f"{image_id} is for {found[0]['Architecture']}: a release of this fleet is named by its image for "
            f"{image.architecture}"
        )
    boot_seconds = int(tags.get(BOOT_SECONDS, 0))
    return Release(image_id, tags[COMMIT], tags[MODEL_HASH], json.loads(tags[MANIFEST]), boot_seconds=boot_seconds)
