"""Callers' cells: the same at every synth, of the wanted size, none idle; and every cell sized for the fullest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.cost import Prices, bills, mean_floor
from infra.fleet.network_parts import Caller
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.shards import fullest_share, shards
from tests.infra.fleet.fleets import dev_fleet

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


def test_prime_day_s_two_callers_have_all_six_cells_between_them() -> None:
    first, second = shards(PRIME_DAY).values()
    assert sorted(first + second) == sorted(PRIME_DAY.cell_names)


def test_without_stated_shares_the_load_spreads_evenly() -> None:
    assert fullest_share(PRIME_DAY) == pytest.approx(1 / 6)
    assert sizing.cell_rate(PRIME_DAY) == pytest.approx(sizing.fleet_rate(PRIME_DAY) / 6)


def test_a_caller_with_nine_tenths_of_the_load_over_two_cells_gets_what_it_needs() -> None:
    fleet = called_by("large", "small", large=0.9, small=0.1).model_copy(update={"caller_shard_cells": 2})
    assert not set(shards(fleet)["large"]) & set(shards(fleet)["small"])
    assert fullest_share(fleet) == pytest.approx(0.45)
    group = fleet.groups[0]
    assert sizing.group_rate(fleet, group) == pytest.approx(2.7 * sizing.group_rate(PRIME_DAY, group))


def test_equal_cells_are_shuffled_for_each_caller() -> None:
    """Two fleets' first callers rarely have the same cells, so that what one name's poison hits is no one else's."""
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
