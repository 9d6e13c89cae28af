"""What makes an empty account ready: the base image of exactly one name, a certificate, and a baked release."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from infra.fleet.images import images
from infra.operations.baking import BakingError, bake
from infra.operations.bootstrap import NoBaseImageError, base_image, keep_base_image
from infra.operations.certificate import import_into, issue
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.moto_new_account import BASE_IMAGE
from tests.infra.moto_server import MotoServer


def test_the_base_image_is_the_one_of_exactly_this_name_sdk_and_root(moto_server: MotoServer) -> None:
    """Beside it are an older one, other systems, frameworks and SDKs, and one with another root."""
    (image,) = images(dev_fleet())
    assert base_image(image, "us-east-1", moto_server.client("ec2"))["ImageId"] == BASE_IMAGE


def test_a_base_image_that_amazon_has_not_is_told_with_those_that_it_has(moto_server: MotoServer) -> None:
    (image,) = images(dev_fleet())
    with pytest.raises(NoBaseImageError, match=r"Neuron SDK 2\.27 on /dev/sda1") as told:
        base_image(replace(image, base_sdk="2.27"), "us-east-1", moto_server.client("ec2"))
    assert "(Ubuntu 24.04) 20260402, root /dev/xvda" in str(told.value)


def test_a_base_image_that_was_chosen_before_is_kept(moto_server: MotoServer) -> None:
    settings = dev_fleet({"machine_image.base_parameter": "/kept/base"})
    assert BASE_IMAGE in keep_base_image(settings, moto_server.client)
    moto_server.client("ssm").put_parameter(Name="/kept/base", Value="ami-mine", Overwrite=True)
    assert "is ami-mine already" in keep_base_image(settings, moto_server.client)


def test_a_certificate_is_for_every_name_and_its_successor_has_its_arn(moto_server: MotoServer, tmp_path: Path) -> None:
    settings = dev_fleet()
    issue(settings, tmp_path)
    arn = import_into(settings, tmp_path, moto_server.client)
    authority = (tmp_path / "authority.pem").read_bytes()
    issue(settings, tmp_path)
    assert import_into(settings, tmp_path, moto_server.client) == arn
    assert (tmp_path / "authority.pem").read_bytes() == authority, "callers go on trusting it"
    asked = ["-CAfile", "authority.pem", "-verify_hostname", "cell-1.plan.planner.internal", "planner.pem"]
    said = subprocess.run(["openssl", "verify", *asked], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.stdout == "planner.pem: OK\n", said.stderr
    found = moto_server.client("ssm").get_parameter(Name=settings.load_balancer.certificate_parameter)
    assert found["Parameter"]["Value"] == arn


class Builder:
    """An Image Builder whose build ends as it is told."""

    def __init__(self, *statuses: str) -> None:
        self._statuses = list(statuses)

    def start_image_pipeline_execution(self, **_: str) -> dict[str, str]:
        return {"imageBuildVersionArn": "arn:build"}

    def get_image(self, **_: str) -> object:
        status = self._statuses.pop(0)
        return {"image": {"state": {"status": status, "reason": "the plan was no plan"}}}


def test_an_image_that_does_not_answer_a_plan_is_no_release() -> None:
    outputs = [{"OutputKey": "PipelineArn", "OutputValue": "arn:pipeline"}]

    class Stacks:
        @staticmethod
        def describe_stacks(**_: str) -> object:
            return {"Stacks": [{"Outputs": outputs}]}

    clients = {"imagebuilder": Builder("BUILDING", "TESTING", "FAILED"), "cloudformation": Stacks()}
    slept: list[float] = []
    with pytest.raises(BakingError, match="FAILED: the plan was no plan"):
        bake(dev_fleet(), clients.__getitem__, slept.append)
    assert len(slept) == 2
