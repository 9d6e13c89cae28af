"""The cheapest fleets that hold: variants of a fleet file, cheapest first, through the scenarios that break fleets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.cost import Prices, bill
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from rehearsal.twin.rehearsal import NODES, Plan, attempt, breaking_point
from rehearsal.twin.scenarios import SCENARIOS, chosen
from rehearsal.twin.situation import event_of

# Those that break a fleet which is too small; the search tries them in this order and stops at the first that fails.
SCREENS = ("zone-lost", "slow-boots", "retries", "cell-out", "failing-release", "flash-x10", "flash-x4", "nominal")
WANTED = 5  # fleets that hold
_SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65)  # of the capacity that the file's own arithmetic keeps


@dataclass(frozen=True)
class Candidate:
    """A fleet that may do: its settings, and dollars an hour at the greatest event with the traffic of the file."""

    name: str
    settings: FleetSettings
    hourly: float

    @property
    def hosts(self) -> str:
        """The hosts of one cell at the greatest event, by type."""
        event = event_of(self.settings)
        return ", ".join(
            f"{sizing.instances_wanted(self.settings, group, event[1] if event else 1.0)} {group.instance_type}"
            for group in self.settings.groups
        )


def candidates(settings: FleetSettings, prices: Prices) -> list[Candidate]:
    """Return the fleet's variants that the settings accept, cheapest first: groups and capacity at events."""
    found = [
        Candidate(f"{mix}, {share:.0%} of the event's capacity", made, hourly(made, settings, prices))
        for mix, groups in _mixes(settings)
        for share in _SHARES
        if (made := _variant(settings, groups, share)) is not None
    ]
    return sorted(found, key=lambda each: each.hourly)


def hourly(made: FleetSettings, asked: FleetSettings, prices: Prices) -> float:
    """Return the dollars an hour of a variant at its greatest event, with the traffic of the fleet that was asked for.

    What goes with hosts is that of the variant's own capacity; what goes with requests is that of the real traffic.
    """
    kinds = tuple(group.instance_type for group in made.groups)
    own, real = event_of(made), event_of(asked)
    capacity = bill(made, prices, "capacity", own[1] if own else None)
    traffic = bill(made, prices, "traffic", real[1] if real else None)
    return sum(item.hourly for item in capacity.items if item.what.startswith(kinds)) + sum(
        item.hourly for item in traffic.items if not item.what.startswith(kinds)
    )


def search(plan: Plan, prices: Prices, pool: ProcessPoolExecutor, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the cheapest fleets that hold, then the shipped one: rows of the report's frontier.

    Each candidate goes through SCREENS at both numbers of nodes with one seed. Where it holds, so would a dearer one of
    the same groups, which is left out.
    """
    shipped = Candidate("as shipped", plan.settings, hourly(plan.settings, plan.settings, prices))
    rows: list[dict[str, Any]] = []
    done: set[tuple[str, ...]] = set()
    for candidate in candidates(plan.settings, prices):
        mix = tuple(group.instance_type for group in candidate.settings.groups)
        if mix in done or len(rows) >= WANTED:
            continue
        broken = _broken(replace(plan, settings=candidate.settings), plan, pool)
        say(f"{candidate.name}: ${candidate.hourly:,.0f} an hour: {broken or 'holds'}")
        if not broken:
            done.add(mix)
            rows.append(_row(candidate, plan, shipped.hourly, holds=True))
    broken = _broken(plan, plan, pool)
    say(f"{shipped.name}: ${shipped.hourly:,.0f} an hour: {broken or 'holds'}")
    return [*rows, _row(shipped, plan, shipped.hourly, holds=not broken)]


def _row(candidate: Candidate, plan: Plan, shipped: float, *, holds: bool) -> dict[str, Any]:
    mine = _with_traffic(replace(plan, settings=candidate.settings), plan)
    multiple = breaking_point(mine, SCENARIOS["zone-lost"]) if holds else None
    return {
        "name": candidate.name,
        "holds": holds,
        "hourly": round(candidate.hourly, 2),
        "saved": round(candidate.hourly / shipped - 1, 4),
        "hosts": candidate.hosts,
        # of the forecast of the file, not of what its events were lowered to
        "breaks_at": None if multiple is None else round(multiple / mine.peak * plan.peak, 2),
    }


def _with_traffic(plan: Plan, asked: Plan) -> Plan:
    """Return the plan with the peak at which its lowered events are asked what the file's own would be."""
    own, real = event_of(plan.settings), event_of(asked.settings)
    return replace(plan, peak=asked.peak * real[1] / own[1]) if own and real else plan


def _broken(plan: Plan, asked: Plan, pool: ProcessPoolExecutor) -> str:
    """Return the first scenario that a plan does not hold, with why; empty where it holds all."""
    possible = {scenario.name for scenario in chosen("all", asked.settings)[0]}
    for name in (name for name in SCREENS if name in possible):
        scenario = SCENARIOS[name]
        # A surge is promised in multiples of the file's own forecast: PEAK raises what is scheduled.
        mine = _with_traffic(plan, asked) if scenario.load == "event" else replace(plan, peak=1.0)
        for trial in pool.map(attempt, [mine.situation(scenario, nodes, 1) for nodes in NODES]):
            for judgement in trial.verdict.judgements:
                if not judgement.holds:
                    return f"{name}: {judgement}"
    return ""


def _mixes(settings: FleetSettings) -> Iterator[tuple[str, tuple[Group, ...]]]:
    """Yield the file's groups, and each alone with the room of all."""
    yield "+".join(group.instance_type for group in settings.groups), settings.groups
    if len(settings.groups) == 1:
        return
    for group in settings.groups:
        room = sum(sizing.full_rate(settings, each) * each.maximum for each in settings.groups)
        most = int(room / sizing.full_rate(settings, group))
        yield f"{group.instance_type} alone", (group.model_copy(update={"maximum": most}),)


def _variant(settings: FleetSettings, groups: tuple[Group, ...], share: float) -> FleetSettings | None:
    """Return the fleet with these groups and this share of the events' capacity; None where the settings refuse it."""
    quietest = min((block.share for block in settings.traffic.forecast), default=1.0)
    content = settings.model_dump()
    content["events"] = [
        event.model_dump() | {"multiplier": max(1.0, event.multiplier * share)} for event in settings.events
    ]
    trial = settings.model_copy(update={"groups": groups})
    content["groups"] = [group.model_dump() | {"minimum": sizing.floor_for(trial, group, quietest)} for group in groups]
    try:
        return FleetSettings.model_validate(content)
    except ValidationError:
        return None
