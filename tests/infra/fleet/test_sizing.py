"""The arithmetic of instances, worked by hand for dev: 50 plans a second, 40 ms a plan, two replicas a host."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.demand import Event, ForecastBlock, ServiceTime, Surge
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from tests.infra.fleet.fleets import dev_fleet

DEV = dev_fleet()
INF2, TRN1 = DEV.groups
UTILISATION = 1 - 40 * math.log(100) / (2 * (300 - 60))  # 0.616


def timed(mean_ms: float, p99_ms: float) -> Group:
    return INF2.model_copy(
        update={"service_time": ServiceTime(mean_ms=mean_ms, p99_ms=p99_ms, source="stated: a test")}
    )


def surging(**surge: float) -> FleetSettings:
    return DEV.model_copy(update={"surge": Surge.model_validate({"times": 5, "within": 60} | surge)})


def test_a_replica_spans_its_neuron_cores_or_one_core_of_a_processor() -> None:
    assert [sizing.replicas_per_instance(INF2, span) for span in (1, 2)] == [2, 1]
    processors = Group(instance_type="c7i.4xlarge", engine="torch", minimum=1, maximum=1)
    assert [sizing.replicas_per_instance(processors, span) for span in (1, 2)] == [processors.instance.cores] * 2


@pytest.mark.parametrize(
    ("mean_ms", "p99_ms", "utilisation"),
    [
        (40, 60, UTILISATION),
        (10, 20, 0.7),  # the queue's arithmetic allows 0.92, a balancer does not
        (100, 250, 0),  # no utilisation is low enough
        (40, 300, 0),
        (40, 400, 0),
        (0.1, 299.75, 1 - 0.1 * math.log(100) / 0.5),  # the least room is room
    ],
)
def test_replicas_are_as_busy_as_the_slo_lets_them(mean_ms: float, p99_ms: float, utilisation: float) -> None:
    assert sizing.target_utilisation(DEV, timed(mean_ms, p99_ms)) == pytest.approx(utilisation)


@pytest.mark.parametrize("utilisation", [0.19, 0.21])
def test_a_model_that_must_stand_idle_for_four_fifths_of_its_time_is_refused(utilisation: float) -> None:
    time = {"mean_ms": (1 - utilisation) * 2 * (300 - 100) / math.log(100), "p99_ms": 100, "source": "stated: a test"}
    with pytest.raises(ValidationError) as refused:
        dev_fleet({"model.service_time": time})
    # Just above the line only what follows from so slow a model is wrong: it takes more hosts than the file allows.
    assert ("only 19% busy inside an SLO of 300" in str(refused.value)) == (utilisation < 0.2)
    assert ("an ordinary day" in str(refused.value)) == (utilisation > 0.2)


def test_unless_told_otherwise_an_ordinary_day_is_meant() -> None:
    traffic = DEV.traffic.model_copy(update={"plans_per_minute": 300_000})  # of which no rounding hides a multiple
    busy = DEV.model_copy(update={"traffic": traffic})
    for rate in (sizing.fleet_rate, sizing.cell_rate, sizing.balancer_units):
        assert rate(busy) == rate(busy, 1.0) < rate(busy, 2.0)
    for of_group in (sizing.group_rate, sizing.instances_wanted, sizing.floor_for):
        assert of_group(busy, INF2) == of_group(busy, INF2, 1.0) < of_group(busy, INF2, 2.0)


def test_rates_are_a_second_s() -> None:
    assert sizing.full_rate(DEV, INF2) == 2 * 1000 / 40
    assert sizing.instance_rate(DEV, INF2) == pytest.approx(50 * UTILISATION)
    assert [sizing.fleet_rate(DEV, multiplier) for multiplier in (1, 2.5)] == [50, 125]
    # Six hosts at most and four at most, all as fast.
    assert [sizing.group_rate(DEV, group) for group in (INF2, TRN1)] == pytest.approx([30, 20])
    slower = DEV.model_copy(update={"groups": (timed(80, 90), TRN1)})
    assert sizing.group_rate(slower, slower.groups[0], 2) == pytest.approx(100 * 3 / 7)


@pytest.mark.parametrize(("load", "instances"), [(0.5, 1), (1, 1), (1.001, 2), (7, 7)])
def test_a_load_that_just_fits_takes_no_host_more(load: float, instances: int) -> None:
    assert sizing.instances_for(DEV, INF2, load * sizing.instance_rate(DEV, INF2)) == instances


@pytest.mark.parametrize(
    ("zones", "left", "run"), [(3, 1, 3), (3, 2, 3), (3, 3, 6), (3, 5, 9), (2, 3, 6), (4, 3, 4), (4, 4, 8)]
)
def test_without_a_zone_enough_is_left(zones: int, left: int, run: int) -> None:
    fleet = DEV.model_copy(update={"availability_zones": tuple("abcd"[:zones])})
    assert sizing.with_one_zone_lost(fleet, left) == run


def test_a_group_is_sized_for_its_load_with_a_zone_lost() -> None:
    # 30 plans a second take one host of 30.8, 75 take three.
    assert [sizing.instances_wanted(DEV, INF2, multiplier) for multiplier in (1, 2, 2.5)] == [3, 3, 6]


@pytest.mark.parametrize(
    ("absorb", "share", "floor"),
    [(1, 1, 3), (4, 1, 3), (5, 1, 6), (5, 0.5, 3), (1, 0.1, 3)],  # five times the load is 150 a second: 3.2 busy hosts
)
def test_the_floor_absorbs_what_it_promises_in_whole_zones(absorb: float, share: float, floor: int) -> None:
    assert sizing.floor_for(surging(absorb=absorb), INF2, share) == floor


def test_a_surge_takes_hosts_that_are_nearly_always_busy() -> None:
    assert sizing.surge_instances(DEV, INF2) == 4  # 150 plans a second, 46.5 a host
    just = surging(times=46.5 * 3 / 30)
    assert sizing.surge_instances(just, INF2) == 3


@pytest.mark.parametrize(("times", "grown"), [(5, 0.578), (1.8, 0.241), (1.5, 0), (1, 0)])
def test_recovery_waits_for_the_law_the_metrics_and_a_start(times: float, grown: float) -> None:
    """A law that aims below full use asks for enough before all of the surge is there."""
    waited = 35 + DEV.warm_start_seconds + 10
    assert sizing.surge_recovery_seconds(surging(times=times), INF2) == pytest.approx(60 * grown + waited, abs=0.1)


@pytest.mark.parametrize(
    ("reserves", "multiplier", "units"),
    [(True, 2, 100), (True, 1, 0), (True, 1000, 450), (False, 2, 0), (False, 1, 0)],
)
def test_events_reserve_at_least_the_smallest_reservation(reserves: bool, multiplier: float, units: int) -> None:
    balancer = DEV.load_balancer.model_copy(update={"reserve_capacity": reserves})
    fleet = DEV.model_copy(update={"load_balancer": balancer})
    assert sizing.reserved_units(fleet, multiplier) == units


def test_the_peak_is_the_greatest_event_s() -> None:
    assert sizing.peak_multiplier(DEV) == 1
    events = tuple(
        Event.model_validate(
            {"name": f"sale-{of}", "start": "2027-07-13T07:00Z", "end": "2027-07-14T07:00Z", "multiplier": of}
        )
        for of in (2, 4, 3)
    )
    assert sizing.peak_multiplier(DEV.model_copy(update={"events": events})) == 4


@pytest.mark.parametrize(("said", "seconds"), [("60s", 60), ("3m", 180), (" 5 min ", 300), ("1h", 3600), (45, 45)])
def test_durations_are_read_as_people_write_them(said: object, seconds: int) -> None:
    assert Surge.model_validate({"within": said}).within == seconds


@pytest.mark.parametrize(
    ("part", "fields", "words"),
    [
        (Surge, {"within": "one hour"}, "is no duration: write 60s, 3m or 1h"),
        (Surge, {"within": 0}, "greater than or equal to 1"),
        (Surge, {"recover": 0}, "greater than or equal to 1"),
        (Surge, {"times": 2, "absorb": 2.1}, "raise times, or lower absorb"),
        (ServiceTime, {"mean_ms": 40, "p99_ms": 39.9, "source": "stated: a test"}, "a 99th percentile cannot be"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(part: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        part.model_validate(fields)


def test_what_is_just_possible_is_taken() -> None:
    assert Surge(times=2, absorb=2).recover == 180
    shortest = Surge(within=1, recover=1)
    assert (shortest.within, shortest.recover) == (1, 1)
    assert not ServiceTime(mean_ms=40, p99_ms=40, source="stated: a test").is_measured
    assert ServiceTime(mean_ms=40, p99_ms=40, source="measured on a host").is_measured
    assert ForecastBlock(days=("mon",), begins="08:30", share=1).minute == 510
