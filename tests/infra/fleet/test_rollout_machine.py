"""The rollout's state machine as an account takes it: names, and how long its executions' histories become."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from infra.fleet.replacement import careful, refresh_seconds
from infra.fleet.rollout_machine import definition
from infra.fleet.rollout_states import HISTORY_A_LOOK, LOOK_SECONDS, MOST_HISTORY, look_seconds
from infra.fleet.settings import FLEETS, FleetSettings
from tests.infra.moto_state_machines import state_names


def machine(name: str = "prime-day") -> dict[str, Any]:
    return definition(FleetSettings.from_yaml(FLEETS / f"{name}.yaml"))


def leads_to(state: Mapping[str, Any]) -> Iterator[str]:
    """The states that may follow, but for what a failure leads to."""
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


def test_no_two_states_have_one_name() -> None:
    names = list(state_names(machine()))
    assert len(names) == len(set(names)), "an account refuses it: DUPLICATE_STATE_NAME"
    assert {"Gate", "BackLook", "CellRun", "OverRun", "ReturnRun"} <= set(names)


@pytest.mark.parametrize("name", ["Waves", "Over", "ReturnCells"])
def test_what_looks_for_hours_has_an_execution_of_its_own(name: str) -> None:
    """A map's states are in the history of the execution that has it, and so would each look at each cell be."""
    inner = machine()["States"][name]["ItemProcessor"]["States"]
    inner = inner["Cells"]["ItemProcessor"]["States"] if "Cells" in inner else inner
    assert not [state for state in inner.values() if state["Type"] == "Wait"]
    run = next(state for state in inner.values() if state["Type"] == "Task")
    assert run["Resource"].endswith(":states:startExecution.sync:2")
    assert run["Parameters"]["StateMachineArn.$"] == "$$.StateMachine.Id"


@pytest.mark.parametrize("wait", ["Wait", "BackWait"])
def test_a_look_is_no_more_events_than_counted(wait: str) -> None:
    assert longest(machine()["States"], wait, wait, frozenset({wait})) <= HISTORY_A_LOOK


@pytest.mark.parametrize("name", ["dev", "dev-cpu", "prime-day", "prime-day-small"])
def test_the_history_of_a_cell_s_execution_has_room_for_a_move_that_takes_twice_as_long(name: str) -> None:
    fleet = FleetSettings.from_yaml(FLEETS / f"{name}.yaml")
    seconds = 2 * refresh_seconds(fleet, careful(fleet)) + 60 * fleet.rollout.canary_bake_minutes
    assert look_seconds(seconds) == LOOK_SECONDS
    assert seconds / LOOK_SECONDS * HISTORY_A_LOOK < MOST_HISTORY


def test_a_cell_that_bakes_overnight_is_looked_at_less_often_and_one_that_bakes_a_day_is_refused() -> None:
    overnight = look_seconds(12 * 3600)
    assert overnight is not None
    assert 12 * 3600 / overnight * HISTORY_A_LOOK <= MOST_HISTORY
    assert look_seconds(24 * 3600) is None
