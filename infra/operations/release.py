"""A release: one immutable machine image, whose tags say what it was made of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.release_tags import COMMIT, FLEET, MANIFEST, MODEL_HASH
from infra.fleet.settings import FleetSettings


class ReleaseError(Exception):
    """A release that is missing or cannot be deployed. The message says what to do and is written for operators."""


@dataclass(frozen=True)
class Release:
    """One machine image and the tags that describe its contents."""

    image_id: str
    commit: str
    model_hash: str
    manifest: dict[str, str]

    def __str__(self) -> str:
        return f"{self.image_id} (commit {self.commit}, model {self.model_hash})"


def newest_release(settings: FleetSettings, ssm: Any, ec2: Any) -> Release:
    """Return the release that the image pipeline made last.

    Raise ReleaseError where there is none yet, or where it has no tags of ours.
    """
    name = settings.machine_image.parameter
    try:
        image_id = str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        raise ReleaseError(
            f"no machine image yet: the parameter {name} is written by the image pipeline. Run make bake, then deploy"
        ) from error
    return release_of(settings, image_id, ec2)


def release_of(settings: FleetSettings, image_id: str, ec2: Any) -> Release:
    """Return the release that an image is. Raise ReleaseError for an image that is gone or that has no release tags."""
    try:
        images = ec2.describe_images(ImageIds=[image_id])["Images"]
    except ClientError as error:
        if "InvalidAMIID" not in error.response["Error"]["Code"]:
            raise
        images = []
    if not images:
        raise ReleaseError(f"{image_id}: no such machine image in {settings.region}; was it deregistered?")
    tags = {tag["Key"]: tag["Value"] for tag in images[0].get("Tags", [])}
    if missing := [name for name in (FLEET, COMMIT, MODEL_HASH, MANIFEST) if name not in tags]:
        raise ReleaseError(
            f"{image_id} has no tag {', '.join(missing)}: it is not of this project's image pipeline, and nobody could "
            "say what runs. Tag it by hand if you know"
        )
    if tags[FLEET] != settings.name:
        raise ReleaseError(f"{image_id} was made for fleet {tags[FLEET]}, not {settings.name}")
    return Release(image_id, tags[COMMIT], tags[MODEL_HASH], json.loads(tags[MANIFEST]))
