"""What others notice of callers whose questions cost most, with and without them; and a SIGTERM during each attack.

The callers have a process of their own, as on a machine of their own, but for the cores, and each an address of its
own: to the service they are four clients, and the others are one more. Turns without and with them alternate, so that
what else happens on this machine happens to both; in a third kind of turn the callers attack a server that does
nothing, as often.
"""

import asyncio
import contextlib
import multiprocessing
import os
import random
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import uvloop

from rehearsal.client import Sample, Shot
from rehearsal.load import arrivals, mix
from rehearsal.load.__main__ import run
from rehearsal.load.result import shown
from rehearsal.server import Server, serving
from rehearsal.siege.attacks import ATTACKS, SOURCE, Attack, Tally, costly_words
from service.planner.question import Question
from service.settings import Settings

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

EVERYTHING = "all at once"
CALLERS = 4
MANY_CALLERS = 48
MOST_TIMES = 2.0  # the quiet p99
_RATE = 4.0  # questions of the others a second: a small part of what any machine plans
_DEADLINE_MS = 300
_TURNS = 4  # of each kind
_FIRST_HOST = 2  # of the callers' addresses
_NICENESS = 5  # of the callers, as of all attackers
# For the callers to start and to be answered: a new process imports for seconds on a busy machine.
_BEGIN_SECONDS = 120.0
_ENDING_SECONDS = 5.0
_LOOK_SECONDS = 0.1
_LEAST_RATE = 0.1  # attacks a second of a control
_BACKLOG = 2048  # of the control's server, as uvicorn's
_START_SECONDS = 60.0
_BODY = b'{"status": "alive"}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
_STOP_CALLERS = 8
_ATTACKED_SECONDS = 2.0  # before a service is stopped
_STOPPING_SECONDS = 2.0  # for processes to end, once requests have had their time


class _AnswersAll(asyncio.Protocol):
    """Answers each head that has come, or anything that comes alone, and does nothing else."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(_ANSWER * max(data.count(b"\r\n\r\n"), 1))


@contextlib.contextmanager
def control_server() -> Iterator[int]:
    """Run a server that does nothing in a process of its own, and yield its port.

    Attackers beside a service take part of its processors. The same attackers at the same rate against this server
    take the same part, and nothing of the service: what is slower then is the machine's doing.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_control, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_SECONDS):
            raise TimeoutError(f"the control's server did not start within {_START_SECONDS:g} s")
        yield int(ours.recv())
    finally:
        process.kill()
        process.join()


def _serve_control(told: Connection) -> None:
    """Serve for ever, and tell the port first."""

    async def answer_all() -> None:
        server = await asyncio.get_running_loop().create_server(_AnswersAll, "127.0.0.1", 0, backlog=_BACKLOG)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(answer_all())


class NoAttackError(Exception):
    """Raised where the callers never came to attack, with a message for people: what others got says nothing then."""


@dataclass(frozen=True)
class Pace:
    """How callers attack: as often as they are answered, or so many times a second all together."""

    callers: int = CALLERS
    rate: float | None = None  # attacks a second; None: without a pause
    until_answered: bool = True  # before it counts as begun; else each has begun to attack


EAGER = Pace()


def attack_until(
    port: int, attack: Attack, pace: Pace, seed: int, begun: Event, ended: Event, count: "Synchronized[int]"
) -> None:
    """Attack with some callers until told to end, and count the attacks: the target of a process.

    Each calls from an address of its own on this machine, and so from another one than anybody else. They have `begun`
    once every one of them has been answered, or has attacked where no answer is owed.
    """
    os.nice(_NICENESS)
    ready: set[int] = set()

    def is_ready(number: int) -> None:
        ready.add(number)
        if len(ready) == pace.callers:
            begun.set()

    async def repeat(number: int) -> None:
        rng = random.Random(seed + number)
        SOURCE.set(f"127.0.0.{_FIRST_HOST + number}")
        due = time.monotonic()
        while not ended.is_set():
            if pace.rate is not None:
                await asyncio.sleep(max(due - time.monotonic(), 0.0))
                due += rng.expovariate(pace.rate / pace.callers)
            tally = Tally()
            if not pace.until_answered:
                is_ready(number)
            count.value += 1
            await attack(port, rng, tally)
            if tally.answered:
                is_ready(number)

    async def attack_all() -> None:
        await asyncio.gather(*(repeat(number) for number in range(pace.callers)))

    asyncio.run(attack_all())


class Attackers:
    """The callers' process, while it attacks."""

    def __init__(self, process: BaseProcess, count: "Synchronized[int]") -> None:
        self._process, self._count = process, count
        self._before, self._since = count.value, time.monotonic()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def rate(self) -> float:
        """Attacks a second since they have begun."""
        return (self._count.value - self._before) / max(time.monotonic() - self._since, 1e-9)


@contextlib.contextmanager
def attacked(
    port: int, attack: Attack, seed: int, pace: Pace = EAGER, patience: float = _BEGIN_SECONDS
) -> Iterator[Attackers]:
    """Run the callers' process meanwhile, from when all have begun. Raises NoAttackError."""
    context = multiprocessing.get_context("spawn")
    begun, ended, count = context.Event(), context.Event(), context.Value("i", 0)
    callers = context.Process(target=attack_until, args=(port, attack, pace, seed, begun, ended, count), daemon=True)
    callers.start()
    try:
        end = time.monotonic() + patience
        while not begun.wait(_LOOK_SECONDS):
            if not callers.is_alive():
                raise NoAttackError(f"the callers' process ended with {callers.exitcode}: see what it said above")
            if time.monotonic() > end:
                raise NoAttackError(f"not all of {pace.callers} callers were answered within {patience:g} s")
        yield Attackers(callers, count)
        if not callers.is_alive():
            raise NoAttackError(f"the callers' process ended with {callers.exitcode}, in the middle")
    finally:
        ended.set()
        callers.join(_ENDING_SECONDS)  # an attack may wait for an answer that no longer comes
        callers.kill()
        callers.join()


class Bystanders:
    """The others, who ask a service while somebody attacks it, or a server beside it that does nothing."""

    def __init__(self, server: Server, questions: Sequence[Question], seed: int, *, has_control: bool = True) -> None:
        self._server = server
        self._port = int(server.url.rpartition(":")[2])
        self._questions = questions
        self._rng = random.Random(seed)
        self._has_control = has_control

    def beside_costly_callers(self, seconds: float) -> dict[str, Any]:
        """Return what the others got in `seconds`, alone and beside the costly callers, and how the memory went.

        The control has as much time again. Raises NoAttackError.
        """
        kinds = ("alone", "beside", "control") if self._has_control else ("alone", "beside")
        samples: dict[str, list[Sample]] = {kind: [] for kind in kinds}
        memory, rates = [], []
        for turn in range(_TURNS):
            times = arrivals.poisson(_RATE, seconds / _TURNS / 2, turn)
            for kind in ("alone", "beside") if turn % 2 else ("beside", "alone"):
                if kind == "alone":
                    samples[kind] += self._ask(times)
                    continue
                with attacked(self._port, costly_words, 100 * turn) as attackers:
                    samples[kind] += self._ask(times)
                    memory.append(round(self._server.memory_mib(), 1))
                    rates.append(attackers.rate)
            if self._has_control:
                samples["control"] += self._beside_control(costly_words, EAGER, rates[-1], times)
        return {
            "callers": CALLERS,
            "rate": _RATE,
            "attacks_a_second": round(sum(rates) / len(rates), 1),
            "memory_mib": memory,
            **{kind: told(taken) for kind, taken in samples.items()},
        }

    def beside_each(self, seconds: float) -> dict[str, Any]:
        """Return the same of each attack alone, by as many callers, and of many callers who do any of them.

        Each has its part of `seconds`, and its control as much again. Raises NoAttackError.
        """
        attacks: dict[str, tuple[Attack, int]] = {name: (attack, CALLERS) for name, (attack, _) in ATTACKS.items()}
        attacks[EVERYTHING] = (any_attack, MANY_CALLERS)
        found = {}
        for number, (name, (attack, callers)) in enumerate(attacks.items()):
            pace = Pace(callers, until_answered=False)
            times = arrivals.poisson(_RATE, seconds / len(attacks), number)
            with attacked(self._port, attack, number, pace) as attackers:
                beside, rate = self._ask(times), attackers.rate
            control = self._beside_control(attack, pace, rate, times) if self._has_control else []
            found[name] = {"callers": callers, "attacks_a_second": round(rate, 1), "beside": told(beside)}
            found[name] |= {"control": told(control)} if control else {}
        return found

    def _beside_control(self, attack: Attack, pace: Pace, rate: float, times: Sequence[float]) -> list[Sample]:
        """Return what the others got while the control's server was attacked as often."""
        paced = Pace(pace.callers, max(rate, _LEAST_RATE), until_answered=False)
        with control_server() as port, attacked(port, attack, 0, paced):
            return self._ask(times)

    def _ask(self, times: Sequence[float]) -> list[Sample]:
        shots = [_shot(when, self._rng.choice(self._questions), self._rng) for when in times]
        return run(self._server.url, shots, progress=False)


async def any_attack(port: int, rng: random.Random, tally: Tally) -> None:
    """Attack in any of the ways."""
    attack, _ = rng.choice(list(ATTACKS.values()))
    await attack(port, rng, tally)


def given_way(found: dict[str, Any], *, shared: bool) -> list[str]:
    """Return what the others lost. Beside other work on a `shared` machine, times and who plans are not judged."""
    alone, beside = found["alone"], found["beside"]
    lost = [f"bystanders: {beside['unanswered']} without a plan"] if beside["unanswered"] else []
    if shared:
        return lost
    if beside["p99_ms"] > MOST_TIMES * alone["p99_ms"]:
        lost.append(f"bystanders' p99 went from {alone['p99_ms']} to {beside['p99_ms']} ms")
    if beside["by_rule"] > alone["by_rule"]:
        lost.append(f"bystanders' plans by the reader went from {alone['by_rule']} to {beside['by_rule']}")
    return lost


def _shot(when: float, question: Question, rng: random.Random) -> Shot:
    """Return a question that no cache has."""
    asked = Question.parse(f"{question.text} {rng.randrange(10**6)}", question.utterances[:-1])
    return Shot(when, mix.body(asked, _DEADLINE_MS), _DEADLINE_MS / 1000)


def told(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return latencies in milliseconds, and how many plans came by the reader or not at all.

    By the reader are those that the model could not make. What it plans by choice, because the model would hardly
    plan it better (docs/settings.md, routing), nobody has lost.
    """
    milliseconds = [1000 * sample.latency for sample in samples]
    sources = [shown(sample).source for sample in samples if sample.status == 200]
    return {
        "asked": len(samples),
        "p50_ms": round(float(np.quantile(milliseconds, 0.5)), 1),
        "p99_ms": round(float(np.quantile(milliseconds, 0.99)), 1),
        "by_rule": sources.count("fallback"),
        "by_choice": sources.count("rules"),
        "unanswered": len(samples) - len(sources),
    }


def most_seconds() -> float:
    """Return how long it may take: what the settings promise, drain and requests in flight."""
    settings = Settings()
    return settings.drain_seconds + settings.shutdown_seconds + _STOPPING_SECONDS


def stop_during_attacks(environment: Mapping[str, object], module: str, *, each: bool) -> dict[str, Any]:
    """Return the seconds and the exit code of a stop during all attacks at once and, if wanted, during each alone."""
    attacks: dict[str, Attack] = {EVERYTHING: any_attack}
    if each:
        attacks |= {name: attack for name, (attack, _) in ATTACKS.items()}
    return {name: _stop(environment, module, attack, name == EVERYTHING) for name, attack in attacks.items()}


def stops_given_way(stops: Mapping[str, Any]) -> list[str]:
    """Return which stops took too long, or ended in another way than orderly."""
    most = most_seconds()
    return [
        f"a stop during {name}: {stop['seconds']} s, exit code {stop['exit_code']}"
        for name, stop in stops.items()
        if stop["exit_code"] != 0 or stop["seconds"] > most
    ]


def _stop(environment: Mapping[str, object], module: str, attack: Attack, is_everything: bool) -> dict[str, Any]:
    pace = Pace(MANY_CALLERS if is_everything else _STOP_CALLERS, until_answered=False)
    with serving({**environment, "PEAKPLAN_REPLICAS": 1}, module) as server:
        port = int(server.url.rpartition(":")[2])
        with attacked(port, attack, 1, pace):
            time.sleep(_ATTACKED_SECONDS)
            started = time.monotonic()
            try:
                code: int | None = server.stop()
            except subprocess.TimeoutExpired:  # `serving` kills it
                code = None
            taken = time.monotonic() - started
    return {"seconds": round(taken, 2), "exit_code": code}
