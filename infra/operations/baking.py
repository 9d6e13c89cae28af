"""`python -m infra.operations.baking FLEET -- CDK` bakes a release: a machine image of this checkout, or one for each
architecture of the fleet's processors.

It deploys what the image pipelines need (the stacks Network and Image), starts them, and waits until each image has
answered a plan and is in the parameter that deploys read, which takes the better part of an hour. The pipelines go on
when the command is ended. It is tested against moto, and has not run in a real account.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

from infra.fleet.images import images
from infra.fleet.settings import FleetSettings
from infra.operations.command import (
    UNDER,
    UNUSABLE,
    Call,
    Clients,
    Told,
    call,
    deploy_line,
    fleet_parser,
    operate,
    synthesis,
)
from infra.operations.deploy_lock import DeployLock, LockedError, held
from infra.operations.deployed_cell import Sleep, make_way, stack_of
from infra.operations.release import Release, ReleaseError, newest_release

LIMIT_SECONDS = 4 * 3600.0
POLL_SECONDS = 30.0
OVER_AND_DONE = ("AVAILABLE", "CANCELLED", "FAILED", "DEPRECATED", "DELETED")


class BakingError(Exception):
    """An image that was not made. The message says where to look and is written for operators."""


def pipelines_of(settings: FleetSettings, cloudformation: Any) -> list[str]:
    (stack,) = cloudformation.describe_stacks(StackName=stack_of(settings, "image"))["Stacks"]
    outputs = {each["OutputKey"]: str(each["OutputValue"]) for each in stack["Outputs"]}
    return [outputs[image.pipeline_output] for image in images(settings)]


def bake(settings: FleetSettings, clients: Clients, sleep: Sleep = time.sleep) -> Release:
    """Start the pipelines, wait for their images, and return the release. Raise BakingError, or ReleaseError."""
    builder = clients("imagebuilder")
    builds = [
        builder.start_image_pipeline_execution(imagePipelineArn=pipeline, clientToken=str(uuid4()))[
            "imageBuildVersionArn"
        ]
        for pipeline in pipelines_of(settings, clients("cloudformation"))
    ]
    end = time.monotonic() + LIMIT_SECONDS
    for build in builds:  # the builds run in parallel
        _wait(build, builder, end, sleep)
    return newest_release(settings, clients("ssm"), clients("ec2"))


def _wait(build: str, builder: Any, end: float, sleep: Sleep) -> None:
    """Wait until an image is made. Raise BakingError where it is not, or not before `end`."""
    before = ""
    while True:
        state = builder.get_image(imageBuildVersionArn=build)["image"]["state"]
        if state["status"] != before:
            before = state["status"]
            print(f"{build}: {before.lower()}", flush=True)
        if before in OVER_AND_DONE:
            break
        if time.monotonic() > end:
            raise BakingError(f"{build} is {before} for hours; see its log in CloudWatch, /aws/imagebuilder")
        sleep(POLL_SECONDS)
    if before != "AVAILABLE":
        reason = state.get("reason", "no reason given")
        raise BakingError(f"{build} is {before}: {reason}. Its log is in CloudWatch, /aws/imagebuilder")


def deploy_under(settings: FleetSettings, clients: Clients, deploy: Sequence[str], call: Call) -> int:
    """Deploy the stacks that cells and images need, and return the CLI's exit code."""
    for stack in UNDER:
        make_way(stack_of(settings, stack.lower()), clients("cloudformation"), clients("elbv2"))
    print(f"Deploying {', '.join(UNDER)}", flush=True)
    return call([*deploy, "--exclusively", *UNDER])


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; 3 where another shell changes the fleet."""
    given = fleet_parser(__doc__, cdk=True).parse_intermixed_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        with TemporaryDirectory(prefix=f"peakplan-{settings.name}-") as assembly:
            if code := call(synthesis(given.fleet, given.cdk, assembly)):
                return Told(data={"release": None}, code=code)
            with held(DeployLock(settings, "deploy", ssm=clients("ssm"), sts=clients("sts"))):
                if code := deploy_under(settings, clients, deploy_line(given.cdk, Path(assembly)), call):
                    return Told(data={"release": None}, code=code)
        release = bake(settings, clients)
        return Told(f"Release {release}", {"release": release.image_id, "companions": dict(release.companions)})

    return operate(given, act, {BakingError: 1, ReleaseError: UNUSABLE, LockedError: 3})


if __name__ == "__main__":
    sys.exit(main())
