"""The service over replicas in Triton, under open-loop load, while their processes are killed one after another."""

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rehearsal.load.arrivals import poisson
from rehearsal.load.client import LoadGenerator, Sample, Shot
from rehearsal.load.result import shown
from rehearsal.load.server import Server
from service.engines.triton.engine import TritonEngine
from service.planner.question import Question
from service.settings import Settings

REPLICAS = 2
BEFORE_SECONDS = 5.0
TIMEOUT = 60.0
_POLL_SECONDS = 0.05  # more frequent polling would slow what is measured
_IN_SERVICE = "peakplan_replicas_in_service"


def measure_recovery(
    settings: Settings, address: str, questions: Sequence[Question], rate: float, kills: int
) -> dict[str, Any]:
    """Return the seconds from each kill until all replicas were in service again, and every request's outcome."""
    server = Server(
        {
            "PEAKPLAN_ENGINE": "triton",
            "PEAKPLAN_TRITON_URL": address,
            "PEAKPLAN_MODEL_DIR": settings.model_dir.resolve(),
            "PEAKPLAN_REPLICAS": REPLICAS,
            "PEAKPLAN_OVERSUBSCRIBE": 1,
            "PEAKPLAN_CACHE_ENTRIES": 0,  # so that every plan is decoded
        }
    )
    try:
        server.wait_until_ready()
        runs = [_kill_once(server, address, questions, rate, number % REPLICAS) for number in range(kills)]
    finally:
        server.stop()
    samples = [sample for _, samples in runs for sample in samples]
    answers = Counter(shown(sample).source for sample in samples)
    return {
        "rate": rate,
        "replicas": REPLICAS,
        "kills": kills,
        "seconds_to_full_capacity": [round(seconds, 2) for seconds, _ in runs],
        "requests": len(samples),
        "lost": sum(sample.status != 200 for sample in samples),
        "answered_by": dict(answers),
        "longest_answer_ms": round(max(sample.latency for sample in samples) * 1000, 1),
    }


def _kill_once(
    server: Server, address: str, questions: Sequence[Question], rate: float, number: int
) -> tuple[float, list[Sample]]:
    bodies = [json.dumps({"query": one.text, "history": list(one.utterances[:-1])}).encode() for one in questions]
    arrivals = poisson(rate, BEFORE_SECONDS * 4)
    shots = [Shot(at, bodies[index % len(bodies)]) for index, at in enumerate(arrivals)]
    samples: list[Sample] = []

    def fire() -> None:
        samples.extend(asyncio.run(LoadGenerator(server.url, timeout=TIMEOUT).fire(shots)))

    victim = asyncio.run(_process_of(address, number))
    load = threading.Thread(target=fire)
    load.start()
    time.sleep(BEFORE_SECONDS)
    os.kill(victim, signal.SIGKILL)
    seconds = _until_whole(server)
    load.join()
    return seconds, samples


async def _process_of(address: str, number: int) -> int:
    """Return the process of a replica that is up."""
    engine = TritonEngine(address, number)
    await engine.start()
    process = engine.process
    await engine.close()
    if process is None:
        raise RuntimeError(f"replica {number} does not say which process it is")
    return process.pid


def _until_whole(server: Server) -> float:
    """Return the seconds from now until the gateway has noticed the loss and recovered."""
    started = time.monotonic()
    noticed = False
    while True:
        whole = server.metric(_IN_SERVICE) == REPLICAS
        noticed = noticed or not whole
        elapsed = time.monotonic() - started
        if noticed and whole:
            return elapsed
        if elapsed > TIMEOUT:
            raise RuntimeError(f"not whole again after {TIMEOUT:g} s")
        time.sleep(_POLL_SECONDS)
