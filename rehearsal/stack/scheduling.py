"""How long a stack's threads ran, and waited for a processor, as Linux's scheduler counts it (its sched-stats.rst)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# `gateways` are the threads of their event loops, `replicas` those that plan, `hosts` the other threads of both.
KINDS = ("gateways", "replicas", "hosts", "envoy", "rest", "harness")
Thread = tuple[str, int, int]  # its kind, its process and its own id


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What some threads had of the processors: seconds that they ran and that they waited, and how often they ran."""

    ran: float = 0.0
    waited: float = 0.0
    turns: int = 0

    def __add__(self, other: Scheduled) -> Scheduled:
        return Scheduled(self.ran + other.ran, self.waited + other.waited, self.turns + other.turns)

    def __sub__(self, other: Scheduled) -> Scheduled:
        return Scheduled(self.ran - other.ran, self.waited - other.waited, self.turns - other.turns)

    @property
    def wait(self) -> float:
        """The seconds that a thread waited for each of its turns."""
        return self.waited / max(self.turns, 1)


def counted(kinds: Mapping[int, str]) -> dict[Thread, Scheduled]:
    """Return the counts so far of every thread of these process groups, whose kinds are given.

    A gateway leads its group, and starts each replica in another. `harness` is this process, the load generator in it.
    """
    found: dict[Thread, Scheduled] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            number = int(process.name)
            parent, group = map(int, (process / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[1:3])
            kind = "harness" if number == os.getpid() else kinds.get(group) or kinds.get(parent, "")
            for thread in process.glob("task/*") if kind else ():
                is_main = kind == "hosts" and thread.name == process.name
                plans = ("gateways" if number in kinds else "replicas") if is_main else kind
                found[plans, number, int(thread.name)] = _of_thread(thread)
    return found


def grown(before: Mapping[Thread, Scheduled], after: Mapping[Thread, Scheduled]) -> dict[str, Scheduled]:
    """Return by kind how much its threads' counts grew; of those that ended meanwhile nothing is known."""
    sums = dict.fromkeys(KINDS, Scheduled())
    for thread, count in after.items():
        sums[thread[0]] += count - before.get(thread, Scheduled())
    return sums


def _of_thread(thread: Path) -> Scheduled:
    ran, waited, turns = map(int, (thread / "schedstat").read_text(encoding="ascii").split())
    return Scheduled(ran / 1e9, waited / 1e9, turns)
