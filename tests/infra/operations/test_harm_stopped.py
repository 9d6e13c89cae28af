"""A release after which shoppers click 5% less is stopped in the first wave and goes back, in the emulated account.

Seeded shoppers' events go through the service's own keeper and metrics to CloudWatch's lines; the alarm's expression is
computed over those, and sets the emulated alarm, which the emulator does not compute. The comparison of both releases,
which a rollout asks for itself, is computed by metric math of ours within the emulator. No service answers here, and no
cell of hosts stands: rehearsal/shoppers.py drives a real one.
"""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.alarm_kinds import MetricAlarm
from infra.fleet.alarms import cell_alarms
from infra.fleet.release_arms import arms_of, queries
from infra.fleet.rollout_machine import HARM, WORSE
from infra.operations.handover import waves_of
from rehearsal.shoppers import Effects, visit
from service.api.request_ids import RequestIds
from service.events.journal import Journal
from service.events.keeper import EventKeeper, Sessions
from service.events.model import Event
from service.telemetry.metrics import EmfCollector, Metrics, Reading
from service.telemetry.names import namespace
from tests.infra.fleet.test_alarms import value_of
from tests.infra.operations.rollout_account import BEFORE, CELLS, NEXT, Account, everywhere
from tests.processes import PATIENCE, eventually

SHOPPERS = 40_000  # of each cell, in the hour that the alarm looks at
RIGHT = [True, False, False]
_WRITTEN_TOGETHER = 1000  # shoppers


class Fleet:
    """What all of a fleet's hosts keep and count."""

    def __init__(self, folder: Path) -> None:
        self._emf = EmfCollector({"Fleet": "dev", "Cell": "cell-2", "Group": "cpu", "Release": "ami"})
        self.metrics = Metrics(Reading, 300, self._emf)
        self._ids = {cell: RequestIds("shared", cell=cell) for cell in CELLS}
        known = self._ids[CELLS[0]]
        self._keeper = EventKeeper(
            Journal([folder], file_bytes=10**9, files=1),
            Sessions("shared", 28),
            keeps_text=False,
            is_served=known.is_of_late,
            planned_in=known.planned_in,
            count=self.metrics.happened,
        )
        self.sums: defaultdict[tuple[str, str], float] = defaultdict(float)

    def shop(self, cell: str, shoppers: int, effects: Effects, rng: random.Random) -> None:
        """Let shoppers ask a cell, and report to any host what they did."""
        for number in range(1, shoppers + 1):
            seen = visit(RIGHT, 100.0, rng, "cascade", effects)
            if seen.left_ms is None:
                taken = self._keeper.take(list(_events(self._ids[cell].new(), seen.clicked)), "shop")
                assert not taken.refused
                self._keeper.wrote(taken, "shop")
            if number % _WRITTEN_TOGETHER == 0:  # a busy disk refuses the events of those who do not wait
                assert taken.written is not None
                assert taken.written.result(PATIENCE)

    def publish(self) -> None:
        """Add up what CloudWatch would: the lines' values by metric and cell."""
        for line in self.metrics.lines():
            document = json.loads(line)
            for directive in document["_aws"]["CloudWatchMetrics"]:
                for name in (each["Name"] for each in directive["Metrics"]):
                    if ["Fleet", "PlannedIn"] in directive["Dimensions"]:
                        values = document[name] if isinstance(document[name], list) else [document[name]]
                        self.sums[name, document["PlannedIn"]] += sum(values)

    def alarm(self, key: str, cell: str, settings: Any) -> bool:
        """Whether the cell's alarm fires."""
        (alarm,) = [each for each in cell_alarms(settings) if each.key == key]
        assert isinstance(alarm, MetricAlarm)
        readings = {
            name: sum(
                value
                for (metric, planned_in), value in self.sums.items()
                if metric == reading.metric and (planned_in == cell or "PlannedIn" not in reading.dimensions)
            )
            for name, reading in alarm.readings.items()
        }
        return value_of(alarm, **readings) > alarm.line


def _events(query_id: str, clicked: list[int]) -> Iterator[Event]:
    shown = {"milliseconds": 100.0, "results": 3}
    yield Event.model_validate({"action_name": "first_shown", "query_id": query_id, "event_attributes": shown})
    for rank in clicked[:1]:
        where = {"position": {"ordinal": rank + 1}}
        yield Event.model_validate({"action_name": "click", "query_id": query_id, "event_attributes": where})


@cache
def shopped(folder: Path, planted: float) -> Fleet:
    """What shoppers did in an hour with every cell's plans, those of cell-1 worse or not."""
    fleet, rng = Fleet(folder), random.Random(35)
    for cell in CELLS:
        fleet.shop(cell, SHOPPERS, Effects(click=planted if cell == "cell-1" else 1.0), rng)
        fleet.publish()
    return fleet


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


def _published(account: Account, fleet: Fleet) -> None:
    """Put into the emulated CloudWatch what hosts published by now."""
    data = [
        {
            "MetricName": name,
            "Dimensions": [{"Name": "Fleet", "Value": account.settings.name}, {"Name": "PlannedIn", "Value": cell}],
            "Value": value,
            "Unit": "Count",
        }
        for (name, cell), value in fleet.sums.items()
    ]
    account.client("cloudwatch").put_metric_data(Namespace=namespace(), MetricData=data)


@pytest.mark.slow  # 160,000 shoppers, once for each of the two tests
@pytest.mark.parametrize("planted", [0.95, 1.0])
def test_a_planted_harm_of_5_percent_is_stopped_in_the_first_wave_and_goes_back(
    account: Account, kept: Path, planted: float
) -> None:
    account.ended(account.hand_over(BEFORE))
    fleet, found = shopped(kept, planted), Counter[str]()
    for cell in CELLS:
        fired = fleet.alarm("shoppers-click-less", cell, account.settings)
        found[cell] += fired
        if fired:
            account.alarm(cell, "ALARM", "shoppers-click-less")
    ended = account.ended(account.hand_over(NEXT))
    if planted == 1.0:
        assert not any(found.values()), "chance alone fires nothing"
        assert (ended["status"], account.running()) == ("SUCCEEDED", everywhere(NEXT))
        return
    assert dict(found) == {"cell-1": 1, "cell-2": 0, "cell-3": 0, "cell-4": 0}
    assert (ended["status"], ended["error"]) == ("FAILED", HARM)
    assert "shoppers-click-less" in ended["cause"]
    assert "every cell is back" in ended["cause"]
    assert account.running() == everywhere(BEFORE)
    assert account.state().rejected == [NEXT]


@pytest.mark.slow  # as above
@pytest.mark.parametrize("planted", [0.95, 1.0])
def test_releases_beside_each_other_tell_that_harm_without_any_alarm(
    account: Account, kept: Path, planted: float
) -> None:
    """CloudWatch adds up what the cells with each release published since the first one bakes, and compares."""
    events = account.settings.shopper_events.model_copy(update={"enabled": True})
    account.settings = account.settings.model_copy(update={"shopper_events": events})
    account.ended(account.hand_over(BEFORE))
    fleet, cloudwatch, before = shopped(kept, planted), account.client("cloudwatch"), datetime.now(UTC)
    if planted == 1.0:
        _published(account, fleet)
        time.sleep(1)  # the emulator reads whole seconds
        for cell in CELLS:
            asked = queries(account.settings.name, *arms_of(cell, waves_of(account.settings)), len(CELLS))
            began = {"StartTime": before - timedelta(seconds=1), "EndTime": datetime.now(UTC)}
            read = cloudwatch.get_metric_data(MetricDataQueries=asked, **began)["MetricDataResults"]
            assert not any(value for each in read for value in each["Values"]), "chance alone tells nothing"
        return
    execution = account.hand_over(NEXT, bakes=True)  # it bakes until it sees harm
    eventually(lambda: account.running()["cell-1"] == NEXT, "the canary was not changed")
    eventually(lambda: _bakes(account, execution), "the canary does not bake")
    assert account.described(execution)["status"] == "RUNNING", "without shoppers there is no harm"
    _published(account, fleet)
    ended = account.ended(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", HARM)
    assert WORSE in ended["cause"]
    assert "every cell is back" in ended["cause"]
    assert account.running() == everywhere(BEFORE)
    assert account.state().rejected == [NEXT]


def _bakes(account: Account, rollout: str) -> bool:
    """Whether a cell's execution has come to read how shoppers fare."""
    api = account.client("stepfunctions")
    machine = rollout.replace(":execution:", ":stateMachine:").rpartition(":")[0]
    running = api.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]
    entered = [
        event["stateEnteredEventDetails"]["name"]
        for each in running
        for event in api.get_execution_history(executionArn=each["executionArn"])["events"]
        if "stateEnteredEventDetails" in event
    ]
    return "Arms" in entered
