"""The rollout's state machine as an account takes it, and the comparison of two releases that stops one.

operations/test_rollout_machine.py has what the machine does.
"""

import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.fleet.alarm_kinds import MetricAlarm
from infra.fleet.release_arms import ALPHA, MEASURES, PLANNED, arms_of, harm, queries
from infra.fleet.replacement import careful, refresh_seconds
from infra.fleet.rollout_machine import HARM, WORSE, definition
from infra.fleet.rollout_states import HISTORY_A_LOOK, LOOK_SECONDS, MOST_HISTORY, look_seconds
from infra.fleet.settings import FLEETS, FleetSettings
from infra.operations.handover import waves_of
from peakplan.value.intervals import FEWEST_CHOSEN, Arm, lift
from rehearsal.shoppers.behaviour import Effects, visit
from service.api.request_ids import RequestIds
from service.events.journal import Journal
from service.events.keeper import EventKeeper, Sessions
from service.events.model import Event
from service.telemetry.metrics import EmfCollector, Metrics, Reading
from service.telemetry.names import namespace
from tests.infra.fleet.test_alarms import by_key, fleet, value_of
from tests.infra.moto_cloudwatch import at_once, computed
from tests.infra.operations.rollout_account import BEFORE, CELLS, NEXT, Account, everywhere
from tests.processes import PATIENCE, eventually


def machine(name: str = "prime-day") -> dict[str, Any]:
    return definition(FleetSettings.from_yaml(FLEETS / f"{name}.yaml"))


def leads_to(state: Mapping[str, Any]) -> Iterator[str]:
    """The states that may follow, except after a failure."""
    yield from (state[key] for key in ("Next", "Default") if key in state)
    yield from (choice["Next"] for choice in state.get("Choices", []))


def events(state: Mapping[str, Any]) -> int:
    """Of a state in an execution's history: entered and exited; a task is scheduled, started and succeeds between."""
    return 5 if state["Type"] == "Task" else 2


def longest(states: Mapping[str, Any], at: str, end: str, seen: frozenset[str]) -> float:
    """The events of the longest way from a state until `end` is reached again, which passes no other state twice."""
    ways = [0 if name == end else longest(states, name, end, seen | {name}) for name in leads_to(states[at])
            if name == end or name not in seen]  # fmt: skip
    return events(states[at]) + max(ways, default=float("-inf"))


def test_what_looks_for_hours_has_an_execution_of_its_own() -> None:
    """A map's states are in the history of the execution that has it, and so would each look at each cell be."""
    states = machine()["States"]
    for name in ("Waves", "Over", "ReturnCells"):
        inner = states[name]["ItemProcessor"]["States"]
        inner = inner["Cells"]["ItemProcessor"]["States"] if "Cells" in inner else inner
        assert not [state for state in inner.values() if state["Type"] == "Wait"]
        run = next(state for state in inner.values() if state["Type"] == "Task")
        assert run["Resource"].endswith(":states:startExecution.sync:2")
        assert run["Parameters"]["StateMachineArn.$"] == "$$.StateMachine.Id"


SHIPPED = ["dev", "dev-cpu", "prime-day", "prime-day-small"]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_history_of_a_cell_s_execution_has_room_for_a_move_that_takes_twice_as_long(name: str) -> None:
    states, fleet = machine(name)["States"], FleetSettings.from_yaml(FLEETS / f"{name}.yaml")
    for wait in ("Wait", "BackWait"):
        assert longest(states, wait, wait, frozenset({wait})) <= HISTORY_A_LOOK
    seconds = 2 * refresh_seconds(fleet, careful(fleet)) + 60 * fleet.rollout.canary_bake_minutes
    assert look_seconds(seconds) == LOOK_SECONDS
    assert seconds / LOOK_SECONDS * HISTORY_A_LOOK < MOST_HISTORY
    overnight = look_seconds(12 * 3600)
    assert overnight is not None, "it is looked at less often"
    assert 12 * 3600 / overnight * HISTORY_A_LOOK <= MOST_HISTORY


WAVES = [("cell-1",), ("cell-2", "cell-3"), ("cell-4",)]
NOW = datetime(2026, 11, 24, tzinfo=UTC)


def told(n1: float, k1: float, n0: float, k0: float, alpha: float = ALPHA) -> float | None:
    known = {"s1": n1, "c1": k1, "s0": n0, "c0": k0}
    return at_once(harm("c", alpha), {name: {NOW: value} for name, value in known.items()}, NOW)


def test_it_tells_harm_exactly_where_the_interval_of_the_reports_shows_a_loss() -> None:
    rng, verdicts = random.Random(35), {0: 0, 1: 0}
    for _ in range(400):
        n1, n0 = rng.randint(500, 60_000), rng.randint(500, 200_000)
        share = rng.uniform(0.05, 0.6)
        k1, k0 = round(n1 * share * rng.uniform(0.85, 1.1)), round(n0 * share)
        if min(k1, k0 * min(1, n1 / n0)) < FEWEST_CHOSEN:
            continue
        found = lift(Arm(n0, k0, k0), Arm(n1, k1, k1), planned=PLANNED, alpha=ALPHA)
        assert told(n1, k1, n0, k0) == float(found.verdict < 0), (n1, k1, n0, k0)
        verdicts[int(found.verdict < 0)] += 1
    assert min(verdicts.values()) > 50


def test_a_release_after_which_nobody_clicks_is_told_and_too_few_tell_nothing() -> None:
    assert told(1_000, 0, 3_000, 900) == 1
    assert told(300, 0, 3_000, 900) == 0, "a hundred clicks would not have come yet with the release before, either"
    assert told(60_000, 18_000, 60_000, 17_000) == 0, "a gain is no harm"
    assert told(0, 0, 3_000, 900) in (0, None)
    assert told(3_000, 900, 3_000, 0) in (0, None)


def test_a_later_wave_compares_releases_where_an_alarm_compares_a_cell_with_others_that_have_the_release() -> None:
    shown, before, harmed = 12_000, 0.30, 0.30 * 0.95
    clicks = {"cell-1": harmed, "cell-2": harmed, "cell-3": harmed, "cell-4": before}
    clicked = {cell: round(share * shown) for cell, share in clicks.items()}
    alarm = by_key(fleet())["shoppers-click-less"]
    assert isinstance(alarm, MetricAlarm)
    reading = {"n": shown, "k": clicked["cell-3"], "n_all": 4 * shown, "k_all": sum(clicked.values())}
    assert value_of(alarm, **{name: 6 * value for name, value in reading.items()}) < alarm.line / 2
    new, old = arms_of("cell-3", WAVES)
    assert (new, old) == (["cell-1", "cell-3"], ["cell-4"])
    series = {
        f"{letter}{arm}r{number}": {NOW: float(shown if letter == "s" else clicked[cell])}
        for arm, cells in (("1", new), ("0", old))
        for letter in "sc"
        for number, cell in enumerate(cells)
    }
    series |= {f"p{arm}r{number}": {} for arm, cells in (("1", new), ("0", old)) for number in range(len(cells))}
    assert _answered(series, new, old) == {"clicks": {NOW: 0.0}, "purchases": {NOW: 0.0}}, "that is not enough yet"
    grown = {name: {time: 6 * value for time, value in each.items()} for name, each in series.items()}
    assert _answered(grown, new, old) == {"clicks": {NOW: 1.0}, "purchases": {NOW: 0.0}}


def _answered(read: dict[str, dict[datetime, float]], new: list[str], old: list[str]) -> dict[str, Any]:
    known = dict(read)
    times = sorted({time for each in read.values() for time in each})
    for query in queries("dev", new, old, 4):
        if "Expression" in query:
            known[query["Id"]] = computed(query["Expression"], known, times)
    return {name: known[name] for name in MEASURES}


def test_what_happened_since_the_beginning_counts_together_and_a_cell_without_clicks_counts_as_none() -> None:
    minutes = [NOW + timedelta(minutes=number) for number in range(3)]
    shown = dict.fromkeys(minutes, 1000.0)
    read: dict[str, dict[datetime, float]] = {"s1r0": shown, "s0r0": shown, "s0r1": shown}
    read |= {"c1r0": {}, "c0r0": dict.fromkeys(minutes, 90.0), "c0r1": {minutes[1]: 600.0}}
    read |= {name: {} for name in ("p1r0", "p0r0", "p0r1")}
    found = _answered(read, ["cell-1"], ["cell-2", "cell-3"])
    assert found["clicks"] == {minutes[0]: 0.0, minutes[1]: 1.0, minutes[2]: 1.0}, "one minute is not enough"
    assert set(found["purchases"].values()) == {0.0}


def test_who_is_compared_with_whom() -> None:
    assert arms_of("cell-1", WAVES) == (["cell-1"], ["cell-2", "cell-3", "cell-4"])
    assert queries("dev", *arms_of("cell-4", WAVES), 4) == [], "no cell has the release before any more"
    assert queries("dev", ["cell-1"], [], 1) == [], "a fleet of one cell has nothing to compare with"
    assert queries("dev", [], ["cell-1"], 2) == []
    asked = queries("dev", *arms_of("cell-1", WAVES), 4)
    share = ALPHA / len(MEASURES) / 3  # of each comparison, of which each measure has three
    assert [query["Expression"] for query in asked if query["ReturnData"]] == [harm(m[0], share) for m in MEASURES]
    assert [query["Id"] for query in asked if query["ReturnData"]] == list(MEASURES)
    names = [query["Id"] for query in asked]
    assert len(names) == len(set(names))
    stats = [query["MetricStat"]["Metric"] for query in asked if "MetricStat" in query]
    assert {metric["MetricName"] for metric in stats} == {"AnswersShown", "AnswersClicked", "AnswersBought"}
    assert {tuple(each["Name"] for each in metric["Dimensions"]) for metric in stats} == {("Fleet", "PlannedIn")}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_queries_stay_within_what_aws_takes(name: str) -> None:
    settings = FleetSettings.from_yaml(FLEETS / f"{name}.yaml")
    waves = waves_of(settings)
    every = [queries(settings.name, *arms_of(cell, waves), settings.cells) for cell in settings.cell_names]
    assert all(len(asked) <= 500 for asked in every), "metrics of one GetMetricData"
    assert all(len(query.get("Expression", "")) <= 2048 for asked in every for query in asked)
    assert len(json.dumps(every)) < 128 * 1024, "half of what the input of an execution may have"


@pytest.mark.parametrize(("effect", "shown", "least", "most"), [(0.95, 30_000, 0.8, 1.0), (1.0, 100_000, 0.0, 0.01)])
def test_a_loss_of_5_percent_stops_a_release_that_chance_alone_does_not(
    effect: float, shown: int, least: float, most: float
) -> None:
    """A hundred looks at one cell of four, a thousand times, by the intervals that the metric math equals."""
    rng, looks = np.random.default_rng(35), 100
    new = rng.binomial(shown // looks, 0.3 * effect, (1000, looks)).cumsum(1)
    before = rng.binomial(3 * shown // looks, 0.3, (1000, looks)).cumsum(1)
    plans = np.arange(1, looks + 1) * (shown // looks)
    arms = Arm(3 * plans, before, before), Arm(plans, new, new)
    stopped = (lift(*arms, planned=PLANNED, alpha=ALPHA / len(MEASURES) / 3).verdict < 0).any(1).mean()
    assert least <= stopped <= most


SHOPPERS = 40_000  # of each cell, in an hour
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


def _events(query_id: str, clicked: list[int]) -> Iterator[Event]:
    shown = {"milliseconds": 100.0, "results": 3}
    yield Event.model_validate({"action_name": "first_shown", "query_id": query_id, "event_attributes": shown})
    for rank in clicked[:1]:
        where = {"position": {"ordinal": rank + 1}}
        yield Event.model_validate({"action_name": "click", "query_id": query_id, "event_attributes": where})


def shopped(folder: Path, planted: float) -> Fleet:
    """What shoppers did in an hour with every cell's plans, those of cell-1 worse or not."""
    fleet, rng = Fleet(folder), random.Random(35)
    for cell in CELLS:
        fleet.shop(cell, SHOPPERS, Effects(click=planted if cell == "cell-1" else 1.0), rng)
        fleet.publish()
    return fleet


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


@pytest.mark.slow  # 160,000 shoppers
@pytest.mark.parametrize("planted", [0.95, 1.0])
def test_a_planted_harm_of_5_percent_is_stopped_in_the_first_wave_and_goes_back(
    account: Account, tmp_path: Path, planted: float
) -> None:
    """Seeded shoppers' events go through the service's own keeper and metrics to CloudWatch's lines.

    CloudWatch adds up what the cells with each release published since the first one bakes, and compares: by metric
    math of ours within the emulator. No service answers here; rehearsal/shoppers drives a real one.
    """
    events = account.settings.shopper_events.model_copy(update={"enabled": True})
    account.settings = account.settings.model_copy(update={"shopper_events": events})
    account.ended(account.hand_over(BEFORE))
    fleet, cloudwatch, before = shopped(tmp_path / "events", planted), account.client("cloudwatch"), datetime.now(UTC)
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
