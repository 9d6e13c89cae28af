"""The arithmetic of instances, worked by hand for dev, and of callers over cells."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from redis.asyncio import Redis

from infra.fleet import sizing
from infra.fleet.alarms import cell_alarms
from infra.fleet.cost import Prices, bill, bills, mean_floor
from infra.fleet.demand import Event, ServiceTime, Surge
from infra.fleet.network_parts import Caller
from infra.fleet.parts import Group
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.shards import fullest_share, shards
from infra.fleet.shared_cache import BYTES_AN_ENTRY, KEPT_SECONDS, SharedCache
from service.engines.protocol import QuestionMeaning
from service.planner.caching import CachedPlanText
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.redis_plan_cache import _PREFIX, RedisPlanCache
from service.planner.vocabulary import shipped_vocabulary
from service.settings.groups import CacheSettings
from tests.infra.fleet.fleets import dev_fleet
from tests.redis_server import needs_redis, redis_server

DEV = dev_fleet()
INF2, TRN1 = DEV.groups
UTILISATION = 1 - 40 * math.log(100) / (2 * (300 - 60))  # 0.616


def timed(mean_ms: float, p99_ms: float) -> Group:
    time = ServiceTime(mean_ms=mean_ms, p99_ms=p99_ms, source="stated: a test")
    return INF2.model_copy(update={"service_time": time})


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


PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
names = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True), min_size=1, max_size=12, unique=True)


def called_by(*callers: str, cells: int = 6, **shares: float) -> FleetSettings:
    made = tuple(Caller(name=name, cidrs=("10.0.0.0/12",), share=shares.get(name)) for name in callers)  # type: ignore[arg-type]
    return PRIME_DAY.model_copy(update={"callers": made, "cells": cells})


@given(names)
def test_callers_get_their_cells_every_time_and_none_stands_idle_while_another_has_two(callers: list[str]) -> None:
    fleet = called_by(*callers)
    assert shards(fleet) == shards(called_by(*reversed(callers)))
    counts = dict.fromkeys(fleet.cell_names, 0)
    for cells in shards(fleet).values():
        assert len(set(cells)) == PRIME_DAY.caller_shard_cells
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


def test_a_first_cell_of_weight_0_has_no_callers_and_the_others_are_sized_for_its_part() -> None:
    network = PRIME_DAY.network.model_copy(update={"cell_weights": (0, 1, 1, 1, 1, 1)})
    fleet = PRIME_DAY.model_copy(update={"network": network})
    assert set().union(*shards(fleet).values()) == set(PRIME_DAY.cell_names[1:])
    assert fullest_share(fleet) == pytest.approx(2 * 0.5 / 3), "each caller on three of five cells, one of them on both"
    assert fullest_share(fleet.model_copy(update={"callers": called_by("one").callers})) == pytest.approx(1 / 5)


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


# Longer than what the model writes for almost any question.
TEXT = " find Type " + "quiet blender for smoothies and soups " * 6 + "Not ninja Price 0 100 Any"


@needs_redis
@pytest.mark.anyio
async def test_an_entry_takes_no_more_room_than_the_rule_reckons_with(tmp_path: Path) -> None:
    key = PlanTask(Question.parse("quiet blender", []), shipped_vocabulary()).key("qp-smollm2-135m@" + "0" * 64)
    with redis_server(tmp_path) as server:
        memory = RedisPlanCache(server.url, timeout=0.5, seconds=60, secret="a key")
        meaning = QuestionMeaning("0" * 16, (0.5,) * 128, 1.0).packed()
        encoded = memory._encode(key, CachedPlanText(TEXT, "qp-smollm2-135m", "medusa", meaning))
        async with Redis.from_url(server.url) as client:
            await client.set(_PREFIX + key, encoded, px=60_000)
            used = await client.memory_usage(_PREFIX + key)
        await memory.close()
    assert used is not None
    assert 0 < used <= BYTES_AN_ENTRY


def test_a_cache_with_too_little_room_is_refused_with_the_number() -> None:
    assert CacheSettings().seconds == KEPT_SECONDS, "plans are kept as long as the gateway keeps them"
    prime_day = PRIME_DAY.model_dump(exclude_unset=True)
    with pytest.raises(ValidationError, match=r"cache\.t4g\.small has 1\.0 GiB for plans, .* may bring 1\.9"):
        FleetSettings.model_validate(prime_day | {"shared_cache": {"node_type": "cache.t4g.small"}})
    off = FleetSettings.model_validate(prime_day | {"shared_cache": {"node_type": "cache.t4g.small", "enabled": False}})
    assert not off.shared_cache.enabled


def test_one_line_leaves_it_out_with_its_alarms_and_its_price() -> None:
    with_it, without = dev_fleet(), dev_fleet({"shared_cache": {"enabled": False}})
    keys = [{alarm.key for alarm in cell_alarms(each)} for each in (with_it, without)]
    assert keys[0] - keys[1] == {"shared-cache-down", "shared-cache-full"}
    prices = Prices.from_json()
    nodes = with_it.shared_cache.nodes * with_it.cells * prices.cache_node_hour[with_it.shared_cache.node_type]
    watched = bill(with_it, prices, "day", 1.0).hourly - bill(without, prices, "day", 1.0).hourly
    assert nodes < watched < nodes + 0.01
    assert SharedCache().enabled
