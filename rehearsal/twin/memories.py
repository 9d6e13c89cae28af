"""What a simulated cell's hosts remember: each its own plans, and each other's while they share a cache.

A host remembers what it answered, whoever planned it. A plan that one host made is known to the others within a window
of ten seconds here, and at once in a real cache: the twin's share of hits is a little low.
"""

from __future__ import annotations

import numpy as np

from rehearsal.twin.cell import Array, Cell
from rehearsal.twin.work import remembered


class Memories:
    """The plans that a cell's hosts remember, question by question."""

    def __init__(self, cell: Cell, question_share: Array, kept: float, seed: int, *, shared: bool) -> None:
        """Take cumulated shares of questions by rank, and `kept`, the seconds for which a plan is remembered."""
        self._rows, self._question_share, self._kept, self._seed = cell.remembered_until, question_share, kept, seed
        self.shared, self._oldest = shared, -1.0

    def settle(self, rate: float, hosts: int, now: float = 0.0) -> None:
        """Let hosts remember what they do after long at `rate` questions a second in the cell, over so many hosts."""
        rows, each = (1, rate) if self.shared else (len(self._rows), rate / max(hosts, 1))
        left = remembered(self._question_share, rows, each, self._kept, self._seed)
        self._rows[:] = np.where(left > 0, now + left, -1.0)

    def exchange(self) -> None:
        """Let every host know what the others have planned since the cache was empty, where they share one."""
        if self.shared:
            np.maximum(self._rows, np.where(self._rows > self._oldest, self._rows, -1.0).max(axis=0), out=self._rows)

    def lose_cache(self, rate: float, hosts: int, now: float) -> None:
        """Leave each host with what it answered itself."""
        self.shared = False
        self.settle(rate, hosts, now)

    def keep_own(self, rate: float, hosts: int, seconds: float) -> None:
        """Leave each host as much as a memory of the last seconds would hold, the cell being asked `rate` a second."""
        self.shared = False
        left = remembered(self._question_share, len(self._rows), rate / max(hosts, 1), seconds, self._seed)
        self._rows[:] = np.where(left > 0, self._rows, -1.0)

    def come_back(self, *, empty: bool) -> None:
        """Share again: what is planned from now on, or where the cache was only away, what it has been given, too."""
        self.shared, self._oldest = True, float(self._rows.max()) if empty else -1.0

    def forget(self) -> None:
        """Leave nobody anything; a shared cache is lost too."""
        self.shared = False
        self._rows[:] = -1.0
