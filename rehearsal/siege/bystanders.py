"""What others notice of callers whose questions cost most: their latency, and who plans for them, with and without.

The callers have a process of their own, as on a machine of their own, but for the cores, and each an address of its
own: to the service they are four clients, and the others are one more. Turns without and with them
alternate, so that what else happens on this machine happens to both.
"""

import asyncio
import contextlib
import multiprocessing
import os
import random
import time
from collections.abc import Iterator, Sequence
from multiprocessing.synchronize import Event
from typing import Any

import numpy as np

from rehearsal.load import arrivals, mix
from rehearsal.load.__main__ import run
from rehearsal.load.client import Sample, Shot
from rehearsal.load.result import shown
from rehearsal.load.server import Server
from rehearsal.siege.attacks import SOURCE, Attack, Tally
from rehearsal.siege.costly import costly_words
from service.planner.question import Question

CALLERS = 4
MOST_TIMES = 2.0  # the quiet p99
_RATE = 4.0  # questions of the others a second: a small part of what any machine plans
_DEADLINE_MS = 300
_TURNS = 4  # of each kind
_FIRST_HOST = 2  # of the callers' addresses
_NICENESS = 5  # of the callers, as of all attackers
# For the callers to start and to be answered: a new process imports for seconds on a busy machine.
_BEGIN_SECONDS = 120.0
_LOOK_SECONDS = 0.1


class NoAttackError(Exception):
    """Raised where the callers never came to attack, with a message for people: what others got says nothing then."""


def attack_until(port: int, attack: Attack, callers: int, seed: int, begun: Event, ended: Event) -> None:
    """Attack with so many callers who never pause, until told to end: the target of a process.

    Each calls from an address of its own on this machine, and so from another one than anybody else. They have `begun`
    once every one of them has been answered.
    """
    os.nice(_NICENESS)
    answered: set[int] = set()

    async def repeat(number: int) -> None:
        rng = random.Random(seed + number)
        SOURCE.set(f"127.0.0.{_FIRST_HOST + number}")
        while not ended.is_set():
            tally = Tally()
            await attack(port, rng, tally)
            if tally.answered and number not in answered:
                answered.add(number)
                if len(answered) == callers:
                    begun.set()

    async def attack_all() -> None:
        await asyncio.gather(*(repeat(number) for number in range(callers)))

    asyncio.run(attack_all())


@contextlib.contextmanager
def attacked(port: int, attack: Attack, seed: int, patience: float = _BEGIN_SECONDS) -> Iterator[None]:
    """Run the callers' process meanwhile, from when each of them has been answered. Raises NoAttackError."""
    context = multiprocessing.get_context("spawn")
    begun, ended = context.Event(), context.Event()
    callers = context.Process(target=attack_until, args=(port, attack, CALLERS, seed, begun, ended))
    callers.start()
    try:
        end = time.monotonic() + patience
        while not begun.wait(_LOOK_SECONDS):
            if not callers.is_alive():
                raise NoAttackError(f"the callers' process ended with {callers.exitcode}: see what it said above")
            if time.monotonic() > end:
                raise NoAttackError(f"not all of {CALLERS} callers were answered within {patience:g} s")
        yield
    finally:
        ended.set()
        callers.join(_BEGIN_SECONDS)
        callers.kill()


def measure(server: Server, questions: Sequence[Question], seconds: float, seed: int) -> dict[str, Any]:
    """Return what the others got in `seconds`, alone and beside the costly callers, and how the memory went.

    Raises NoAttackError.
    """
    port = int(server.url.rpartition(":")[2])
    samples: dict[str, list[Sample]] = {"alone": [], "beside": []}
    memory = []
    rng = random.Random(seed)
    for turn in range(_TURNS):
        times = arrivals.poisson(_RATE, seconds / _TURNS / 2, turn)
        for kind in samples if turn % 2 else reversed(samples):
            shots = [_shot(when, rng.choice(questions), rng) for when in times]
            if kind == "alone":
                samples[kind] += run(server.url, shots, progress=False)
                continue
            with attacked(port, costly_words, 100 * turn):
                samples[kind] += run(server.url, shots, progress=False)
                memory.append(round(server.memory_mib(), 1))
    return {
        "callers": CALLERS,
        "rate": _RATE,
        "memory_mib": memory,
        **{kind: told(taken) for kind, taken in samples.items()},
    }


def given_way(found: dict[str, Any], *, shared: bool) -> list[str]:
    """Return what the others lost. Beside other work on a `shared` machine, times and who plans are not judged."""
    alone, beside = found["alone"], found["beside"]
    lost = [f"bystanders: {beside['unanswered']} without a plan"] if beside["unanswered"] else []
    if shared:
        return lost
    if beside["p99_ms"] > MOST_TIMES * alone["p99_ms"]:
        lost.append(f"bystanders' p99 went from {alone['p99_ms']} to {beside['p99_ms']} ms")
    if beside["by_rule"] > alone["by_rule"]:
        lost.append(f"bystanders' plans by rule went from {alone['by_rule']} to {beside['by_rule']}")
    return lost


def _shot(when: float, question: Question, rng: random.Random) -> Shot:
    """Return a question that no cache has."""
    asked = Question.parse(f"{question.text} {rng.randrange(10**6)}", question.utterances[:-1])
    return Shot(when, mix.body(asked, _DEADLINE_MS), _DEADLINE_MS / 1000)


def told(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return latencies in milliseconds, and how many plans came by rule or not at all.

    By rule are those that the model could not make. What rules plan by choice, because the model would hardly plan it
    better (docs/settings.md, routing), nobody has lost.
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
