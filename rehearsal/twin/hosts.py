"""The hosts of one Auto Scaling group in a simulated cell: started, warm, in service, removed, by zone; their caches.

What AWS does is stated as the documents say, and assumed where they are silent; `ASSUMED` names each, and the report
shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from infra.fleet import sizing
from infra.fleet.parts import Group
from infra.fleet.policies import PERIOD_SECONDS, READINGS_WARM_UP_SECONDS, Metrics
from infra.fleet.scaling import LawState, ScalingLaw
from infra.fleet.settings import FleetSettings
from rehearsal.twin.cell import Array, Cell, Kind, Mode

CHECK_SECONDS, CHECK_TIMEOUT, CHECKS = 5.0, 4.0, 2  # of the balancer's health checks: infra/constructs/load_balancer.py
WARM_UP = 8  # generations of a gateway before its first request: docs/decisions/0010

ASSUMED = {
    "nodes": ("assumed", "12 and 24 balancer nodes, each counting outstanding requests and checking health alone; "
              "ties are broken at random; callers spread evenly over nodes, and leave a dead zone's at once"),
    "telemetry": ("stated", "15 s from a period's end until policies see it: reports every 10 s, the agent's flush, "
                  "CloudWatch's extraction"),
    "tracking": ("assumed", "target tracking at a period of 10 s waits for 3 of 3 points, as documented for a minute"),
    "launches": ("assumed", "Auto Scaling starts a hundred warm instances at once, in the zones with the fewest"),
    "replacement": ("assumed", "hosts of a lost zone count as in service and are not replaced (impairment policy "
                    "IgnoreUnhealthy); those that fail alone are restarted within a minute"),
    "boot": ("stated", "boot_seconds and warm_start_seconds of the fleet file"),
    "cells": ("stated", "callers with a share send it to their own cells, and the fleet's other load is spread over "
              "all; this is the fullest cell"),
    "caches": ("assumed", "where hosts share a cache, a plan of one is known to all within 10 s; where it is lost, "
               "each has what it answered itself"),
    "refresh": ("stated", "a deploy replaces 10, 50 and 100% of the hosts, ten minutes apart, until a scaling alarm on "
                "latency or plans by the reader rolls it back, which takes a boot"),
}  # fmt: skip


def check_phase(node: int, host: int) -> float:
    """Return when, within CHECK_SECONDS, this node checks this host."""
    return (node * 7919 + host * 104_729) % 1000 / 1000 * CHECK_SECONDS


def notices(node: int, host: int, moment: float, *, silent: bool) -> float:
    """Return when a node has seen enough checks of a host that changed at `moment` to change its mind."""
    phase = check_phase(node, host)
    first = phase + np.ceil(max(moment - phase, 0.0) / CHECK_SECONDS) * CHECK_SECONDS
    return float(first + (CHECKS - 1) * CHECK_SECONDS + (CHECK_TIMEOUT if silent else 0.0))


def with_others(
    groups: Sequence[Group], readings: Sequence[tuple[Metrics | None, tuple[float, ...]]]
) -> list[Metrics | None]:
    """Return what each group's policies read, of its reading and counts: one that stands in reads all others' work."""
    whole = np.array([counts for _, counts in readings]).sum(axis=0)
    found = []
    for group, (reading, counts) in zip(groups, readings, strict=True):
        offered, seconds = whole[0] - counts[0], whole[1] - counts[1]
        if reading is not None and group.stands_in and seconds:
            reading = replace(reading, others_work=float(offered / seconds))
        found.append(reading)
    return found


@dataclass(eq=False)
class Host:
    """An instance that serves, or will from `ready` on."""

    number: int
    zone: int
    ready: float
    arrived: bool = False
    lost: bool = False
    new_release: bool = False


@dataclass
class Numbers:
    """Numbers of hosts in the data plane, reused once their last request is answered."""

    free: list[int]
    leaving: list[tuple[float, int]] = field(default_factory=list)

    def take(self, cell: Cell) -> int:
        """Return an unused number."""
        gone = [entry for entry in self.leaving if entry[0] <= cell.now and not cell.inside(entry[1])]
        for entry in gone:
            self.leaving.remove(entry)
            self.free.append(entry[1])
        if not self.free:
            raise OverflowError("more instances start and leave at once than the twin has room for")
        return self.free.pop()


@dataclass
class AutoScalingGroup:
    """One group: its law, its hosts, its warm pool by zone."""

    index: int
    group: Group
    law: ScalingLaw
    settings: FleetSettings
    cell: Cell
    numbers: Numbers
    warm_up: Array
    boots: float = 1.0
    refills: bool = True
    launches: bool = True  # whether EC2 has capacity for another
    without_zone: int | None = None  # whose instances never started
    state: LawState = field(init=False)
    hosts: list[Host] = field(default_factory=list)
    warm: Counter[int] = field(default_factory=Counter)
    refilling: list[tuple[float, int]] = field(default_factory=list)  # (warm from, zone)
    lost_zones: set[int] = field(default_factory=set)
    paid: int = 0  # periods of all instances that run

    def __post_init__(self) -> None:
        self.state = self.law.initial_state()

    @property
    def replicas(self) -> int:
        """Replicas of one host."""
        return sizing.replicas_per_instance(self.group, self.settings.model.tensor_parallel)

    @property
    def serving(self) -> list[Host]:
        """Hosts in service that are alive."""
        return [host for host in self.in_service if not host.lost]

    @property
    def in_service(self) -> list[Host]:
        """Hosts in service as Auto Scaling sees it: those of a lost zone, too."""
        return [host for host in self.hosts if host.arrived and host.ready <= self.cell.now]

    @property
    def desired(self) -> int:
        """Instances asked for so far, lost ones included."""
        return len(self.hosts)

    def begin(self, count: int, *, warm: bool) -> None:
        """Put so many hosts into service at time 0, spread over the zones, and fill the pool."""
        for number in range(count):
            if number % self._zones == self.without_zone:
                continue
            host = Host(self.numbers.take(self.cell), number % self._zones, -600.0, arrived=True)
            self.hosts.append(host)
            self.cell.bring_in(host.number, self.index, self.replicas, self.warm_up)
            self.cell.put_in_everywhere(host.number, 0.0)
        if warm:
            for number in range(self.law.warm_pool.size(count)):
                self.warm[(count + number) % self._zones] += 1

    def decide(self, reading: Metrics | None, time: datetime) -> int:
        """Let the law act on a reading; return the capacity that it wants."""
        now = self.cell.now
        old = sum(host.arrived and now - host.ready >= READINGS_WARM_UP_SECONDS for host in self.hosts)
        wanted, self.state = self.law.advance(
            self.state,
            reading,
            time,
            PERIOD_SECONDS,
            old,
            self.desired,
        )
        self.resize(wanted)
        return wanted

    def resize(self, wanted: int) -> None:
        """Start or remove what is missing or too many, and keep the pool full."""
        for _ in range(wanted - self.desired if self.launches else 0):
            self._start()
        while self.desired > wanted and self._remove():
            pass
        if self.refills and self.launches:
            self._refill()

    def arrive(self) -> None:
        """Let hosts that come up within the next period be known to the balancer, node by node."""
        now = self.cell.now
        for ready, zone in [entry for entry in self.refilling if entry[0] <= now]:
            self.refilling.remove((ready, zone))
            self.warm[zone] += 1
        for host in self.hosts:
            if host.arrived or host.ready > now + PERIOD_SECONDS:
                continue
            if host.zone in self.lost_zones:
                continue
            host.arrived = True
            self.cell.bring_in(host.number, self.index, self.replicas, self.warm_up)
            for node in range(self.cell.nodes):
                self.cell.schedule(host.ready, Kind.REGISTER, host.number, node)
                seen = notices(node, host.number, host.ready, silent=False)
                self.cell.schedule(seen, Kind.PUT_IN, host.number, node)

    def lose_zone(self, zone: int) -> list[Host]:
        """Take a zone's hosts and warm instances away; return the hosts that served."""
        self.lost_zones.add(zone)
        self.warm[zone] = 0
        self.refilling = [entry for entry in self.refilling if entry[1] != zone]
        here = [host for host in self.hosts if host.zone == zone]
        for host in here:
            host.lost = True
        return [host for host in here if host.arrived]

    @property
    def _zones(self) -> int:
        return len(self.settings.availability_zones)

    def _emptiest(self, zones: list[int]) -> int:
        held = Counter(host.zone for host in self.hosts)
        return min(zones, key=lambda zone: (held[zone], zone))

    def _alive(self) -> list[int]:
        return [zone for zone in range(self._zones) if zone not in self.lost_zones]

    def _start(self) -> None:
        """Start an instance, a warm one if any is left."""
        filled = [zone for zone in self._alive() if self.warm[zone]]
        zone = self._emptiest(filled or self._alive())
        seconds = self.settings.warm_start_seconds if filled else self.settings.boot_seconds
        if filled:
            self.warm[zone] -= 1
        self.hosts.append(Host(self.numbers.take(self.cell), zone, self.cell.now + seconds * self.boots))

    def _remove(self) -> bool:
        """Remove a host of the fullest zone, one that still starts before one that serves; tell whether it could."""
        held = Counter(host.zone for host in self.hosts if not host.lost)
        movable = [host for host in self.hosts if not host.lost]
        if not movable:
            return False
        host = max(movable, key=lambda each: (not each.arrived, held[each.zone], each.ready))
        self.hosts.remove(host)
        if host.arrived:
            self.leave(host)
        self.warm[host.zone] += self.refills  # reuse on scale-in
        return True

    def leave(self, host: Host) -> None:
        """Let every node forget a host, which ends what it has begun."""
        for node in range(self.cell.nodes):
            self.cell.schedule(self.cell.now, Kind.DEREGISTER, host.number, node)
        drained = self.cell.now + self.settings.drain_seconds
        self.cell.schedule(drained, Kind.HOST_MODE, host.number, Mode.GONE)
        self.numbers.leaving.append((drained + 1, host.number))

    def _refill(self) -> None:
        missing = self.law.warm_pool.size(self.desired) - sum(self.warm.values()) - len(self.refilling)
        for number in range(missing):
            zones = self._alive()
            ready = self.cell.now + self.settings.boot_seconds * self.boots
            self.refilling.append((ready, zones[number % len(zones)]))


class Memories:
    """The plans that a cell's hosts remember, question by question: each its own, and others' while they share a cache.

    A host remembers what it answered, from the model or the reader. A plan that one host made is known to the others
    within a window of ten seconds here, and at once in a real cache: the twin's share of hits is a little low.
    """

    def __init__(self, cell: Cell, question_share: Array, kept: float, seed: int, *, shared: bool) -> None:
        """Take cumulated shares of questions by rank, and `kept`, the seconds for which a plan is remembered."""
        self._rows, self._question_share, self._kept, self._seed = cell.remembered_until, question_share, kept, seed
        self.shared, self._oldest = shared, -1.0

    def settle(self, rate: float, hosts: int, now: float = 0.0) -> None:
        """Let hosts remember what they do after long at `rate` questions a second in the cell, over so many hosts."""
        rows, each = (1, rate) if self.shared else (len(self._rows), rate / max(hosts, 1))
        left = _remembered(self._question_share, rows, each, self._kept, self._seed)
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
        left = _remembered(self._question_share, len(self._rows), rate / max(hosts, 1), seconds, self._seed)
        self._rows[:] = np.where(left > 0, self._rows, -1.0)

    def come_back(self, *, empty: bool) -> None:
        """Share again: what is planned from now on, or where the cache was only away, what it has been given, too."""
        self.shared, self._oldest = True, float(self._rows.max()) if empty else -1.0

    def forget(self) -> None:
        """Leave nobody anything; a shared cache is lost too."""
        self.shared = False
        self._rows[:] = -1.0


def _remembered(shares: Array, hosts: int, rate: float, seconds: float, seed: int) -> Array:
    """Return until when each host remembers each question, [hosts, Q], after long at `rate` questions a second a host.

    A question that comes with rate r is remembered for `seconds`, then missed for 1/r on average: it is there for the
    share r T / (1 + r T) of the time, with a uniform rest.
    """
    numbers = np.random.default_rng([seed, 2])
    each = np.diff(shares, prepend=0.0) * rate * seconds
    there = numbers.random((hosts, len(shares))) < each / (1 + each)
    return np.where(there, numbers.random((hosts, len(shares))) * seconds, -1.0)
