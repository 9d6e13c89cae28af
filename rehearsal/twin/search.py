"""The cheapest fleets that hold: variants of a fleet file, priced by the hosts that run over the greatest event's day.

A variant is a mix of instance types and a share of the hosts that the file keeps ready for its events; what is missing,
its scaling law adds. The scenario that breaks most fleets is tried first, with the same requests for every variant
(common random numbers), and the first that a variant does not hold ends its trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from infra.fleet import sizing
from infra.fleet.cost import Prices, bill
from infra.fleet.cost_report import CPU_TYPES, cpu_service_time
from infra.fleet.parts import Group
from infra.fleet.settings import FleetSettings
from rehearsal.twin.alarms import fired
from rehearsal.twin.rehearsal import NODES, Outcome, Plan, Trial, attempt, breaking_point
from rehearsal.twin.scenarios import SCENARIOS, Scenario, chosen, event_of
from rehearsal.twin.work import Work

# Those that break a fleet which is too small, the hardest first; all the others only for the cheapest fleet.
SCREENS = ("empty-pool", "flash-x10", "failing-release", "cell-out", "slow-release", "retries", "fail-fast", "nominal")
WANTED = 2  # fleets of the file's own instance types that hold, and one of processors
SHARES = tuple(percent / 100 for percent in range(40, 101, 5))
BREAKS = ("zone-lost", "empty-pool")  # at which multiple of the forecast does it break?
_GLANCE = 300  # seconds after the fault that a first look takes
WorkOf = Callable[[FleetSettings], Work]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Candidate:
    """A fleet that may do. `guess` are the dollars an hour that its law's arithmetic gives, without any simulation."""

    mix: str
    share: float
    settings: FleetSettings
    guess: float

    @property
    def name(self) -> str:
        """What is different from the file."""
        return f"{self.mix}, {self.share:.0%} of the event's hosts" if self.share < 1 else self.mix

    @property
    def change(self) -> str:
        """What to write into the fleet file."""
        groups = [f"{each.instance_type} {each.minimum}..{each.maximum}" for each in self.settings.groups]
        event = event_of(self.settings)
        return f"groups: {', '.join(groups)}" + (f"; events: multiplier {event[1]:g}" if event else "")


@dataclass(frozen=True)
class Found:
    """Rows of the report's frontier, the cheapest first, and how the cheapest of the file's own types did."""

    rows: list[dict[str, Any]]
    plan: Plan
    outcomes: list[Outcome]


def search(plan: Plan, work_of: WorkOf, prices: Prices, pool: ProcessPoolExecutor, say: Say) -> Found:
    """Return the cheapest fleets that hold and the shipped one, whether it holds or not."""
    asked = Asked(plan, work_of, prices, pool, say)
    shipped = Candidate("as shipped", 1.0, plan.settings, asked.guess(plan.settings))
    own, processors = ([ladder for ladder in made if ladder[0].guess < shipped.guess] for made in asked.ladders())
    found = [*asked.cheapest(own, WANTED), *asked.cheapest(processors, 1, thorough=False)]
    trials, broken = asked.screen(shipped, SCREENS)
    found.append((shipped, trials, broken))
    dollars = asked.dollars(shipped, trials)
    rows = [asked.row(candidate, trials, broken, dollars) for candidate, trials, broken in found]
    best, shown, _ = found[0]
    mine = asked.plan_of(best)
    return Found(
        sorted(rows, key=lambda row: (not row["holds"], row["hourly"])),
        replace(plan, work=mine.work),
        _outcomes(shown, mine.settings, rows[0]["breaks_at"]),
    )


@dataclass(frozen=True)
class Asked:
    """What each fleet has to carry: the traffic of `plan`, at its peak."""

    plan: Plan
    work_of: WorkOf
    prices: Prices
    pool: ProcessPoolExecutor
    say: Say

    def ladders(self) -> tuple[list[list[Candidate]], list[list[Candidate]]]:
        """Return each mix's candidates by rising share: those of the file's own instance types, and processors.

        Of processors the type is taken that should be cheapest. What the settings refuse is left out.
        """
        settings = self.plan.settings
        own = [self._ladder(name, groups) for name, groups in mixes(settings)]
        others = [self._ladder(f"{each.instance_type} alone", (each,)) for each in processors(settings)]
        others = sorted((ladder for ladder in others if ladder), key=lambda ladder: ladder[-1].guess)
        return [ladder for ladder in own if ladder], others[:1]

    def guess(self, made: FleetSettings) -> float:
        """Return dollars an hour over the day if the law asked for what its target needs, at once."""
        curve, own = self.plan.curve.relative, event_of(made)
        rates = curve * self._peak() * sizing.cell_rate(made)
        shares = [0.0 if group.stands_in else group.maximum * sizing.full_rate(made, group) for group in made.groups]
        running = {}
        for group, share in zip(made.groups, shares, strict=True):
            wanted = sizing.instances_wanted(made, group, own[1]) if own else sizing.floor_for(made, group)
            floor = max(wanted, group.minimum if group.stands_in else 0)
            asked = np.ceil(rates * share / sum(shares) / sizing.instance_rate(made, group))
            running[group.instance_type] = float(np.clip(asked, floor, group.maximum).mean()) * made.cells
        return self._bill(made, running)

    def dollars(self, candidate: Candidate, trials: Sequence[Trial]) -> float:
        """Return dollars an hour over the simulated day, or the guess where the day was not reached."""
        day = next((trial for trial in trials if trial.situation.whole), None)
        if day is None:
            return candidate.guess
        made = candidate.settings
        hosts = zip(made.groups, day.course.mean_hosts, strict=True)
        return self._bill(made, {group.instance_type: mean * made.cells for group, mean in hosts})

    def cheapest(
        self, ladders: Sequence[list[Candidate]], wanted: int, *, thorough: bool = True
    ) -> Iterator[tuple[Candidate, list[Trial], str]]:
        """Yield up to `wanted` candidates that hold, one a ladder, by rising guess; the first holds everything."""
        first = self.pool.map(_lowest, [[self.plan_of(each) for each in ladder] for ladder in ladders])
        open_ladders = [ladder[index:] for ladder, index in zip(ladders, first, strict=True)]
        while wanted and (open_ladders := sorted(filter(None, open_ladders), key=lambda ladder: ladder[0].guess)):
            candidate = open_ladders[0].pop(0)
            rest = [name for name in SCENARIOS if name not in SCREENS] if thorough else []
            trials, broken = self.screen(candidate, [*SCREENS[:-1], *rest, SCREENS[-1]])
            if not broken:
                yield candidate, trials, ""
                open_ladders[0].clear()  # the dearer ones of the same mix hold, too
                wanted, thorough = wanted - 1, False

    def screen(self, candidate: Candidate, names: Sequence[str]) -> tuple[list[Trial], str]:
        """Return the trials of a candidate, and what it broke at; empty where it holds all that is possible here."""
        plan, possible = self.plan_of(candidate), {each.name for each in chosen("all", self.plan.settings)[0]}
        trials: list[Trial] = []
        for name in (name for name in names if name in possible):
            trials += self._trials(plan, SCENARIOS[name])
            for judgement in (each for trial in trials[-len(NODES) :] for each in trial.verdict.judgements):
                if not judgement.holds:
                    self.say(f"{candidate.name}, about ${candidate.guess:,.0f} an hour: {name}: {judgement}")
                    return trials, f"{name}: {judgement}"
        self.say(f"{candidate.name}: ${self.dollars(candidate, trials):,.0f} an hour: holds")
        return trials, ""

    def row(self, candidate: Candidate, trials: Sequence[Trial], broken: str, shipped: float) -> dict[str, Any]:
        """Return the report's row of a candidate."""
        plan, hourly, made = self.plan_of(candidate), self.dollars(candidate, trials), candidate.settings
        is_own = {group.instance_type for group in made.groups} <= self._types
        ground = f"measured{'' if is_own else ' elsewhere'}" if plan.work.is_measured else "stated"
        day = next((trial.course.mean_hosts for trial in trials if trial.situation.whole), ())
        scale = plan.peak / self.plan.peak
        breaking = {name: self.pool.submit(breaking_point, plan, SCENARIOS[name]) for name in BREAKS if not broken}
        return {
            "name": candidate.name,
            "change": "" if made is self.plan.settings else candidate.change,
            "holds": not broken,
            "broken": broken,
            "hourly": round(hourly, 2),
            "saved": round(1 - hourly / shipped, 4),
            "week_hourly": round(bill(self._with_traffic(made), self.prices, "", None).hourly, 2),
            "hosts": ", ".join(
                f"{mean:.0f} {group.instance_type}" for group, mean in zip(made.groups, day, strict=False)
            ),
            # of the forecast of the file, not of what its events were lowered to
            "breaks_at": {name: round(each.result() / scale, 2) for name, each in breaking.items()},
            "own_types": is_own,
            "service_times": ground,
        }

    def plan_of(self, candidate: Candidate) -> Plan:
        """Return the plan that asks a candidate, whose events were lowered, for what the file's own would be asked."""
        own = event_of(candidate.settings)
        peak = self._peak() / (own[1] if own else 1.0)
        return replace(self.plan, settings=candidate.settings, work=self.work_of(candidate.settings), peak=peak)

    def _trials(self, plan: Plan, scenario: Scenario) -> list[Trial]:
        """Return a scenario's trials at both numbers of nodes, and the whole day at the greater one."""
        # A surge is promised in multiples of the file's own forecast: PEAK raises what is scheduled.
        mine = plan if scenario.load == "event" else replace(plan, peak=1.0)
        situations = [mine.situation(scenario, nodes, 1) for nodes in NODES]
        if scenario.name == "nominal":
            situations[-1] = replace(situations[-1], whole=True)
        return list(self.pool.map(attempt, situations))

    @property
    def _types(self) -> set[str]:
        return {group.instance_type for group in self.plan.settings.groups}

    def _peak(self) -> float:
        """Return the peak as a multiple of ordinary traffic."""
        event = event_of(self.plan.settings)
        return self.plan.peak * (event[1] if event else 1.0)

    def _bill(self, made: FleetSettings, running: dict[str, float]) -> float:
        event = event_of(self.plan.settings)
        return bill(self._with_traffic(made), self.prices, "", event[1] if event else 1.0, running).hourly

    def _with_traffic(self, made: FleetSettings) -> FleetSettings:
        """Return a variant with the events of the file: what goes with requests is that of the real traffic."""
        return made.model_copy(update={"events": self.plan.settings.events})

    def _ladder(self, mix: str, groups: tuple[Group, ...]) -> list[Candidate]:
        found: dict[str, Candidate] = {}
        for share in SHARES:
            if (made := variant(self.plan.settings, groups, share)) is not None:
                candidate = Candidate(mix, share, made, self.guess(made))
                floors = [event_floor(made, group) for group in made.groups]
                found[str(floors)] = candidate  # of equal ones, the greater share: the least is changed
        return list(found.values())


def _lowest(plans: Sequence[Plan]) -> int:
    """Return the first of plans with rising capacity that passes a first look, by bisection."""
    low, high = 0, len(plans) - 1
    while low < high:
        middle = (low + high) // 2
        situation = plans[middle].situation(SCENARIOS[SCREENS[0]], max(NODES), 1)
        low, high = (low, middle) if attempt(replace(situation, after=_GLANCE)).verdict.holds else (middle + 1, high)
    return low


def _outcomes(trials: Sequence[Trial], settings: FleetSettings, breaks_at: dict[str, float]) -> list[Outcome]:
    outcomes = []
    for name, scenario in SCENARIOS.items():
        mine = tuple(trial for trial in trials if trial.situation.scenario.name == name)
        if mine:
            outcome = Outcome(scenario, mine, (), breaks_at.get(name))
            outcomes.append(replace(outcome, alarms=tuple(fired(outcome.worst.course, scenario, settings))))
    return outcomes


def untimed(settings: FleetSettings) -> dict[str, str]:
    """Return the processors that the search leaves out because nobody has timed a plan on them, and why."""
    if any(group.engine == "torch" for group in sized(settings)):
        return {}
    why = (
        "not among the processors: no plan was timed on one, and where a formula flatters it, it would win. Put it "
        "into groups with a service_time of your own, and the search takes it for what the file says"
    )
    times = {kind: cpu_service_time(kind) for kind in CPU_TYPES}
    return {kind: why for kind, time in times.items() if time is None or not time.is_measured}


def event_floor(settings: FleetSettings, group: Group) -> tuple[int, int]:
    event = event_of(settings)
    return group.minimum, sizing.instances_wanted(settings, group, event[1]) if event else 0


def mixes(settings: FleetSettings) -> Iterator[tuple[str, tuple[Group, ...]]]:
    """Yield the file's groups, each alone with the room of all, and less of the second.

    What stands in stands in beside each, as it is in the file.
    """
    groups, beside = sized(settings), tuple(group for group in settings.groups if group.stands_in)
    rates = [sizing.full_rate(settings, group) for group in groups]
    room = sum(rate * group.maximum for rate, group in zip(rates, groups, strict=True))
    if len(groups) == 1:
        yield f"{groups[0].instance_type} alone", (*groups, *beside)
        return
    yield "the file's types", (*groups, *beside)
    for group, rate in zip(groups, rates, strict=True):
        yield f"{group.instance_type} alone", (group.model_copy(update={"maximum": int(room / rate)}), *beside)
    fewer = groups[1].maximum // 2
    more = int((room - rates[1] * fewer) / rates[0])
    both = (groups[0].model_copy(update={"maximum": more}), groups[1].model_copy(update={"maximum": fewer}))
    yield f"the file's types with half of the {groups[1].instance_type}", (*both, *beside)


def sized(settings: FleetSettings) -> tuple[Group, ...]:
    return tuple(group for group in settings.groups if not group.stands_in)


def processors(settings: FleetSettings) -> Iterator[Group]:
    """Yield groups of processors with the room of the file's, if it has none: one core a replica.

    A processor that nobody has measured is left out: where the formula flatters it, it would win.
    """
    if any(group.engine == "torch" for group in sized(settings)):
        return
    room = sum(sizing.full_rate(settings, group) * group.maximum for group in sized(settings))
    for kind in CPU_TYPES:
        time = cpu_service_time(kind)
        if time is None or not time.is_measured:
            continue
        group = Group(instance_type=kind, engine="torch", service_time=time, minimum=0, maximum=1)
        needed = sizing.floor_for(settings.model_copy(update={"groups": (group,)}), group)  # a host a zone at least
        yield group.model_copy(update={"maximum": max(int(room / sizing.full_rate(settings, group)) + 1, needed)})


def variant(settings: FleetSettings, groups: tuple[Group, ...], share: float) -> FleetSettings | None:
    """Return the fleet with these groups and this share of the events' capacity; None where the settings refuse it."""
    quietest = min((block.share for block in settings.traffic.forecast), default=1.0)
    content = settings.model_dump()
    content["events"] = [
        event.model_dump() | {"multiplier": max(1.0, round(event.multiplier * share, 4))} for event in settings.events
    ]
    trial = settings.model_copy(update={"groups": groups})
    floors = [group.minimum if group.stands_in else sizing.floor_for(trial, group, quietest) for group in groups]
    content["groups"] = [group.model_dump() | {"minimum": floor} for group, floor in zip(groups, floors, strict=True)]
    try:
        return FleetSettings.model_validate(content)
    except ValidationError:
        return None
