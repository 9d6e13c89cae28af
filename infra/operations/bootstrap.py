"""`python -m infra.operations.bootstrap FLEET -- CDK` prepares an empty account and region for a fleet.

It runs the CDK's own bootstrap, and puts the id of the base image into the parameter that the image pipeline reads:
Amazon's newest image of exactly the name in `machine_image.base_name`, whose description says the pinned Neuron SDK
and whose root is the device that hosts expect. A parameter that is there already is kept. It can be run again. It is
tested against moto, and has not run in a real account.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.parts import ROOT_DEVICE
from infra.fleet.settings import FleetSettings
from infra.operations.command import Clients, fleet_parser, operate


class NoBaseImageError(Exception):
    """No image of Amazon's is the one that the fleet pins. The message is written for operators."""


def base_image(settings: FleetSettings, ec2: Any) -> dict[str, Any]:
    """Return Amazon's newest image of the pinned name, SDK and root device. Raise NoBaseImageError if there is none.

    A filter by name alone also finds images of other systems, frameworks and SDKs, whose driver would refuse the model.
    """
    name, sdk = settings.machine_image.base_name, settings.model.sdk
    asked = [{"Name": "name", "Values": [f"{name} *"]}, {"Name": "state", "Values": ["available"]}]
    pages = ec2.get_paginator("describe_images").paginate(Owners=["amazon"], Filters=asked)
    dated = re.compile(re.escape(name) + r" \d{8}")
    pinned = re.compile(rf"Neuron SDK {re.escape(sdk)}(?!\d)")
    found = [image for page in pages for image in page["Images"] if dated.fullmatch(image["Name"])]
    right = [
        image
        for image in found
        if pinned.search(image.get("Description", "")) and image.get("RootDeviceName") == ROOT_DEVICE
    ]
    if not right:
        seen = "\n".join(
            f"  {each['Name']}, root {each.get('RootDeviceName')}: {each.get('Description')}" for each in found
        )
        raise NoBaseImageError(
            f"Amazon has no image {name!r} with Neuron SDK {sdk} on {ROOT_DEVICE} in {settings.region}"
            + (f"; of that name are\n{seen}\n" if found else ". ")
            + "Set machine_image.base_name, or put an image's id into "
            + f"the parameter {settings.machine_image.base_parameter} yourself"
        )
    return max(right, key=lambda image: str(image["CreationDate"]))


def keep_base_image(settings: FleetSettings, clients: Clients) -> str:
    """Write the base image's id to its parameter unless that has one; return what was done. Raise NoBaseImageError."""
    ssm, name = clients("ssm"), settings.machine_image.base_parameter
    try:
        there = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        image = base_image(settings, clients("ec2"))
        ssm.put_parameter(Name=name, Value=image["ImageId"], Type="String")
        return f"{name} is {image['ImageId']}: {image['Name']}"
    return f"{name} is {there} already; delete the parameter to have it chosen anew"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: that of `cdk bootstrap` where it fails."""
    parser = fleet_parser(__doc__)
    parser.add_argument("cdk", nargs="*", default=["cdk"], help="after --: the CDK CLI and its options")
    given = parser.parse_intermixed_args(words)

    def act(settings: FleetSettings, clients: Clients) -> int:
        account = clients("sts").get_caller_identity()["Account"]
        line = [*given.cdk, "bootstrap", f"aws://{account}/{settings.region}"]
        try:
            code = subprocess.run(line, check=False).returncode
        except FileNotFoundError:
            print(f"{line[0]}: no such command; `make bootstrap` installs the pinned CDK CLI", file=sys.stderr)
            return 127
        if code == 0:
            print(keep_base_image(settings, clients))
        return code

    return operate(given.fleet, act, {NoBaseImageError: 1})


if __name__ == "__main__":
    sys.exit(main())
