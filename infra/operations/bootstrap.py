"""`python -m infra.operations.bootstrap FLEET -- CDK` prepares an empty account and region for a fleet.

It runs the CDK's own bootstrap, and puts the id of each base image into the parameter that its image pipeline reads:
Amazon's newest image of exactly the name in `machine_image.base_name`, whose description says the pinned Neuron SDK
and whose root is the device that hosts expect; for c7g and c8g, Canonical's of the name in `arm64_base_name`. A
parameter that is there already is kept. It can be run again. It is tested against moto, and has not run in a real
account.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from infra.fleet.images import Image, images
from infra.fleet.parts import ROOT_DEVICE
from infra.fleet.settings import FleetSettings
from infra.operations.command import Clients, Told, fleet_parser, operate, parameter


class NoBaseImageError(Exception):
    """No public image is the one that the fleet pins. The message is written for operators."""


def base_image(image: Image, region: str, ec2: Any) -> dict[str, Any]:
    """Return the newest image of the pinned name, SDK and root device.

    Raise NoBaseImageError if there is none. A filter by name alone also finds images of other systems, frameworks and
    SDKs, whose driver would refuse the model.
    """
    asked = [{"Name": "name", "Values": [f"{image.base_name}*"]}, {"Name": "state", "Values": ["available"]}]
    pages = ec2.get_paginator("describe_images").paginate(Owners=[image.base_owner], Filters=asked)
    dated = re.compile(re.escape(image.base_name) + r"[ -]\d{8}(\.\d+)?")
    pinned = re.compile(rf"Neuron SDK {re.escape(image.base_sdk)}(?!\d)" if image.base_sdk else "")
    found = [each for page in pages for each in page["Images"] if dated.fullmatch(each["Name"])]
    right = [
        each
        for each in found
        if pinned.search(each.get("Description", "")) and each.get("RootDeviceName") == ROOT_DEVICE
    ]
    if not right:
        seen = "\n".join(
            f"  {each['Name']}, root {each.get('RootDeviceName')}: {each.get('Description')}" for each in found
        )
        sdk = f" with Neuron SDK {image.base_sdk}" if image.base_sdk else ""
        setting = "base_name" if image.architecture == "x86_64" else "arm64_base_name"
        raise NoBaseImageError(
            f"{image.base_owner} has no image {image.base_name!r}{sdk} on {ROOT_DEVICE} in {region}"
            + (f"; of that name are\n{seen}\n" if found else ". ")
            + f"Set machine_image.{setting}, or put an image's id into the parameter {image.base_parameter} yourself"
        )
    return max(right, key=lambda each: str(each["CreationDate"]))


def keep_base_image(settings: FleetSettings, clients: Clients) -> str:
    """Write each base image's id to its parameter unless that has one; return what was done. Raise NoBaseImageError."""
    return "\n".join(_kept(image, settings.region, clients) for image in images(settings))


def _kept(image: Image, region: str, clients: Clients) -> str:
    ssm, name = clients("ssm"), image.base_parameter
    if there := parameter(ssm, name):
        return f"{name} is {there['Value']} already; delete the parameter to have it chosen anew"
    base = base_image(image, region, clients("ec2"))
    ssm.put_parameter(Name=name, Value=base["ImageId"], Type="String")
    return f"{name} is {base['ImageId']}: {base['Name']}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: that of `cdk bootstrap` where it fails."""
    given = fleet_parser(__doc__, cdk=True).parse_intermixed_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        account = clients("sts").get_caller_identity()["Account"]
        line = [*given.cdk, "bootstrap", f"aws://{account}/{settings.region}"]
        try:
            code = subprocess.run(line, check=False).returncode
        except FileNotFoundError:
            print(
                f"{line[0]}: no such command; `peakplan fleet bootstrap` installs the pinned CDK CLI", file=sys.stderr
            )
            return Told(code=127)
        if code:
            return Told(data={"bootstrapped": False}, code=code)
        kept = keep_base_image(settings, clients)
        return Told(kept, {"bootstrapped": True, "base_images": kept.splitlines()})

    return operate(given, act, {NoBaseImageError: 1})


if __name__ == "__main__":
    sys.exit(main())
