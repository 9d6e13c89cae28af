"""The finding of a rule over a fleet file, in a module of its own because all modules of rules need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from infra.fleet.description import FleetDescription


@dataclass(frozen=True)
class Violation:
    """One broken rule: its place in the file, the message with its remedy, and the source of the rule."""

    field: str
    problem: str
    source: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem} [source: {self.source}]"


Rule = Callable[[FleetDescription], Iterator[Violation]]
