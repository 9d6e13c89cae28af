"""An event's load test: how much is sent when, what it costs at most, what refuses it and what ends it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.fleet.cost import Prices
from infra.fleet.event_load import (
    AHEAD_SECONDS,
    MOST_HISTORY,
    MOST_MINUTES,
    RATE_A_WORKER,
    EventLoad,
    EventLoadError,
    function_seconds,
    read_curve,
)
from infra.fleet.event_load_file import CallerNetwork, check_identity, read, write
from infra.fleet.event_load_machine import HARMED, definition
from infra.fleet.settings import FLEETS, FleetSettings
from tests.infra.fleet.fleets import dev_fleet

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
NETWORK = CallerNetwork("vpc-0a1b2c3d4e5f67890", ("subnet-0a1b2c3d4e5f67890",))
NOW = datetime(2027, 1, 4, 9, 0, tzinfo=UTC)


def test_a_load_grows_to_the_events_peak_and_stays() -> None:
    load = EventLoad(PRIME_DAY, multiplier=4)

    assert max(load.rates) == pytest.approx(1_000_000 / 60)
    assert load.rates[0] == 0
    assert len(load.rates) == load.minutes + 1
    assert load.rates == tuple(sorted(load.rates))
    assert load.workers * RATE_A_WORKER >= max(load.rates) > (load.workers - 1) * RATE_A_WORKER
    assert max(EventLoad(PRIME_DAY, multiplier=4, share=1.2).rates) == pytest.approx(1.2 * max(load.rates))


def test_minutes_follow_each_other_without_a_gap_and_each_worker_has_its_part() -> None:
    load = EventLoad(PRIME_DAY, multiplier=4)
    given = load.input(NOW)

    starts = [minute["starts_at"] for minute in given["minutes"]]
    assert starts == list(range(starts[0], starts[0] + 60 * load.minutes, 60))
    assert starts[0] >= NOW.timestamp() + AHEAD_SECONDS
    assert given["workers"] == list(range(load.workers))
    ends = [minute["ends"] for minute in given["minutes"]]
    assert [minute["begins"] for minute in given["minutes"][1:]] == ends[:-1]
    assert load.workers * ends[-1] == pytest.approx(max(load.rates), rel=1e-3)
    first = datetime.fromisoformat(given["minutes"][0]["sent_at"])
    assert first.timestamp() == starts[0] - AHEAD_SECONDS


def test_cost_is_bounded_by_every_functions_limit_and_the_fleets_bill() -> None:
    prices = Prices.from_json()
    load = EventLoad(PRIME_DAY, multiplier=4, minutes=20)
    functions = 20 * load.workers * function_seconds() * 1769 / 1024 * prices.function_gib_second

    bound = load.bound(prices)
    assert functions < bound.workers < functions * 1.5
    assert bound.fleet > 10 * bound.workers, "the hosts that come for it are what costs"
    assert EventLoad(PRIME_DAY, multiplier=4, minutes=40).bound(prices).total > bound.total


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"minutes": 0}, "1 to"),
        ({"minutes": MOST_MINUTES + 1}, "1 to"),
        ({"share": 0.0}, "PEAK"),
        ({"fresh": 1.5}, "fresh"),
        ({"caller": "nobody"}, "no caller of prime-day"),
        ({"multiplier": 100.0}, "are possible in a region"),
        ({"minutes": 60}, "MINUTES=40 at most"),
    ],
)
def test_a_load_that_cannot_be_is_refused_with_what_can(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(EventLoadError, match=said):
        EventLoad(PRIME_DAY, **{"multiplier": 4.0, **asked})


def test_nobody_loads_a_fleet_near_its_event() -> None:
    load, (event, *_) = EventLoad(PRIME_DAY, multiplier=4), PRIME_DAY.events

    load.refuse_near_an_event(NOW)
    for moment in (event.start - timedelta(hours=47), event.start, event.end - timedelta(seconds=1)):
        with pytest.raises(EventLoadError, match=event.name):
            load.refuse_near_an_event(moment)
    load.refuse_near_an_event(event.end)


def test_a_recorded_course_keeps_its_shape_and_gets_the_wanted_peak(tmp_path: Path) -> None:
    course = tmp_path / "course.csv"
    course.write_text("second,requests\n" + "".join(f"{second},{100 + second}\n" for second in range(3600)), "utf-8")
    load = EventLoad(PRIME_DAY, multiplier=4, minutes=20, curve=read_curve(course, 20))

    assert len(load.rates) == 21
    assert max(load.rates) == pytest.approx(1_000_000 / 60)
    assert load.rates[10] / load.rates[20] == pytest.approx(1900 / 3655, rel=0.02)
    course.write_text("time,count\n1,1\n", encoding="utf-8")
    with pytest.raises(EventLoadError, match="second,requests"):
        read_curve(course, 20)


def test_a_fleet_that_verifies_its_callers_is_not_loaded_by_nobody(tmp_path: Path) -> None:
    with pytest.raises(EventLoadError, match="IDENTITY"):
        check_identity(PRIME_DAY, NETWORK)
    check_identity(dev_fleet(), NETWORK)
    with pytest.raises(EventLoadError, match="VPC=vpc-"):
        CallerNetwork("", ())
    with pytest.raises(EventLoadError, match="no such file"):
        CallerNetwork("vpc-1", ("subnet-1",), authority=str(tmp_path / "none.pem"))


def test_what_was_written_is_what_is_started(tmp_path: Path) -> None:
    load, file = (
        EventLoad(dev_fleet(), multiplier=2, share=0.5, minutes=7, curve=(0.0, *[1.0] * 7)),
        tmp_path / "a.json",
    )
    write(file, load, NETWORK)

    assert read(file, dev_fleet()) == (load, NETWORK)
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(EventLoadError, match="make event-load FLEET=dev"):
        read(file, dev_fleet())


def test_the_machine_ends_by_itself_and_looks_for_harm_before_each_minute() -> None:
    load = EventLoad(PRIME_DAY, multiplier=4)
    made = definition(load, "arn:aws:lambda:us-east-1:123456789012:function:peakplan-prime-day-load")
    minute = made["States"]["Minutes"]["ItemProcessor"]["States"]

    assert made["TimeoutSeconds"] == load.timeout_seconds < 3600
    assert made["States"]["Minutes"]["MaxConcurrency"] == 1
    assert (minute["Wait"]["Next"], minute["Look"]["Next"], minute["IsHarmed"]["Default"]) == (
        "Look",
        "IsHarmed",
        "Send",
    )
    assert minute["Harmed"]["Error"] == HARMED
    names = minute["Look"]["Parameters"]["AlarmNames"]
    assert {"peakplan-prime-day-cell-6-fast-burn", "peakplan-prime-day-cell-1-model-fast-burn"} <= set(names)
    past = EventLoad(PRIME_DAY, multiplier=4, share=1.2)
    assert not any("model-fast-burn" in name for name in past.alarms), "past capacity rules plan, by design"
    assert len(json.dumps(load.input(NOW))) < 256 * 1024, "what an execution's input may be"
    assert load.minutes * (20 + 9 * load.workers) <= MOST_HISTORY
