"""What a neighbour takes is measured in turns, and the neighbour is gone when its turn is over."""

import os
from pathlib import Path
from typing import Any

import pytest

from rehearsal.bench import neighbour as module
from service.settings import Settings


def test_sizes_and_neighbours_take_turns_and_the_best_is_compared_with_forwards_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[tuple[int, int]] = []

    def plans_per_second(_: Any, asked: Any, size: int) -> float:
        turns.append((len(asked), size))
        return 10.0 * size

    monkeypatch.setattr(module, "plans_per_second", plans_per_second)
    monkeypatch.setattr(module, "run", lambda *_: None)
    beside = {"nobody": module.nobody, "somebody": module.nobody}
    found = module.measure(Any, [Any] * 6, [1, 3], 2, beside, lambda: 20.0)  # type: ignore[arg-type, list-item]

    assert turns == [(3, 1), (3, 3)] * 4
    assert found["somebody"] == {
        "gigabytes_per_second_left": 20.0,
        "plans_per_second": {"1": 10.0, "3": 30.0},
        "best_over_own_copies": 3.0,
    }


def test_a_neighbour_reads_until_its_turn_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    core = min(os.sched_getaffinity(0))
    started: list[Any] = []
    popen = module.subprocess.Popen
    monkeypatch.setattr(module.subprocess, "Popen", lambda *words: started.append(popen(*words)) or started[-1])

    with module.neighbour(core, Settings().cache_dir):
        assert started[0].poll() is None
        assert Path(f"/proc/{started[0].pid}").exists()

    assert started[0].poll() is not None
