"""One scenario live: an open-loop load through Envoy, what happens meanwhile, and the verdict by Prometheus."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import uvloop

from rehearsal.client import LoadGenerator, Sample, Shot
from rehearsal.light_host import RecordedTimes
from rehearsal.load.mix import ZIPF
from rehearsal.stack.folder import FLOODER, ROOT, Folder, StackError
from rehearsal.stack.monitor import Alert, Monitor, Readings
from rehearsal.stack.processes import Programs, Scheduled, grown, trusting
from rehearsal.stack.scenarios import CALM, ENDS, FAULT, Scenario

CASES = ROOT / "rehearsal" / "bench" / "cases" / "written.jsonl"
DEADLINE = 0.3
TIMES = 2.5  # of the recorded ones: eight hosts with a replica each fit on two cores so
CALM_SHARE = 0.45  # of what the replicas can plan: a surge leaves two cores some time
MOST_BY_RULE = 0.02  # where nothing overloads the hosts
WARM_UP = 10.0  # seconds of load
_TELEMETRY_SECONDS = 3.0  # until the rules have seen what happened
_SCRAPED_SECONDS = 60.0  # until every part was scraped after it, on a machine that is busy with other things
_LOOK_SECONDS = 0.25
_FLOOD = b'{"query": "red shoes"}'


@dataclass(frozen=True)
class Load:
    """Every request of a scenario, decided before it begins."""

    rates: list[float]  # [seconds]: requests a second
    shots: list[Shot]
    questions: list[str]
    sets: tuple[str, ...]  # of rehearsal/bench/cases/written.jsonl, from which the questions were drawn


@dataclass(frozen=True)
class Outcome:
    """What came of a scenario. `complaints` are why it failed; none where it passed."""

    scenario: Scenario
    load: Load
    readings: Readings
    alerts: list[Alert]
    complaints: list[str]
    lag_ms: float  # the generator's 99th percentile: how late it sent
    lost: int  # by the generator's own count, to be seen beside Prometheus's
    began: float  # Unix time
    scheduled: dict[str, Scheduled]  # by kind of part

    @property
    def is_void(self) -> bool:
        """Whether the machine was too busy: what answers and asks waited longer for a processor than it ran.

        Replicas hardly run, for their plans take the time of recorded ones: that they wait tells nothing.
        """
        busy = [self.scheduled[kind] for kind in ("gateways", "envoy", "harness")]
        return sum(each.waited for each in busy) > sum(each.ran for each in busy)


def all_sets() -> tuple[str, ...]:
    """Return the sets of rehearsal/bench/cases/written.jsonl, with the names that figures know them by."""
    return tuple(sorted({f"{row['set']}.jsonl" for row in _rows()}))


@cache
def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


@cache
def questions(sets: tuple[str, ...]) -> list[str]:
    """Return the questions of these sets, once as they are and once politely, in a fixed random order."""
    asked = {row["query"] for row in _rows() if f"{row['set']}.jsonl" in sets}
    found = sorted(asked | {f"{question}, please" for question in asked})  # about as many as other rehearsals ask
    random.Random(1).shuffle(found)
    return found


def capacity(hosts: int, sets: tuple[str, ...], replicas: int = 1) -> float:
    """Return how many plans a second so many hosts' replicas can make of these sets' questions."""
    times, asked = RecordedTimes.read(times=TIMES), questions(sets)
    return hosts * replicas * len(asked) / sum(times.seconds(question) for question in asked)


def make_load(scenario: Scenario, calm: float, sets: tuple[str, ...], *, seed: int = 1, seconds: float = CALM) -> Load:
    """Draw Poisson arrivals at `calm` requests a second, more in a surge, and each one's question by Zipf's law."""
    rng, ranked = random.Random(seed), questions(sets)
    rates = [calm * (scenario.surge if FAULT <= second < ENDS else 1.0) for second in range(int(seconds))]
    moments: list[float] = []
    for second, rate in enumerate(rates):
        at = second + rng.expovariate(rate)
        while at < second + 1:
            moments.append(at)
            at += rng.expovariate(rate)
    weights = [(rank + 1) ** -ZIPF for rank in range(len(ranked))]
    asked = rng.choices(ranked, weights, k=len(moments))
    bodies = [json.dumps({"query": question, "deadline_ms": int(1000 * DEADLINE)}).encode() for question in asked]
    shots = [Shot(at, body, DEADLINE) for at, body in zip(moments, bodies, strict=True)]
    return Load(rates, shots, asked, sets)


def warm_up_load(calm: float, sets: tuple[str, ...]) -> Load:
    """Return what is asked before a scenario begins."""
    return make_load(Scenario("warm-up", ""), calm, sets, seed=2, seconds=WARM_UP)


def warm_up(programs: Programs, load: Load, patience: float) -> None:
    """Let every connection and page of memory be there before a scenario begins, and the alerts that it cost clear."""
    shots = warm_up_load(load.rates[0], load.sets).shots
    uvloop.run(LoadGenerator(programs.folder.url, trust=trusting(programs.folder)).fire(shots))
    time.sleep(patience)


def play(programs: Programs, scenario: Scenario, load: Load) -> Outcome:
    """Run the scenario against a stack that is ready. Raises StackError where an act or Prometheus fails."""
    failures: list[Exception] = []
    before = programs.scheduled()
    began = time.time()
    actor = threading.Thread(target=_act, args=(programs, scenario, failures), daemon=True)
    actor.start()
    samples = uvloop.run(_fire(programs.folder, scenario, load))
    actor.join()
    if failures:
        raise StackError(f"{scenario.name}: {failures[0]}") from failures[0]
    after = programs.scheduled()
    monitor = Monitor(programs.folder)
    end = _once_seen(monitor, began + max(len(load.rates), time.time() - began))
    readings, alerts = monitor.readings(began - 1, end, len(load.rates)), monitor.alerts(began, end)
    empty = [
        f"the dashboard's panel {panel} has no data" for panel in monitor.empty_panels(began, began + len(load.rates))
    ]
    lags = sorted(sample.sent - sample.at for sample in samples)
    return Outcome(
        scenario,
        load,
        readings,
        alerts,
        judge(scenario, readings, alerts) + empty,
        1000 * lags[int(0.99 * (len(lags) - 1))],
        sum(sample.status == 0 or sample.status >= 500 for sample in samples),
        began,
        grown(before, after),
    )


def _once_seen(monitor: Monitor, ended: float) -> float:
    """Wait until Prometheus has what happened until `ended`; return when it did, in Unix time. Raises StackError."""
    time.sleep(max(ended + _TELEMETRY_SECONDS - time.time(), 0))
    while not monitor.has_seen(ended):
        if time.time() > ended + _SCRAPED_SECONDS:
            raise StackError(f"Prometheus has not scraped every part within {_SCRAPED_SECONDS:g} s of the load's end")
        time.sleep(_LOOK_SECONDS)
    return time.time()


def judge(scenario: Scenario, readings: Readings, alerts: Sequence[Alert]) -> list[str]:
    """Return why a scenario failed, from Prometheus's numbers alone: losses, late answers, alerts."""
    said = []
    if round(readings.failed) > 0:
        said.append(f"{readings.failed:.0f} of {readings.requests:.0f} requests were lost")
    if round(readings.late) > 0:
        said.append(f"{readings.late:.0f} answers came more than 50 ms after the deadline")
    if scenario.flood and readings.limited < 1:
        said.append("the caller that floods was not limited")
    if not (scenario.must or scenario.may) and readings.by_rule > MOST_BY_RULE:
        said.append(f"{readings.by_rule:.1%} of the plans were made by the reader, although the hosts had time")
    fired = {alert.name for alert in alerts}
    said += [f"{name} did not fire" for name in scenario.must if name not in fired]
    said += [f"{name} fired" for name in sorted(fired - {*scenario.must, *scenario.may})]
    # The slow burn's short window is half an hour: it clears after the scenario.
    stuck = {alert.name for alert in alerts if not alert.cleared and "SlowBurn" not in alert.name}
    return said + [f"{name} did not clear" for name in sorted(stuck)]


def _act(programs: Programs, scenario: Scenario, failures: list[Exception]) -> None:
    began = time.monotonic()
    try:
        for at, act in scenario.acts:
            time.sleep(max(at - (time.monotonic() - began), 0.0))
            act(programs)
    except Exception as error:  # in a thread of its own: the scenario's verdict has it
        failures.append(error)


async def _fire(folder: Folder, scenario: Scenario, load: Load) -> list[Sample]:
    generator = LoadGenerator(folder.url, trust=trusting(folder))
    if not scenario.flood:
        return await generator.fire(load.shots)
    times = [FAULT + number / scenario.flood for number in range(int(scenario.flood * (ENDS - FAULT)))]
    flooder = LoadGenerator(folder.url, trust=trusting(folder), source=folder.address(FLOODER))
    samples, _ = await asyncio.gather(generator.fire(load.shots), flooder.fire([Shot(at, _FLOOD) for at in times]))
    return samples
