"""What hosts still know when their shared cache is lost, and what they hear of each other once it is back."""

from types import SimpleNamespace
from typing import cast

import numpy as np

from rehearsal.twin.cell import Cell
from rehearsal.twin.memories import Memories

SHARES = np.cumsum(np.full(100, 0.01))


def memories(rows: np.ndarray) -> Memories:
    cell = cast(Cell, SimpleNamespace(remembered_until=rows))
    return Memories(cell, SHARES, 300.0, seed=1, shared=True)


def test_without_the_cache_each_host_keeps_what_it_was_asked_itself() -> None:
    rows = np.full((4, 100), 50.0)
    hosts = memories(rows)

    hosts.keep_own(rate=40.0, hosts=4, seconds=10.0)  # each question once a host, in the mean

    assert 0.4 < (rows > 0).mean() < 0.6, "as of a memory of so many seconds: it is known as long as it is not"
    assert set(rows.ravel()) == {50.0, -1.0}
    assert len({tuple(row > 0) for row in rows}) == 4, "others at each"


def test_a_cache_that_comes_back_empty_knows_only_what_is_planned_since() -> None:
    for empty in (True, False):
        rows = np.full((2, 100), -1.0)
        rows[0, :10] = 50.0
        hosts = memories(rows)
        hosts.shared = False
        hosts.exchange()
        assert (rows[1] == -1.0).all()

        hosts.come_back(empty=empty)
        rows[0, 20] = 80.0
        hosts.exchange()

        assert rows[1, 20] == 80.0
        assert (rows[1, :10] == (-1.0 if empty else 50.0)).all()
