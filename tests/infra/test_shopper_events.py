"""One line of a fleet file has every host keep shoppers' events, and gathers them in a bucket."""

import json
from pathlib import Path
from typing import Any

import pytest

from infra.constructs.host import user_data
from infra.constructs.shopper_events import events_environment
from infra.fleet.cost import volume_gib
from infra.fleet.settings import FleetSettings
from infra.fleet.shopper_events import FILE_MEGABYTES, FILES, KINDS, ShopperEvents, key_parameter, stream_name
from infra.operations.deployment_state import delete_key, make_key
from service.settings import Settings
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.operations.rollout_account import Account
from tests.infra.synthesis import locked, only, resources

FIREHOSE = "AWS::KinesisFirehose::DeliveryStream"


def statements(template: dict[str, Any]) -> str:
    return json.dumps(
        [each["Properties"]["PolicyDocument"] for each in resources(template, "AWS::IAM::Policy").values()]
    )


@pytest.mark.slow  # a fleet through Node
def test_a_fleet_with_events_and_a_bucket() -> None:
    found = locked()
    cell, over = found["Cell-1"], found["Observability"]
    for launched in resources(cell, "AWS::EC2::LaunchTemplate").values():
        data = json.dumps(launched["Properties"]["LaunchTemplateData"]["UserData"])
        assert "PEAKPLAN_OUTCOMES_DIR=/var/lib/peakplan/outcomes" in data
        assert "PEAKPLAN_OUTCOMES_FIREHOSE=arn:" in data
        assert "PEAKPLAN_EXPERIMENT_NAME=autumn" in data
        assert "PEAKPLAN_EXPERIMENT_ARMS=control=50,2=30,rules=20" in data
    assert f"parameter{key_parameter('dev')}" in statements(cell)
    assert "firehose:PutRecordBatch" in statements(cell)
    reached = json.dumps(resources(found["Network"], "AWS::EC2::VPCEndpoint"))
    assert "kinesis-firehose" in reached
    assert "ssm:GetParameter" in reached
    stream = only(over, FIREHOSE)
    assert stream["DeliveryStreamName"] == stream_name("dev")
    kept = over["Resources"][stream["ExtendedS3DestinationConfiguration"]["BucketARN"]["Fn::GetAtt"][0]]["Properties"]
    assert kept["LifecycleConfiguration"]["Rules"][0]["ExpirationInDays"] == 40
    assert all(kept["PublicAccessBlockConfiguration"].values())


def test_the_service_reads_what_a_host_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = dev_fleet({"shopper_events": {"enabled": True}})
    told = events_environment(fleet)
    assert "PEAKPLAN_OUTCOMES_DIR=/var/lib/peakplan/outcomes" in user_data(told).render()
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    outcomes = Settings().outcomes
    assert (str(outcomes.dir), outcomes.files) == ("/var/lib/peakplan/outcomes", 64)
    assert events_environment(dev_fleet({})) == {}
    most_gigabytes = len(KINDS) * (FILES + 1) * FILE_MEGABYTES / 1000
    assert most_gigabytes < min(volume_gib(fleet, group) for group in fleet.groups) / 4, "the image has the rest"


def test_an_experiment_of_the_fleet_file_is_each_host_s_and_its_arms_keep_their_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The file's order is the clients': another one would put shoppers into other arms than the client says."""
    (tmp_path / "fleet.yaml").write_text(
        Path("infra/fleets/prime-day-small.yaml").read_text("utf-8")
        + "\nshopper_events:\n  enabled: true\n  experiment:\n    name: autumn\n"
        + "    arms: {routing-off: 30, control: 50, 2: 20}\n".replace("2:", "'2':"),
        encoding="utf-8",
    )
    told = events_environment(FleetSettings.from_yaml(tmp_path / "fleet.yaml"))
    assert "PEAKPLAN_EXPERIMENT_ARMS=routing-off=30,control=50,2=20" in user_data(told).render()
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    experiment = Settings().experiment
    assert (experiment.name, list(experiment.shares.items())) == (
        "autumn",
        [("routing-off", 30), ("control", 50), ("2", 20)],
    )


def test_a_deploy_makes_the_key_once_and_only_where_it_is_needed(account: Account) -> None:
    ssm = account.client("ssm")
    assert not make_key(account.settings, ssm)
    settings = account.settings.model_copy(update={"shopper_events": ShopperEvents(enabled=True)})
    assert make_key(settings, ssm)

    def key() -> dict[str, Any]:
        found: dict[str, Any] = ssm.get_parameter(Name=key_parameter(settings.name), WithDecryption=True)["Parameter"]
        return found

    made = key()
    assert (made["Type"], len(made["Value"])) == ("SecureString", 64)
    assert not make_key(settings, ssm)
    assert key()["Value"] == made["Value"]
    delete_key(settings, ssm)
    delete_key(settings, ssm)
    with pytest.raises(ssm.exceptions.ParameterNotFound):
        key()
