"""A release of two machine images: both are of the same sources, and go to every cell, and back, together."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.fleet.images import images
from infra.fleet.release_tags import release_tags
from infra.fleet.settings import FleetSettings
from infra.operations.baking import bake
from infra.operations.bootstrap import keep_base_image
from infra.operations.deployed_cell import DeployedCell, stack_of
from infra.operations.preflight import Verdict, _image
from infra.operations.release import ReleaseError, companions_of, newest_release, release_of, whole
from tests.infra.fleet.fleets import GRAVITON, dev_fleet
from tests.infra.moto_new_account import ARM64_IMAGE, UBUNTU
from tests.infra.moto_server import MotoServer
from tests.infra.operations.rollout_account import TEMPLATE, Account

TWO_IMAGES = TEMPLATE | {"Parameters": TEMPLATE["Parameters"] | {"Arm64MachineImageId": {"Type": "String"}}}


class Images:
    """EC2 with images of our own; moto's register_image knows no architecture."""

    def __init__(self, settings: FleetSettings) -> None:
        self._settings = settings
        self.made: list[dict[str, Any]] = []

    def bake(self, architecture: str, service: str, commit: str = "0123abcd") -> str:
        contents = {"service": service * 64, "model": "b" * 64, "host": "c" * 64}
        tags = release_tags(self._settings, contents, commit)
        made = {
            "ImageId": f"ami-{len(self.made):08}",
            "Architecture": architecture,
            "CreationDate": f"2027-01-{len(self.made) + 1:02}",
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
        }
        self.made.append(made)
        return str(made["ImageId"])

    def describe_images(self, *, ImageIds: Any = None, Owners: Any = None, Filters: Any = ()) -> Any:  # noqa: N803
        assert ImageIds or Owners == ["self"], "else all of the world's images would be ours"
        asked = {each["Name"].removeprefix("tag:"): each["Values"] for each in Filters}

        def is_asked(image: dict[str, Any]) -> bool:
            tags = {each["Key"]: each["Value"] for each in image["Tags"]}
            return (not ImageIds or image["ImageId"] in ImageIds) and all(tags[key] in asked[key] for key in asked)

        return {"Images": [image for image in self.made if is_asked(image)]}


class Parameters(dict[str, str]):
    """The Parameter Store with what pipelines wrote."""

    def get_parameter(self, *, Name: str) -> Any:  # noqa: N803
        return {"Parameter": {"Value": self[Name]}}


@pytest.fixture
def fleet() -> FleetSettings:
    return dev_fleet(GRAVITON)


@pytest.fixture
def baked(fleet: FleetSettings) -> Images:
    return Images(fleet)


def test_the_newest_release_is_the_pair_of_the_parameters(fleet: FleetSettings, baked: Images) -> None:
    main, beside = images(fleet)
    named = Parameters({main.parameter: baked.bake("x86_64", "a"), beside.parameter: baked.bake("arm64", "a")})
    release = newest_release(fleet, named, baked)
    assert (release.image_id, release.companions) == ("ami-00000000", {"Arm64MachineImageId": "ami-00000001"})
    assert "ami-00000000 with ami-00000001" in str(release)
    named[main.parameter] = baked.bake("x86_64", "d")
    with pytest.raises(ReleaseError, match="not of the same sources"):
        newest_release(fleet, named, baked)
    named[main.parameter] = named[beside.parameter]
    with pytest.raises(ReleaseError, match="is for arm64: a release of this fleet is named by its image for x86_64"):
        newest_release(fleet, named, baked)


def test_a_release_by_name_finds_its_newest_companion_of_the_same_sources(fleet: FleetSettings, baked: Images) -> None:
    older = baked.bake("x86_64", "a")
    for service, architecture in (("d", "arm64"), ("a", "arm64"), ("a", "arm64"), ("a", "x86_64")):
        baked.bake(architecture, service)
    baked.bake("arm64", "a", commit="another")
    assert release_of(fleet, older, baked).companions == {"Arm64MachineImageId": "ami-00000003"}


def test_a_release_from_before_the_fleet_had_graviton_is_not_deployed(fleet: FleetSettings, baked: Images) -> None:
    older = release_of(fleet, baked.bake("x86_64", "a"), baked)
    assert older.companions == {}
    with pytest.raises(
        ReleaseError, match=r"no machine image for arm64, which c8g\.4xlarge needs: run peakplan fleet bake"
    ):
        whole(fleet, older)
    assert whole(dev_fleet(), older) is older


def test_preflight_names_every_image_that_lacks(fleet: FleetSettings, moto_server: MotoServer) -> None:
    machine = fleet.machine_image.model_copy(
        update={"parameter": "/imagebuilder/two", "base_parameter": "/two/base", "arm64_base_parameter": "/two/arm64"}
    )
    found = list(_image(fleet.model_copy(update={"machine_image": machine}), moto_server.client))
    assert [(each.verdict, each.what.rpartition("parameter ")[2].partition(" ")[0]) for each in found] == [
        (Verdict.LACKS, "/two/base"),
        (Verdict.LACKS, "/two/arm64"),
        (Verdict.NOTE, "/imagebuilder/two"),
        (Verdict.NOTE, "/imagebuilder/two-arm64"),
    ]
    assert "arm64 base image" in found[1].remedy


def test_a_deploy_gives_each_stack_both_images_and_a_return_takes_both_back(account: Account) -> None:
    pairs = {"ami-00000001": "ami-0000000a", "ami-00000002": "ami-0000000b"}
    api, name = account.client("cloudformation"), stack_of(account.settings, "cell-1")
    given = {"MachineImageId": "ami-00000002", "Arm64MachineImageId": "ami-0000000b"}
    api.create_stack(
        StackName=name,
        TemplateBody=json.dumps(TWO_IMAGES),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
    )
    cell = DeployedCell("cell-1", name, api, lambda _: None, lambda image: {"Arm64MachineImageId": pairs[image]})
    cell.return_to("ami-00000001")
    found = account.parameters("cell-1")
    assert (found["MachineImageId"], found["Arm64MachineImageId"]) == ("ami-00000001", "ami-0000000a")
    before = DeployedCell("cell-1", name, api, lambda _: None)  # of a release that has no such image
    before.return_to("ami-00000002")
    found = account.parameters("cell-1")
    assert (found["MachineImageId"], found["Arm64MachineImageId"]) == ("ami-00000002", "ami-0000000a")


def test_a_stack_from_before_is_asked_for_no_parameter_that_it_lacks(account: Account) -> None:
    api, name = account.client("cloudformation"), stack_of(account.settings, "cell-1")
    image = [{"ParameterKey": "MachineImageId", "ParameterValue": "ami-00000002"}]
    api.create_stack(StackName=name, TemplateBody=json.dumps(TEMPLATE), Parameters=image)
    cell = DeployedCell("cell-1", name, api, lambda _: None, lambda _: {"Arm64MachineImageId": "ami-0000000a"})
    asked = {each["ParameterKey"] for each in cell.parameters_for("ami-00000001")}
    assert asked == {"MachineImageId", "RefreshSpeed", "Certificate"}


def test_a_fleet_of_one_architecture_looks_for_no_companion() -> None:
    assert companions_of(dev_fleet(), ec2=None)("ami-00000001") == {}


def test_both_pipelines_are_started_before_either_is_waited_for(fleet: FleetSettings, baked: Images) -> None:
    main, beside = images(fleet)
    said: list[str] = []
    named = Parameters()

    class Builder:
        @staticmethod
        def start_image_pipeline_execution(*, imagePipelineArn: str, clientToken: str) -> Any:  # noqa: N803
            assert clientToken
            said.append(f"start {imagePipelineArn}")
            return {"imageBuildVersionArn": imagePipelineArn.replace("pipeline", "build")}

        @staticmethod
        def get_image(*, imageBuildVersionArn: str) -> Any:  # noqa: N803
            said.append(f"look {imageBuildVersionArn}")
            image = main if imageBuildVersionArn == "build-x86" else beside
            named[image.parameter] = baked.bake(image.architecture, "a")
            return {"image": {"state": {"status": "AVAILABLE"}}}

    outputs = [
        {"OutputKey": "PipelineArn", "OutputValue": "pipeline-x86"},
        {"OutputKey": "Arm64PipelineArn", "OutputValue": "pipeline-arm"},
    ]

    class Stacks:
        @staticmethod
        def describe_stacks(**_: str) -> Any:
            return {"Stacks": [{"Outputs": outputs}]}

    clients = {"imagebuilder": Builder, "cloudformation": Stacks, "ssm": named, "ec2": baked}
    release = bake(fleet, clients.__getitem__)
    assert said == ["start pipeline-x86", "start pipeline-arm", "look build-x86", "look build-arm"]
    assert release.companions == {"Arm64MachineImageId": "ami-00000001"}


@pytest.fixture
def no_parameters(moto_server: MotoServer) -> Iterator[FleetSettings]:
    machine = {
        "machine_image.base_parameter": "/graviton/base",
        "machine_image.arm64_base_parameter": "/graviton/arm64",
    }
    yield dev_fleet(GRAVITON | machine)
    moto_server.client("ssm").delete_parameters(Names=list(machine.values()))


def test_bootstrap_chooses_canonicals_image_for_graviton(no_parameters: FleetSettings, moto_server: MotoServer) -> None:
    said = keep_base_image(no_parameters, moto_server.client)
    assert f"/graviton/arm64 is {ARM64_IMAGE}: {UBUNTU}-2026" in said.splitlines()[1]
