"""EC2 Image Builder as far as a bake asks it: its pipeline makes an image with the tags that the stack distributes.

moto has no Image Builder. A build runs as often as it is asked for, each look at it one status further; with
EMULATOR_BUILDS_AT_ONCE in the server's environment it is done at the first.
"""

import json
import os
import re
from typing import Any
from urllib.parse import parse_qs, urlparse
from uuid import uuid4

from moto.ec2 import ec2_backends

from tests.infra.moto_forwarding import Forwarded, Properties, client
from tests.infra.moto_new_services import REGION, Answer, add_service, answer

_ARN = f"arn:aws:imagebuilder:{REGION}:123456789012"
_ON_THE_WAY = () if "EMULATOR_BUILDS_AT_ONCE" in os.environ else ("PENDING", "BUILDING", "TESTING", "DISTRIBUTING")
_distributions: dict[str, Properties] = {}
_pipelines: dict[str, Properties] = {}
_builds: dict[str, dict[str, Any]] = {}


def _put_distribution(region: str, properties: Properties) -> Properties:
    del region
    arn = f"{_ARN}:distribution-configuration/{properties['Name']}"
    _distributions[arn] = properties
    return {"Arn": arn}


def _put_pipeline(region: str, properties: Properties) -> Properties:
    del region
    arn = f"{_ARN}:image-pipeline/{properties['Name']}"
    _pipelines[arn] = properties
    return {"Arn": arn}


def _gone(region: str, properties: Properties) -> Properties:
    del region
    _pipelines.pop(properties["Arn"], None)
    return {}


FORWARDED = (
    Forwarded("AWS::ImageBuilder::DistributionConfiguration", _put_distribution, _gone, ref="Arn"),
    Forwarded("AWS::ImageBuilder::ImagePipeline", _put_pipeline, _gone, ref="Arn"),
)


def _start(request: Any, full_url: str, headers: Any) -> Answer:
    del full_url, headers
    asked = json.loads(request.data)
    pipeline = _pipelines.get(asked["imagePipelineArn"])
    if pipeline is None:
        return answer({"message": "no such pipeline"}, 404)
    build = f"{_ARN}:image/{pipeline['Name']}/1.0.0/{len(_builds) + 1}"
    _builds[build] = {"pipeline": pipeline, "seen": 0}
    return answer({"clientToken": str(uuid4()), "imageBuildVersionArn": build})


def _get(request: Any, full_url: str, headers: Any) -> Answer:
    del request, headers
    (arn,) = parse_qs(urlparse(full_url).query)["imageBuildVersionArn"]
    build = _builds[arn]
    build["seen"] += 1
    if build["seen"] <= len(_ON_THE_WAY):
        status = _ON_THE_WAY[build["seen"] - 1]
    else:
        status = "AVAILABLE"
        if "image" not in build:
            build["image"] = _make_image(build["pipeline"])
    return answer({"image": {"arn": arn, "state": {"status": status}}})


def _make_image(pipeline: Properties) -> str:
    """What a pipeline does at its end: the image, its tags, and its id in the parameter."""
    (distribution,) = _distributions[pipeline["DistributionConfigurationArn"]]["Distributions"]
    configured = distribution["AmiDistributionConfiguration"]
    name = re.sub(r"\{\{.*\}\}", str(len(_builds)), configured["Name"])
    ec2 = client("ec2", REGION)
    image: str = ec2.register_image(Name=name, RootDeviceName="/dev/sda1")["ImageId"]
    if pipeline["Name"].endswith("-arm64"):  # moto's register_image knows no architecture
        ec2_backends["123456789012"][REGION].amis[image].architecture = "arm64"
    ec2.create_tags(
        Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in configured["AmiTags"].items()]
    )
    (parameter,) = distribution["SsmParameterConfigurations"]
    client("ssm", REGION).put_parameter(Name=parameter["ParameterName"], Value=image, Type="String", Overwrite=True)
    return image


def add_image_builder() -> None:
    """Make the service known to moto's server in this process."""
    add_service("imagebuilder", {"/StartImagePipelineExecution$": _start, "/GetImage$": _get})
