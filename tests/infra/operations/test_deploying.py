"""A deploy marks its cell, and stops where the cell is hurt."""

import sys
import time
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError

from infra.fleet.alarms import alarm_name
from infra.fleet.release_arms import MEASURES, queries
from infra.operations import deploying
from infra.operations.deployment_state import StateStore, Step
from infra.operations.rollout_steps import Rollout
from tests.infra.moto_server import MotoServer
from tests.infra.operations.rollout_account import CELLS, Account
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


def test_a_bake_reads_both_releases_since_it_began_and_stops_where_shoppers_lose() -> None:
    class Reading:
        spans: ClassVar[list[timedelta]] = []

        def describe_alarms(self, **_: object) -> dict[str, list[dict[str, str]]]:
            return {"MetricAlarms": [{"AlarmName": "deploy-health", "StateValue": "OK"}]}

        def get_metric_data(self, **asked: Any) -> dict[str, list[dict[str, Any]]]:
            assert [query["Id"] for query in asked["MetricDataQueries"] if query["ReturnData"]] == list(MEASURES)
            self.spans.append(asked["EndTime"] - asked["StartTime"])
            if len(self.spans) == 2:
                raise ClientError({"Error": {"Code": "Throttling"}}, "GetMetricData")
            values = [1.0] if len(self.spans) == 3 else []
            return {"MetricDataResults": [{"Id": "clicks", "Values": [0.0]}, {"Id": "purchases", "Values": values}]}

    reading, asked = Reading(), queries(FLEET, ["cell-1"], ["cell-2"], 2)
    with pytest.raises(deploying.HarmSeenError, match="cell-1: shoppers click or buy less with the release than"):
        deploying.bake(reading, FLEET, "cell-1", 10, lambda _: time.sleep(0.6), lambda: asked)
    assert sorted(reading.spans) == reading.spans
    assert len(reading.spans) == 3, "what could not be read told nothing"
    assert reading.spans[0] >= timedelta(seconds=1), "CloudWatch reads no empty time"


def test_a_shell_compares_the_cells_that_have_the_release_with_those_that_wait_for_it(account: Account) -> None:
    state, store = account.state(), StateStore(account.settings, account.client("ssm"))
    for cell, step in zip(CELLS, (Step.DONE, Step.MOVING, Step.MOVING, Step.PENDING), strict=True):
        state.cell(cell).step = step
    apis = dict.fromkeys(("cloudwatch", "cloudformation", "balancing"), None)
    rollout = Rollout(account.settings, state, store, **apis, deploy=[], call=len, canary_minutes=0, bake_minutes=0)
    assert rollout._arms("cell-2") == [], "the fleet keeps no events"
    events = account.settings.shopper_events.model_copy(update={"enabled": True})
    rollout.settings = account.settings.model_copy(update={"shopper_events": events})
    named = {
        query["MetricStat"]["Metric"]["Dimensions"][1]["Value"]: query["Id"][1]
        for query in rollout._arms("cell-2")
        if "MetricStat" in query
    }
    assert named == {"cell-1": "1", "cell-2": "1", "cell-4": "0"}, "cell-3 is changing"
