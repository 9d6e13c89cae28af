"""Callers' shards: the same at every synth, of the wanted size, and hardly moved by a new cell."""

from hypothesis import given
from hypothesis import strategies as st

from infra.fleet.settings import FLEETS, FleetSettings
from infra.fleet.shards import shard

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
names = st.from_regex(r"[a-z][a-z0-9]{0,20}", fullmatch=True)


@given(names)
def test_a_caller_gets_its_cells_every_time(caller: str) -> None:
    cells = shard(PRIME_DAY, caller)
    assert cells == shard(PRIME_DAY, caller)
    assert len(set(cells)) == PRIME_DAY.caller_shard_cells
    assert set(cells) <= set(PRIME_DAY.cell_names)


@given(names)
def test_a_new_cell_moves_at_most_one_of_a_caller_s_cells(caller: str) -> None:
    grown = PRIME_DAY.model_copy(update={"cells": PRIME_DAY.cells + 1})
    assert len(set(shard(PRIME_DAY, caller)) - set(shard(grown, caller))) <= 1


def test_callers_are_spread() -> None:
    shards = {shard(PRIME_DAY, f"caller-{number}") for number in range(200)}
    assert len(shards) == 20, "every three of six cells is somebody's"
