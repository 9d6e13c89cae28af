"""The dashboard's row for shoppers: is the event going well for them?"""

from __future__ import annotations

from collections.abc import Sequence

from infra.constructs.graphs import Graph
from infra.constructs.names import CellNames
from infra.fleet.alarm_kinds import Reading
from infra.fleet.alarms import percent
from infra.fleet.settings import FleetSettings
from infra.fleet.shopper_alarms import EVERYWHERE, HERE, HOUR_SECONDS


def shopper_graphs(settings: FleetSettings, cells: Sequence[CellNames]) -> list[Graph]:
    """Return three graphs: time to the first answer, clicks and purchases by cell, searches without result."""

    def graph(title: str, period: int) -> Graph:
        return Graph(title, fleet=settings.name, region=settings.region, period=period)

    first = graph("Shoppers: time to the first answer, ms", 300)
    chosen = graph("Shoppers: plans with a click, % | a purchase, % (right)", HOUR_SECONDS)
    for names in cells:
        for statistic in ("p50", "p99"):
            time = {"time": Reading("FirstAnswerTime", none_is_zero=False, asked=statistic)}
            first.curve(f"{names.cell} {statistic}", "time", time, [names])
        for metric, word in (("AnswersClicked", "clicks"), ("AnswersBought", "purchases")):
            readings = {"part": Reading(metric, HERE), "all": Reading("AnswersShown", HERE)}
            share = percent("part", "all", 1)
            chosen.curve(f"{names.cell} {word}", share, readings, [names], right=word == "purchases")
    empty = graph("Shoppers: plans shown, events | without result, % (right)", 300)
    shown = {"all": Reading("AnswersShown", EVERYWHERE)}
    empty.curve("shown", "all", shown, cells[:1])
    for metric in ("EventsKept", "EventsSpilled", "EventsRefused", "EventsHeldUp"):
        empty.curve(metric, "count", {"count": Reading(metric)}, cells)
    without = shown | {"part": Reading("AnswersEmpty", EVERYWHERE)}
    empty.curve("without result %", percent("part", "all", 1), without, cells[:1], right=True)
    return [first, chosen, empty]
