"""Probes of a service for figures: closed loops, turns with the bare engine, load while replicas are killed."""

import asyncio
import os
import signal
import time
from collections.abc import Sequence

from rehearsal.client import Caller, LoadGenerator, Sample, Shot
from rehearsal.load import mix
from rehearsal.load.result import shown
from rehearsal.server import Server
from service.api.app import replica_engine, settings_source, settings_vocabulary
from service.planner.planner import Planner
from service.planner.question import Question
from service.settings import Settings

_TURN = 25  # in questions


async def closed_loop(url: str, questions: Sequence[Question], callers: int, seconds: float) -> list[float]:
    """Return the seconds of each plan of the model, with `callers` who each wait for their answer."""
    end = time.monotonic() + seconds
    latencies: list[float] = []

    async def call(first: int) -> None:
        gunner, number = LoadGenerator(url, keep=True), first
        while time.monotonic() < end:
            question = questions[number % len(questions)]
            number += callers
            (sample,) = await gunner.fire([Shot(0.0, mix.body(question, 2000), 2.0)])
            if shown(sample).source == "model":
                latencies.append(sample.latency)
        gunner.close()

    await asyncio.gather(*(call(number) for number in range(callers)))
    return latencies


def warm_up(url: str, questions: Sequence[Question]) -> None:
    """Ask these questions one after another."""
    caller = Caller(url)
    for question in questions:
        caller.ask(mix.body(question, 2000))
    caller.close()


async def in_turns(url: str, questions: Sequence[Question]) -> tuple[list[float], list[float]]:
    """Return, for each question, the service's round trip and the engine's time, less the model's own time."""
    settings = Settings()
    engine = replica_engine(settings, settings_source(settings), 0)
    await engine.start()
    planner, caller = Planner(engine, settings_vocabulary(settings), settings.strategy), Caller(url)
    served: list[float] = []
    bare: list[float] = []
    for first in range(0, len(questions), _TURN):
        turn = questions[first : first + _TURN]
        for question in turn:
            sample = caller.ask(mix.body(question, 2000))
            model_seconds = shown(sample).model_seconds
            if model_seconds is not None:
                served.append(sample.latency - model_seconds)
        for question in turn:
            started = time.perf_counter()
            result = (await planner.plan_with_model(planner.task(question))).result
            seconds = time.perf_counter() - started
            if result is not None:
                bare.append(seconds - result.seconds)
    caller.close()
    await engine.close()
    return served, bare


async def harmed(
    server: Server, shots: Sequence[Shot], number: signal.Signals, victims: Sequence[int]
) -> tuple[list[Sample], float | None]:
    """Fire; after a fifth of the time, signal the victims. Return the samples, and the time until recovery."""
    count = len(server.replicas())
    firing = asyncio.create_task(LoadGenerator(server.url).fire(shots))
    await asyncio.sleep(shots[-1].at / 5)
    for pid in victims:
        os.kill(pid, number)
    harmed = time.monotonic()
    recovered: float | None = None
    lost = False
    while time.monotonic() - harmed < 60 and recovered is None:
        await asyncio.sleep(0.05)
        up = await asyncio.to_thread(server.metric, "peakplan_replicas_in_service")
        lost = lost or up < count
        if lost and up == count:
            recovered = round(time.monotonic() - harmed, 2)
    return await firing, recovered
