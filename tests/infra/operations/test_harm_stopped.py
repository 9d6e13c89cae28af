"""A release after which shoppers click 5% less is stopped in the first wave and goes back, in the emulated account.

Seeded shoppers' events go through the service's own keeper and metrics to CloudWatch's lines; the alarm's expression is
computed over those, and sets the emulated alarm, which the emulator does not compute. No service answers here, and no
cell of hosts stands: rehearsal/shoppers drives a real one.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.alarm_kinds import MetricAlarm
from infra.fleet.alarms import cell_alarms
from infra.fleet.rollout_machine import HARM
from rehearsal.shoppers.behaviour import Effects, visit
from service.api.request_ids import RequestIds
from service.events.journal import Journal
from service.events.keeper import EventKeeper
from service.events.model import Event
from service.events.sessions import Sessions
from service.telemetry.emf import EmfCollector
from service.telemetry.metrics import Metrics, Reading
from tests.infra.fleet.test_alarms import value_of
from tests.infra.operations.rollout_account import BEFORE, CELLS, NEXT, Account, everywhere
from tests.infra.operations.test_rollout_machine import Rollouts, rollouts
from tests.processes import PATIENCE

__all__ = ["rollouts"]
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


@pytest.mark.slow  # 160,000 shoppers
@pytest.mark.parametrize("planted", [0.95, 1.0])
def test_a_planted_harm_of_5_percent_is_stopped_in_the_first_wave_and_goes_back(
    rollouts: Rollouts,
    tmp_path: Path,
    planted: float,
) -> None:
    account: Account = rollouts.account
    rollouts.ended(rollouts.hand_over(BEFORE))
    fleet, rng, found = Fleet(tmp_path), random.Random(35), Counter[str]()
    for cell in CELLS:
        fleet.shop(cell, SHOPPERS, Effects(click=planted if cell == "cell-1" else 1.0), rng)
        fleet.publish()
    for cell in CELLS:
        fired = fleet.alarm("shoppers-click-less", cell, account.settings)
        found[cell] += fired
        if fired:  # the emulator does not look at an alarm's state where it is named
            account.alarm(cell, "ALARM", "shoppers-click-less")
    ended = rollouts.ended(rollouts.hand_over(NEXT))
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
