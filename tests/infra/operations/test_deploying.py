"""A deploy marks its cell, and stops where the cell is hurt."""

import sys
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.fleet.alarms import alarm_name
from infra.operations import deploying
from tests.infra.moto_server import MotoServer
from tests.processes import eventually

FLEET = "marked"
SUCCEED, FAIL = [sys.executable, "-c", ""], [sys.executable, "-c", "raise SystemExit(7)"]


@pytest.fixture
def cloudwatch(moto_server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    return moto_server.client("cloudwatch")


def put_health(cloudwatch: Any, cell: str, state: str) -> None:
    name = alarm_name(FLEET, cell, "deploy-health")
    cloudwatch.put_metric_alarm(
        AlarmName=name, ComparisonOperator="GreaterThanThreshold", EvaluationPeriods=1, Threshold=0,
        Namespace="Peakplan", MetricName="SloBad", Period=60, Statistic="Sum",
    )  # fmt: skip
    cloudwatch.set_alarm_state(AlarmName=name, StateValue=state, StateReason="a test", StateReasonData="{}")


def run(cell: str, *command: str) -> int:
    return deploying.main(["--fleet", FLEET, "--cell", cell, "--bake", "0", "--", *command])


def test_the_marker_is_the_metric_that_the_deploying_alarm_reads(cloudwatch: Any) -> None:
    put_health(cloudwatch, "cell-1", "OK")

    assert run("cell-1", *SUCCEED) == 0
    found = cloudwatch.list_metrics(Namespace="Peakplan", MetricName="DeployInProgress")["Metrics"]
    marked = [{each["Name"]: each["Value"] for each in metric["Dimensions"]} for metric in found]
    assert marked.count({"Fleet": FLEET, "Cell": "cell-1"}) == 1


def test_harm_while_it_bakes_stops_the_wave(cloudwatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    put_health(cloudwatch, "cell-2", "ALARM")

    assert run("cell-2", *SUCCEED) == 1
    assert "no further cell is deployed" in capsys.readouterr().err


def test_a_failed_command_is_not_baked_and_keeps_its_code(cloudwatch: Any) -> None:
    put_health(cloudwatch, "cell-3", "ALARM")

    assert run("cell-3", *FAIL) == 7


def test_no_cloudwatch_is_said_in_words(
    cloudwatch: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del cloudwatch
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    assert run("cell-1", *SUCCEED) == 2
    assert "CloudWatch cannot be reached" in capsys.readouterr().err


class Recorder:
    """Counts markers, and loses one."""

    def __init__(self) -> None:
        self.markers = 0

    def put_metric_data(self, **_: object) -> None:
        self.markers += 1
        if self.markers == 2:
            raise ClientError({"Error": {"Code": "Throttling", "Message": "slowly"}}, "PutMetricData")


def test_a_lost_marker_does_not_end_a_deploy(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()
    with deploying.marked(recorder, FLEET, "cell-1", seconds=0.001):
        eventually(lambda: recorder.markers >= 4, "the markers ended")

    assert "marker lost" in capsys.readouterr().err


def test_a_long_bake_looks_again_and_again() -> None:
    class Turning:
        looks = 0

        def describe_alarms(self, **_: object) -> dict[str, list[dict[str, str]]]:
            self.looks += 1
            state = "OK" if self.looks < 3 else "ALARM"
            return {"MetricAlarms": [{"AlarmName": "deploy-health", "StateValue": state}]}

    turning = Turning()
    with pytest.raises(deploying.HarmSeenError, match="deploy-health fired"):
        deploying.bake(turning, FLEET, "cell-1", minutes=10, sleep=lambda _: None)
    assert turning.looks == 3
