"""What others notice of callers whose questions cost most: their latency, and who plans for them, with and without.

The callers have a process of their own, as on a machine of their own, but for the cores, and each an address of its
own: to the service they are four clients, and the others are one more. Turns without and with them
alternate, so that what else happens on this machine happens to both.
"""

import asyncio
import multiprocessing
import os
import random
import time
from collections.abc import Sequence
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
_BY_RULE = ("fallback", "rules")
_FIRST_HOST = 2  # of the callers' addresses
_NICENESS = 5  # of the callers, as of all attackers


def attack_until(port: int, attack: Attack, callers: int, seed: int, ended: Event) -> None:
    """Attack with so many callers who never pause, until told to end: the target of a process.

    Each calls from an address of its own on this machine, and so from another one than anybody else.
    """
    os.nice(_NICENESS)

    async def repeat(number: int) -> None:
        rng = random.Random(seed + number)
        SOURCE.set(f"127.0.0.{_FIRST_HOST + number}")
        while not ended.is_set():
            await attack(port, rng, Tally())

    async def attack_all() -> None:
        await asyncio.gather(*(repeat(number) for number in range(callers)))

    asyncio.run(attack_all())


def measure(server: Server, questions: Sequence[Question], seconds: float, seed: int) -> dict[str, Any]:
    """Return what the others got in `seconds`, alone and beside the costly callers, and how the memory went."""
    port = int(server.url.rpartition(":")[2])
    context = multiprocessing.get_context("spawn")
    samples: dict[str, list[Sample]] = {"alone": [], "beside": []}
    memory = []
    rng = random.Random(seed)
    for turn in range(_TURNS):
        times = arrivals.poisson(_RATE, seconds / _TURNS / 2, turn)
        for kind in samples if turn % 2 else reversed(samples):
            shots = [_shot(when, rng.choice(questions), rng) for when in times]
            ended = context.Event()
            target = (port, costly_words, CALLERS, 100 * turn, ended)
            callers = context.Process(target=attack_until, args=target) if kind == "beside" else None
            if callers is not None:
                callers.start()
                time.sleep(1.0)  # they begin; the others come in the middle of it
            samples[kind] += run(server.url, shots, progress=False)
            if callers is not None:
                memory.append(round(server.memory_mib(), 1))
                ended.set()
                callers.join()
    return {
        "callers": CALLERS,
        "rate": _RATE,
        "memory_mib": memory,
        **{kind: _told(taken) for kind, taken in samples.items()},
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


def _told(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return latencies in milliseconds, and how many plans came by rule or not at all."""
    milliseconds = [1000 * shown(sample).latency for sample in samples]
    planned = [shown(sample).source for sample in samples if sample.status == 200]
    return {
        "asked": len(samples),
        "p50_ms": round(float(np.quantile(milliseconds, 0.5)), 1),
        "p99_ms": round(float(np.quantile(milliseconds, 0.99)), 1),
        "by_rule": sum(source in _BY_RULE for source in planned),
        "unanswered": len(samples) - len(planned),
    }
