"""Measure what Triton adds to a generation: `peakplan bench triton`, docs/figures/triton.json.

Questions are generated in this process, in a replica of our own behind a pipe, and in Triton over gRPC, in short turns
whose order rotates.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rehearsal.bench.machine import describe_machine, write_figure
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.engines.factory import model_source
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch_engine import load
from service.engines.triton.client import TritonModel
from service.engines.triton.engine import TritonEngine
from service.engines.worker.replica import ReplicaEngine
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings import Settings

FIGURE = Path("docs/figures/triton.json")
WARM_UP = 10
TURN = 25  # in requests
Generate = Callable[[GenerationRequest], Awaitable[GenerationResult]]


@contextlib.contextmanager
def triton_server(settings: Settings, replicas: int) -> Iterator[str]:
    """Run `python -m service.engines.triton` on a free port and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="triton-") as folder:
        environment = {
            **os.environ,
            "PEAKPLAN_ENGINE": "triton",
            "PEAKPLAN_MODEL_DIR": str(settings.model_dir.resolve()),
            "PEAKPLAN_REPLICAS": str(replicas),
            "PEAKPLAN_OVERSUBSCRIBE": "1",
            "PEAKPLAN_TRITON_URL": address,
            "PEAKPLAN_TRITON_FOLDER": folder,
        }
        server = subprocess.Popen([sys.executable, "-m", "service.engines.triton"], env=environment)
        try:
            yield address
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)


async def server_version(address: str) -> str:
    triton = TritonModel(address, "")
    try:
        return await triton.server_version(10)
    finally:
        await triton.close()


def requests(model: Path, questions: Sequence[Question]) -> list[GenerationRequest]:
    vocabulary, reader = Vocabulary.load(model), Reader.of_model(model)
    return [PlanTask(one, vocabulary, reader=reader).request("medusa") for one in questions]


async def measure_added(settings: Settings, address: str, asked: Sequence[GenerationRequest]) -> dict[str, Any]:
    """Return the milliseconds of each way, and the cost of the round trip besides the generation itself."""
    source, model = model_source(settings.engine_config), load(settings.engine_config)
    pipe, triton = ReplicaEngine(source), TritonEngine(address, 0, version=source.version)
    await asyncio.gather(pipe.start(), triton.start())

    async def in_process(request: GenerationRequest) -> GenerationResult:
        return model.generate(request)

    try:
        return await side_by_side({"in_process": in_process, "pipe": pipe.generate, "triton": triton.generate}, asked)
    finally:
        await asyncio.gather(pipe.close(), triton.close())


async def side_by_side(ways: dict[str, Generate], asked: Sequence[GenerationRequest]) -> dict[str, Any]:
    """Run every way on every request, in turns whose order rotates; in_process, pipe and triton must be among the ways.

    A turn takes several requests: with turns of one, each way would find the processor's caches full of the others.
    """
    names = list(ways)
    whole: dict[str, list[float]] = {name: [] for name in names}
    around: dict[str, list[float]] = {name: [] for name in names}
    tokens: dict[str, list[list[int]]] = {name: [] for name in names}
    for request in asked[:WARM_UP]:
        for name in names:
            await ways[name](request)
    for number, first in enumerate(range(0, len(asked), TURN)):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            for request in asked[first : first + TURN]:
                started = time.perf_counter()
                result = await ways[name](request)
                milliseconds = (time.perf_counter() - started) * 1000
                whole[name].append(milliseconds)
                around[name].append(milliseconds - result.seconds * 1000)
                tokens[name].append(result.tokens)
    identical = sum(one == other for one, other in zip(tokens["triton"], tokens["in_process"], strict=True))
    return {
        "milliseconds": {name: _summary(whole[name]) for name in names},
        # the same round trips minus the generation inside them as timed by the model's own process, free of its noise
        "around_generation_ms": {name: _summary(around[name]) for name in names},
        "added_p50_ms": {
            f"over_{name}": round(_median(around["triton"]) - _median(around[name]), 3)
            for name in ("in_process", "pipe")
        },
        "identical_tokens": identical,
    }


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"p50": round(_median(values), 3), "p99": round(float(np.quantile(values, 0.99, method="inverted_cdf")), 3)}


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


def main() -> None:
    parser = argparse.ArgumentParser(description="What Triton adds, into docs/figures/triton.json.")
    parser.add_argument("--model", type=Path, default=Settings().model_dir)
    parser.add_argument("--count", type=int, default=200, help="questions")
    parser.add_argument("--note", default="", help="what else the machine was doing; kept in the figure")
    options = parser.parse_args()
    settings = Settings(model_dir=options.model, replicas=1)
    questions = dev_questions(options.count) if has_dev_data() else own_questions(options.count)
    with triton_server(settings, 1) as address:
        added = asyncio.run(measure_added(settings, address, requests(options.model, questions)))
        version = asyncio.run(server_version(address))
    figure = {
        "command": "peakplan bench triton",
        "machine": describe_machine(),
        "note": options.note,
        "tritonserver": version,
        "questions": {
            "count": len(questions),
            "from": "dev rows" if has_dev_data() else "rehearsal/bench/questions.jsonl",
        },
        **added,
    }
    write_figure(FIGURE, figure)
    print(json.dumps(figure, indent=1))


if __name__ == "__main__":
    main()
