"""Preparing an account and a release: base images, a certificate, baked images of one or two architectures."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.fleet.images import images, release_tags
from infra.fleet.settings import FleetSettings
from infra.fleet.shopper_events import ShopperEvents, key_parameter
from infra.operations.baking import BakingError, bake
from infra.operations.bootstrap import NoBaseImageError, base_image, keep_base_image
from infra.operations.certificate import import_into, issue
from infra.operations.deployed_cell import DeployedCell, stack_of
from infra.operations.deployment_state import DeploymentState, delete_key, make_key
from infra.operations.preflight import Verdict, _image
from infra.operations.release import ReleaseError, companions_of, newest_release, release_of, whole
from tests.infra.fleet.fleets import GRAVITON, dev_fleet
from tests.infra.moto_patches import ARM64_IMAGE, BASE_IMAGE, UBUNTU
from tests.infra.moto_server import MotoServer
from tests.infra.operations.rollout_account import TEMPLATE, Account


def test_the_base_image_is_the_one_of_exactly_this_name_sdk_and_root(moto_server: MotoServer) -> None:
    """Beside it are an older one, other systems, frameworks and SDKs, and one with another root.

    One that Amazon has not is told with those that it has.
    """
    (image,) = images(dev_fleet())
    assert base_image(image, "us-east-1", moto_server.client("ec2"))["ImageId"] == BASE_IMAGE
    with pytest.raises(NoBaseImageError, match=r"Neuron SDK 2\.27 on /dev/sda1") as told:
        base_image(replace(image, base_sdk="2.27"), "us-east-1", moto_server.client("ec2"))
    assert "(Ubuntu 24.04) 20260402, root /dev/xvda" in str(told.value)


def test_bootstrap_keeps_a_base_image_that_was_chosen_before_and_chooses_canonicals_for_graviton(
    moto_server: MotoServer,
) -> None:
    settings = dev_fleet({"machine_image.base_parameter": "/kept/base"})
    assert BASE_IMAGE in keep_base_image(settings, moto_server.client)
    moto_server.client("ssm").put_parameter(Name="/kept/base", Value="ami-mine", Overwrite=True)
    assert "is ami-mine already" in keep_base_image(settings, moto_server.client)
    machine = {"machine_image.base_parameter": "/graviton/base", "machine_image.arm64_base_parameter": "/graviton/arm"}
    said = keep_base_image(dev_fleet(GRAVITON | machine), moto_server.client)
    assert f"/graviton/arm is {ARM64_IMAGE}: {UBUNTU}-2026" in said.splitlines()[1]


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


def stacks(**outputs: str) -> Any:
    """CloudFormation with one stack, of these outputs."""
    found = {"Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]}
    return SimpleNamespace(describe_stacks=lambda **_: {"Stacks": [found]})


def test_an_image_that_does_not_answer_a_plan_is_no_release() -> None:
    statuses, slept = ["BUILDING", "TESTING", "FAILED"], list[float]()
    builder = SimpleNamespace(
        start_image_pipeline_execution=lambda **_: {"imageBuildVersionArn": "arn:build"},
        get_image=lambda **_: {"image": {"state": {"status": statuses.pop(0), "reason": "the plan was no plan"}}},
    )
    clients = {"imagebuilder": builder, "cloudformation": stacks(PipelineArn="arn:pipeline")}
    with pytest.raises(BakingError, match="FAILED: the plan was no plan"):
        bake(dev_fleet(), clients.__getitem__, slept.append)
    assert len(slept) == 2


def test_a_release_is_what_its_image_s_tags_say(account: Account) -> None:
    image, ec2 = account.image(), account.client("ec2")
    account.client("ssm").put_parameter(
        Name=account.settings.machine_image.parameter, Value=image, Type="String", Overwrite=True
    )
    release = newest_release(account.settings, account.client("ssm"), ec2)
    assert (release.image_id, release.commit, release.model_hash) == (image, "0123abcd", "b" * 12)
    assert release.manifest["service"] == "a" * 12
    for settings, other, why in (
        (dev_fleet(), image, "was made for fleet"),
        (account.settings, "ami-12c6146b", "has no tag peakplan:fleet"),
        (account.settings, "ami-0123456789abcdef0", "no such machine image"),
    ):
        with pytest.raises(ReleaseError, match=why):
            release_of(settings, other, ec2)
    with pytest.raises(ReleaseError, match="no machine image yet"):
        newest_release(dev_fleet({"machine_image.parameter": "/imagebuilder/none"}), account.client("ssm"), ec2)


def test_a_fleet_is_refused_a_release_that_its_bake_did_not_see_ready_in_time(account: Account) -> None:
    """A rollback reads releases, too, and is not refused."""
    image, ec2 = account.image(), account.client("ec2")
    release = release_of(account.settings, image, ec2)
    assert whole(account.settings, release) == release
    hasty = account.settings.model_copy(update={"boot_seconds": account.settings.boot_seconds - 1})
    with pytest.raises(ReleaseError, match=f"Write {account.settings.boot_seconds}, or run peakplan fleet bake"):
        whole(hasty, release_of(hasty, image, ec2))
    ec2.delete_tags(Resources=[image], Tags=[{"Key": "peakplan:boot-seconds"}])
    assert whole(hasty, release_of(hasty, image, ec2)).boot_seconds == 0, "baked before images said it"


def test_a_state_stays_within_a_parameter() -> None:
    state = DeploymentState()
    for number in range(20):
        state.begin(f"ami-{number:017x}", "0" * 16, "0" * 12)
        for cell in range(1, 16):
            state.sent(f"cell-{cell}", f"ami-{number:017x}")
        state.reject(f"ami-{number:017x}")
    assert len(state.model_dump_json(exclude_defaults=True)) < 4096


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
    assert companions_of(dev_fleet(), ec2=None)("ami-00000001") == {}, "a fleet of one architecture looks for none"


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


def cell_of(account: Account, template: dict[str, Any], **given: str) -> tuple[str, Any]:
    """A cell's stack, and the API that has it."""
    api, name = account.client("cloudformation"), stack_of(account.settings, "cell-1")
    parameters = [{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()]
    api.create_stack(StackName=name, TemplateBody=json.dumps(template), Parameters=parameters)
    return name, api


def test_a_deploy_gives_each_stack_both_images_and_a_return_takes_both_back(account: Account) -> None:
    def returned(cell: DeployedCell, image: str) -> tuple[str, str]:
        cell.return_to(image)
        found = account.parameters("cell-1")
        return found["MachineImageId"], found["Arm64MachineImageId"]

    pairs = {"ami-00000001": "ami-0000000a", "ami-00000002": "ami-0000000b"}
    of = cell_of(account, TWO_IMAGES, MachineImageId="ami-00000002", Arm64MachineImageId="ami-0000000b")
    cell = DeployedCell("cell-1", *of, lambda _: None, lambda image: {"Arm64MachineImageId": pairs[image]})
    assert returned(cell, "ami-00000001") == ("ami-00000001", "ami-0000000a")
    before = DeployedCell("cell-1", *of, lambda _: None)  # of a release that has no such image
    assert returned(before, "ami-00000002") == ("ami-00000002", "ami-0000000a")


def test_a_stack_from_before_is_asked_for_no_parameter_that_it_lacks(account: Account) -> None:
    of = cell_of(account, TEMPLATE, MachineImageId="ami-00000002")
    cell = DeployedCell("cell-1", *of, lambda _: None, lambda _: {"Arm64MachineImageId": "ami-0000000a"})
    asked = {each["ParameterKey"] for each in cell.parameters_for("ami-00000001")}
    assert asked == {"MachineImageId", "RefreshSpeed", "Certificate"}


def test_both_pipelines_are_started_before_either_is_waited_for(fleet: FleetSettings, baked: Images) -> None:
    main, beside = images(fleet)
    said: list[str] = []
    named = Parameters()

    def start(*, imagePipelineArn: str, clientToken: str) -> Any:  # noqa: N803
        assert clientToken
        said.append(f"start {imagePipelineArn}")
        return {"imageBuildVersionArn": imagePipelineArn.replace("pipeline", "build")}

    def look(*, imageBuildVersionArn: str) -> Any:  # noqa: N803
        said.append(f"look {imageBuildVersionArn}")
        image = main if imageBuildVersionArn == "build-x86" else beside
        named[image.parameter] = baked.bake(image.architecture, "a")
        return {"image": {"state": {"status": "AVAILABLE"}}}

    builder = SimpleNamespace(start_image_pipeline_execution=start, get_image=look)
    stack = stacks(PipelineArn="pipeline-x86", Arm64PipelineArn="pipeline-arm")
    clients = {"imagebuilder": builder, "cloudformation": stack, "ssm": named, "ec2": baked}
    release = bake(fleet, clients.__getitem__)
    assert said == ["start pipeline-x86", "start pipeline-arm", "look build-x86", "look build-arm"]
    assert release.companions == {"Arm64MachineImageId": "ami-00000001"}


def test_a_deploy_makes_the_key_once_and_only_where_it_is_needed(account: Account) -> None:
    ssm = account.client("ssm")
    assert not make_key(account.settings, ssm)
    settings = account.settings.model_copy(update={"shopper_events": ShopperEvents(enabled=True)})
    assert make_key(settings, ssm)

    asked = {"Name": key_parameter(settings.name), "WithDecryption": True}
    made = ssm.get_parameter(**asked)["Parameter"]
    assert (made["Type"], len(made["Value"])) == ("SecureString", 64)
    assert not make_key(settings, ssm)
    assert ssm.get_parameter(**asked)["Parameter"]["Value"] == made["Value"]
    delete_key(settings, ssm)
    delete_key(settings, ssm)
    with pytest.raises(ssm.exceptions.ParameterNotFound):
        ssm.get_parameter(**asked)
