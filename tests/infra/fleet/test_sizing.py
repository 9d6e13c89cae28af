"""The arithmetic of instances, worked by hand for dev, and of callers over cells."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.cost import Prices, bills, mean_floor
from infra.fleet.demand import Event, ServiceTime, Surge
from infra.fleet.network_parts import Caller
from infra.fleet.parts import Group
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.shards import fullest_share, shards
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


def test_rates_are_a_second_s() -> None:
    assert sizing.full_rate(DEV, INF2) == 2 * 1000 / 40
    assert sizing.instance_rate(DEV, INF2) == pytest.approx(50 * UTILISATION)
    assert [sizing.fleet_rate(DEV, multiplier) for multiplier in (1, 2.5)] == [50, 125]
    # Six hosts at most and four at most, all as fast.
    assert [sizing.group_rate(DEV, group) for group in (INF2, TRN1)] == pytest.approx([30, 20])
    slower = DEV.model_copy(update={"groups": (timed(80, 90), TRN1)})
    assert sizing.group_rate(slower, slower.groups[0], 2) == pytest.approx(100 * 3 / 7)


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


@pytest.mark.parametrize(("times", "grown"), [(5, 0.578), (1.8, 0.241), (1.5, 0), (1, 0)])
def test_recovery_waits_for_the_law_the_metrics_and_a_start(times: float, grown: float) -> None:
    """A law that aims below full use asks for enough before all of the surge is there."""
    waited = 35 + DEV.warm_start_seconds + 10
    assert sizing.surge_recovery_seconds(surging(times=times), INF2) == pytest.approx(60 * grown + waited, abs=0.1)


@pytest.mark.parametrize(
    ("reserves", "multiplier", "units"), [(True, 2, 100), (True, 1, 0), (True, 1000, 450), (False, 2, 0), (False, 1, 0)]
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


PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
names = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True), min_size=1, max_size=12, unique=True)


def called_by(*callers: str, cells: int = 6, **shares: float) -> FleetSettings:
    made = tuple(Caller(name=name, cidrs=("10.0.0.0/12",), share=shares.get(name)) for name in callers)  # type: ignore[arg-type]
    return PRIME_DAY.model_copy(update={"callers": made, "cells": cells})


@given(names)
def test_callers_get_their_cells_every_time(callers: list[str]) -> None:
    fleet = called_by(*callers)
    assert shards(fleet) == shards(called_by(*reversed(callers)))
    for cells in shards(fleet).values():
        assert len(set(cells)) == PRIME_DAY.caller_shard_cells
        assert set(cells) <= set(fleet.cell_names)


@given(names)
def test_no_cell_stands_idle_while_another_has_two_callers(callers: list[str]) -> None:
    counts = dict.fromkeys(PRIME_DAY.cell_names, 0)
    for cells in shards(called_by(*callers)).values():
        for cell in cells:
            counts[cell] += 1
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_caller_with_nine_tenths_of_the_load_over_two_cells_gets_what_it_needs() -> None:
    fleet = called_by("large", "small", large=0.9, small=0.1).model_copy(update={"caller_shard_cells": 2})
    assert not set(shards(fleet)["large"]) & set(shards(fleet)["small"])
    assert fullest_share(fleet) == pytest.approx(0.45)
    group = fleet.groups[0]
    assert sizing.group_rate(fleet, group) == pytest.approx(2.7 * sizing.group_rate(PRIME_DAY, group))


def test_equal_cells_are_shuffled_for_each_caller() -> None:
    """Two fleets' first callers rarely have the same cells, so that one's poison spares the other."""
    pairs = {shards(called_by(name))[name] for name in (f"caller-{number}" for number in range(40))}
    assert len(pairs) > 10, "of fifteen pairs of six cells"


def test_callers_without_a_share_choose_as_if_they_shared_the_rest() -> None:
    fleet = called_by("small", "b", "c", "d", cells=4, small=0.1).model_copy(update={"caller_shard_cells": 2})
    load = dict.fromkeys(fleet.cell_names, 0.0)
    for name, cells in shards(fleet).items():
        for cell in cells:
            load[cell] += (0.1 if name == "small" else 0.3) / 2
    assert sorted(load.values()) == pytest.approx([0.2, 0.2, 0.3, 0.3])


def test_the_largest_caller_chooses_first_so_that_the_others_can_make_room_for_it() -> None:
    fleet = called_by("a", "b", "large", cells=2, a=0.25, b=0.25, large=0.5)
    fleet = fleet.model_copy(update={"caller_shard_cells": 1})
    of = shards(fleet)
    assert of["a"] == of["b"] != of["large"]
    assert fullest_share(fleet) == pytest.approx(0.5), "and not 0.75, which every cell would be sized for"


def test_a_caller_that_a_cell_cannot_carry_is_refused_with_the_number() -> None:
    callers = [
        {"name": "large", "cidrs": ["10.0.0.0/12"], "share": 0.9},
        {"name": "small", "cidrs": ["10.32.0.0/12"], "share": 0.1},
    ]
    changes = {"cells": 4, "caller_shard_cells": 2, "traffic.plans_per_minute": 16_000}
    dev_fleet(changes)
    with pytest.raises(ValidationError, match=r"needs 8 inf2\.xlarge a cell"):
        dev_fleet(changes | {"callers": callers})


@pytest.mark.parametrize("shares", [(0.7, 0.4), (0.5, 0.4)])
def test_shares_that_do_not_add_up_are_refused(shares: tuple[float, float]) -> None:
    callers = [
        {"name": f"caller-{index}", "cidrs": ["10.0.0.0/12"], "share": each} for index, each in enumerate(shares)
    ]
    with pytest.raises(ValidationError, match=f"shares add up to {sum(shares):g}"):
        dev_fleet({"callers": callers})


def test_a_first_cell_of_weight_0_has_no_callers_and_the_others_are_sized_for_its_part() -> None:
    network = PRIME_DAY.network.model_copy(update={"cell_weights": (0, 1, 1, 1, 1, 1)})
    fleet = PRIME_DAY.model_copy(update={"network": network})
    assert set().union(*shards(fleet).values()) == set(PRIME_DAY.cell_names[1:])
    assert fullest_share(fleet) == pytest.approx(2 * 0.5 / 3), "each caller on three of five cells, one of them on both"
    assert fullest_share(fleet.model_copy(update={"callers": called_by("one").callers})) == pytest.approx(1 / 5)


def test_no_caller_is_spread_over_more_cells_than_have_callers() -> None:
    with pytest.raises(ValidationError, match="2 of 1 cells with callers"):
        dev_fleet({"cells": 2, "caller_shard_cells": 2, "network.cell_weights": [0, 1]})


def test_a_sandbox_has_a_host_of_each_kind_and_costs_so_much() -> None:
    fleet = dev_fleet({"cells": 3, "network.cell_weights": [0, 1, 1], "groups.0.reserve": True})
    assert fleet.of_cell("cell-2") is fleet
    small = fleet.of_cell("cell-1")
    laws = [ScalingLaw.for_group(small, group) for group in small.groups]
    assert [(law.minimum, law.maximum, law.schedule) for law in laws] == [(1, 2, ())] * 2
    assert not any(group.reserve for group in small.groups)
    ordinary, _ = bills(fleet, Prices.from_json())
    hosts = {item.what: item.count for item in ordinary.items if item.what.endswith("in service")}
    assert hosts == {f"{group.instance_type} in service": 2 * mean_floor(fleet, group) + 1 for group in fleet.groups}
