"""One scenario in one cell: the compiled data plane under the fleet's own scaling law, ten seconds at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from infra.fleet import sizing
from infra.fleet.calendar import Calendar
from infra.fleet.parts import REPOSITORY_ROOT, Group
from infra.fleet.policies import PERIOD_SECONDS, Metrics
from infra.fleet.replacement import Stop, careful, stops
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import fullest_share, fullest_share_without_one_cell
from rehearsal.twin.cell import (
    ANSWERED,
    ASKED,
    DEGRADED,
    OUTCOMES,
    REPORTED_SHED,
    Cell,
    Constants,
    Kind,
    Load,
    Mode,
    percentile,
    routed,
)
from rehearsal.twin.curves import DAY, flash
from rehearsal.twin.hosts import WARM_UP, AutoScalingGroup, Host, Memories, Numbers, notices, with_others
from rehearsal.twin.scenarios import BEFORE, Course, Situation, begins, peak_rate
from rehearsal.twin.work import group_share, questions
from service.gateway.admission import FIRST_EXPECTATION

TELEMETRY_SECONDS = 15
FEWEST_REQUESTS = 20  # in a period; infra/constructs/scaling.py does not act on a share of fewer
SLOWDOWN, FAILING = 2.0, 0.2  # of a bad release
SILENT_SECONDS, CELL_OUT_SECONDS, RESTART_SECONDS = 600, 60, 60


def fixed_law(law: ScalingLaw, hosts: int) -> ScalingLaw:
    """Return a law that keeps a group at so many hosts."""
    calendar = Calendar(((0, hosts),), (), law.calendar.time_zone)
    return replace(law, minimum=hosts, maximum=hosts, calendar=calendar)


def simulate(situation: Situation) -> Course:
    """Run a situation from `BEFORE` seconds before the peak until `after` seconds past it, or over the whole curve."""
    return Run(situation).course()


class Run:
    """A situation under way."""

    def __init__(self, situation: Situation) -> None:
        self._situation, self._scenario, self._settings = situation, situation.scenario, situation.settings
        curve, scenario = situation.curve, situation.scenario
        peak = max(curve.peak_second - 60, 0)
        has_moment = bool(scenario.fault) or scenario.is_surge
        # A fault is simulated for as long in every trace: one that begins late or ends early goes on as it is there.
        self._offset, end = (0, curve.seconds) if situation.whole else (peak - BEFORE, peak + situation.after)
        self._fault = float(peak - self._offset) if has_moment else None
        self._seconds = (end - self._offset) // PERIOD_SECONDS * PERIOD_SECONDS
        self._begins = begins(situation) + timedelta(seconds=self._offset)
        seconds = np.arange(self._offset, self._offset + self._seconds)
        noise = curve.noise(situation.seed)[seconds % curve.seconds]
        rates = peak_rate(situation) * curve.relative[np.clip(seconds, 0, curve.seconds - 1)] * noise
        if scenario.is_surge:
            rates *= flash(self._seconds, peak - self._offset, scenario.flash)
        if scenario.fault == "cell-out":
            more = fullest_share_without_one_cell(self._settings) / fullest_share(self._settings)
            rates *= np.interp(seconds, [peak, peak + CELL_OUT_SECONDS], [1, more])
        self._rates = rates
        self._day_requests = peak_rate(situation) * float(curve.relative.mean()) * max(DAY, curve.seconds)
        self._cell = self._make_cell()
        self._groups = self._make_groups()
        self._history: list[tuple[float, list[Metrics | None]]] = []
        self._rows: list[list[float]] = []
        self._faulty: list[Host] = []
        self._rolled_back = math.inf
        self._waves = waves(self._settings)

    def course(self) -> Course:
        """Return the course, once everything has happened and every request has its outcome."""
        for end in range(PERIOD_SECONDS, self._seconds + 1, PERIOD_SECONDS):
            for group in self._groups:
                group.arrive()
            self._inflict(self._cell.now)
            self._cell.advance(float(end))
            self._memories.exchange()
            self._observe()
        self._cell.advance(self._seconds + 10.0)  # nobody new comes, and all get their outcome
        values = np.array(self._rows)
        values[:, 1 : 1 + len(OUTCOMES)] = self._cell.outcomes[: len(values)]  # some ended after their window
        values[:, 0] = self._cell.outcomes[: len(values)].sum(axis=1)
        left = self._cell.arrived - int(self._cell.outcomes.sum())
        return Course(
            values=values,
            fault=self._fault,
            begins=self._begins,
            offset=self._offset,
            day_requests=self._day_requests,
            left_in_flight=left,
            arrived=self._cell.arrived,
            mean_hosts=tuple(group.paid / len(values) for group in self._groups),
        )

    def _make_cell(self) -> Cell:
        situation, scenario = self._situation, self._scenario
        room = sum(self._most(group) for group in self._settings.groups)
        model = self._settings.model
        by_worth, choice = routed(model.routing, REPOSITORY_ROOT / model.folder)
        load = Load(
            times=situation.work.times,
            seconds=self._seconds + 20,
            rates=self._rates,
            band_share=situation.work.band_share,
            band_length=situation.work.band_length,
            question_share=questions() if scenario.remembers else np.zeros(0),
            worths=situation.work.worths,
            by_worth=by_worth,
            choice=choice,
            deadline=self._settings.slo.p99_ms / 1000,
            seed=situation.seed,
        )
        constants = Constants(retries=scenario.retries)
        cell = Cell(load, nodes=situation.nodes, hosts=room + room // 2 + 20, constants=constants)
        kept, shared = constants.cache_seconds, scenario.fault == "lost-cache"
        self._memories = Memories(cell, load.question_share, kept, situation.seed, shared=shared)
        if scenario.remembers:
            standing = sum(self._standing(group) for group in self._settings.groups)
            self._memories.settle(float(self._rates[:60].mean()), standing)
        return cell

    def _most(self, group: Group) -> int:
        fixed = self._situation.hosts
        return group.maximum if fixed is None else round(fixed * group_share(self._settings, group))

    def _law(self, group: Group) -> ScalingLaw:
        law = ScalingLaw.for_group(self._settings, group)
        return law if self._situation.hosts is None else fixed_law(law, self._most(group))

    def _standing(self, group: Group) -> int:
        """Return the group's hosts at the beginning: its floor, or what the law has asked for by then."""
        law = self._law(group)
        rate = float(self._rates[:60].mean()) * group_share(self._settings, group)
        wanted = sizing.instances_for(self._settings, group, rate)
        return min(law.maximum, max(law.floor_at(self._begins), wanted))

    def _make_groups(self) -> list[AutoScalingGroup]:
        numbers, scenario = Numbers(list(range(len(self._cell.host_counts)))[::-1]), self._scenario
        drawn = np.random.default_rng([self._situation.seed, 3])
        groups = []
        for index, group in enumerate(self._settings.groups):
            warm_up = drawn.choice(self._situation.work.times[index].ravel(), WARM_UP)
            made = AutoScalingGroup(
                index,
                group,
                self._law(group),
                self._settings,
                self._cell,
                numbers,
                warm_up,
                scenario.boots,
                scenario.warm,
                launches=group.chip == "cpu" or scenario.fault not in ("lost-reservation", "no-chips"),
                without_zone=0 if group.reserve and scenario.fault == "lost-reservation" else None,
            )
            made.begin(self._standing(group), warm=scenario.warm)
            groups.append(made)
        return groups

    def _observe(self) -> None:
        """Read what the last window did, hand telemetry on, and let every group decide."""
        cell, now = self._cell, self._cell.now
        readings = [self._reading(group) for group in self._groups]
        self._history.append((now, with_others(self._settings.groups, readings)))
        serving = [len(group.serving) for group in self._groups]
        totals = [sum(column) for column in zip(*(counts for _, counts in readings), strict=True)]
        offered, replica_seconds, answered, degraded, shed = totals
        by_group = [counts[1] for _, counts in readings]
        rate = float(self._rates[int(now) - PERIOD_SECONDS : int(now)].mean())
        self._rows.append(
            [0.0] * (1 + len(OUTCOMES))
            + [1000 * percentile(cell.latencies, 0.99), sum(group.desired for group in self._groups)]
            + [sum(len(group.in_service) for group in self._groups), self._needed(rate)]
            + [sum(sum(group.warm.values()) for group in self._groups), sum(serving)]
            + [offered, replica_seconds, answered, degraded, shed]
            + [sum(seconds for group, seconds in zip(self._groups, by_group, strict=True) if group.group.stands_in)]
        )
        for array in (cell.latencies, cell.model_latencies, cell.queue_times, cell.host_counts):
            array[:] = 0
        known = [entry for entry in self._history if entry[0] + TELEMETRY_SECONDS <= now]
        silent = (
            self._scenario.fault == "silence" and self._fault is not None and 0 <= now - self._fault < SILENT_SECONDS
        )
        for index, group in enumerate(self._groups):
            reading = known[-1][1][index] if known and not silent else None
            group.decide(reading, self._begins + timedelta(seconds=now))
            group.paid += len(group.hosts) + len(group.refilling)
        if self._waves and self._scenario.fault.endswith("release"):
            self._watch_release(known)

    def _needed(self, rate: float) -> float:
        """Return the hosts that carry a load at the law's target, with every zone alive."""
        groups = self._settings.groups
        return sum(
            sizing.instances_for(self._settings, group, rate * group_share(self._settings, group)) for group in groups
        )

    def _reading(self, group: AutoScalingGroup) -> tuple[Metrics | None, tuple[float, ...]]:
        """Return what the group's hosts reported of the last window, and their counts; None where nobody reports."""
        cell, reporting = self._cell, group.serving
        if not reporting:
            return None, (0.0,) * 5
        numbers = [host.number for host in reporting]
        counts = cell.host_counts[numbers]
        means = np.array([cell.mean_seconds(number) or FIRST_EXPECTATION for number in numbers])
        offered = float((counts[:, ASKED] * means).sum())
        replica_seconds = float(len(numbers) * group.replicas * PERIOD_SECONDS)
        answered, degraded, shed = (int(counts[:, kind].sum()) for kind in (ANSWERED, DEGRADED, REPORTED_SHED))
        metrics = Metrics(
            offered_work=offered / replica_seconds,
            model_p99_ms=1000 * percentile(cell.model_latencies[group.index], 0.99),
            queue_p99_ms=1000 * percentile(cell.queue_times[group.index], 0.99),
            by_rule_share=degraded / answered if answered >= FEWEST_REQUESTS else 0.0,
        )
        return metrics, (offered, replica_seconds, answered, degraded, shed)

    def _inflict(self, now: float) -> None:
        """Let the fault happen if it falls into the coming period."""
        if self._scenario.fault.endswith("release"):
            self._deploy(now)
        if self._fault is None or not now <= self._fault < now + PERIOD_SECONDS:
            return
        fault = self._scenario.fault
        if fault in ("black-hole", "refuse"):
            for host in [host for group in self._groups for host in group.lose_zone(0)]:
                self._cut_off(host, self._fault, Mode.BLACK_HOLE if fault == "black-hole" else Mode.REFUSES)
            for node in range(0, self._situation.nodes, len(self._settings.availability_zones)):
                self._cell.schedule(self._fault, Kind.NODE_DIES, value=node)
        elif fault == "fail-fast":
            for host in [host for group in self._groups for host in group.serving[::20]]:
                self._cut_off(host, self._fault, Mode.REFUSES)
                self._restart(host, self._fault + RESTART_SECONDS)
        elif fault == "cold-cache":
            self._memories.forget()
        elif fault == "lost-cache":
            serving = sum(len(group.serving) for group in self._groups)
            self._memories.lose_cache(float(self._rates[int(now)]), serving, now)

    def _cut_off(self, host: Host, moment: float, mode: Mode) -> None:
        self._cell.schedule(moment, Kind.HOST_MODE, host.number, mode)
        for node in range(self._situation.nodes):
            seen = notices(node, host.number, moment, silent=mode is Mode.BLACK_HOLE)
            self._cell.schedule(seen, Kind.TAKE_OUT, host.number, node)

    def _restart(self, host: Host, moment: float) -> None:
        self._cell.schedule(moment, Kind.HOST_MODE, host.number, Mode.SERVES)
        for node in range(self._situation.nodes):
            self._cell.schedule(notices(node, host.number, moment, silent=False), Kind.PUT_IN, host.number, node)

    def _deploy(self, now: float) -> None:
        """Put the new release on the next wave of hosts, or the old one back on all once the rollback is through."""
        if self._fault is None:
            return
        if now >= self._rolled_back:
            for host in self._faulty:
                self._cell.set_behaviour(host.number)
            self._faulty, self._rolled_back = [], math.inf
        if not self._waves or now < self._fault + self._waves[0][0]:
            return
        share = self._waves.pop(0)[1]
        slow = self._scenario.fault == "slow-release"
        for group in self._groups:
            for host in group.serving[: math.ceil(share * len(group.serving))]:
                if not host.new_release:
                    host.new_release = True
                    self._faulty.append(host)
                    behaviour = {"slowdown": SLOWDOWN} if slow else {"failing": FAILING}
                    self._cell.set_behaviour(host.number, **behaviour)

    def _watch_release(self, known: list[tuple[float, list[Metrics | None]]]) -> None:
        """Stop the deploy and roll it back where an alarm that its instance refresh watches goes off."""
        if not self._faulty or not math.isinf(self._rolled_back):
            return
        for index, group in enumerate(self._groups):
            readings = [each[index] for _, each in known]
            if any(goes_off(stop, readings) for stop in stops(group.law)):
                self._waves = []
                self._rolled_back = self._cell.now + self._settings.boot_seconds
                return


def waves(settings: FleetSettings) -> list[tuple[int, float]]:
    """Return (seconds into the deploy, share of hosts) of each step of a release.

    The time that instances take to boot is left out: harm comes early.
    """
    replacement = careful(settings)
    return [(step * replacement.checkpoint_seconds, share / 100) for step, share in enumerate(replacement.checkpoints)]


def goes_off(stop: Stop, readings: Sequence[Metrics | None]) -> bool:
    """Return whether the alarm of `stop` goes off, by the readings of every period since the run began.

    A reading of its longer period is the mean of those in it: of shares that is nearly exact, and of percentiles
    somewhat low where they differ, so the twin stops no release sooner than CloudWatch would.
    """
    each = stop.period_seconds // PERIOD_SECONDS
    whole = len(readings) // each
    over = 0
    for period in range(max(0, whole - stop.periods), whole):
        values = [reading.of(stop.signal) for reading in readings[period * each : (period + 1) * each] if reading]
        over += bool(values) and float(np.mean(values)) >= stop.line
    return over >= stop.breaching
