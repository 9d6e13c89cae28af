"""`python -m rehearsal.bench.neuron_day.parts DAY PART RESULT [GRAPH]`: one part, in a process that ends with it.

It runs on the Python that has the Neuron SDK, which lacks the gateway's packages. Not run on hardware.
"""

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rehearsal.bench.machine import describe_machine, quantile
from rehearsal.bench.neuron_day.day import Day, Graph
from rehearsal.bench.neuron_loop import requests
from service.engines import torch_engine
from service.engines.batch import Batch
from service.engines.neuron.compilation import compile_model
from service.engines.neuron.configuration import CompileSettings, ConfigurationError, forward_shape, rows_of
from service.engines.neuron.forward import CompiledModel, ForwardShape
from service.engines.neuron.manifest import FILE, Manifest, artifact_sizes
from service.engines.neuron.model import NeuronModel, load
from service.engines.neuron.nxdi import NXDI, Driver
from service.engines.neuron.packages import VISIBLE_CORES, installed_versions, neuron_cores
from service.engines.protocol import GenerationRequest, GenerationResult
from service.settings import Settings
from service.settings.choices import Strategy
from service.settings.engines import EngineConfig, NeuronSettings
from service.weights.model_folder import read_card

WARM_UP_STEPS = 20
STRATEGIES: tuple[Strategy, ...] = ("autoregressive", "medusa")
Packages = Callable[[], Mapping[str, str]]


class SkippedError(Exception):
    """Raised where a part has nothing to measure; the message says why."""


def compile_graph(
    day: Day, graph: Graph, driver: Driver = NXDI, packages: Packages = installed_versions
) -> dict[str, Any]:
    """Compile a graph that is not there yet; return seconds, bytes and lengths. Raises SkippedError."""
    output, seconds = day.compiled(graph), 0.0
    if not (output / FILE).is_file():
        unfinished = output.with_name(f".{output.name}")  # what was broken off leaves nothing under the graph's name
        shutil.rmtree(unfinished, ignore_errors=True)
        settings = CompileSettings.model_validate(
            {
                "chip": day.chip,
                "tensor_parallel": graph.cores,
                "max_prompt_tokens": Settings().max_prompt_tokens,
                "max_new_tokens": read_card(day.model_dir).max_tokens,
                "speculation_length": graph.rows,
                "batch_size": graph.batch,
                "graph": graph.kind,
                "weight_layout": graph.layout,
            }
        )
        started = time.monotonic()
        try:
            compile_model(day.model_dir, day.cache_dir, unfinished, settings, packages(), driver)
        except ConfigurationError as error:
            raise SkippedError(str(error)) from error
        seconds = time.monotonic() - started
        unfinished.rename(output)
    arguments = Manifest.read(output).arguments
    return {
        "seconds": round(seconds, 1),
        "bytes": sum(artifact_sizes(output).values()),
        "rows": rows_of(arguments),
        "sequence_length": arguments["seq_len"],
        "context_buckets": arguments["context_encoding_buckets"],
    }


def _loaded(day: Day, graph: Graph, driver: Driver, packages: Packages) -> NeuronModel:
    """Load a compiled model as the host's first replica does, on the first cores."""
    neuron = NeuronSettings(compiled_dir=_artifacts(day, graph), tensor_parallel=graph.cores)
    config = EngineConfig(
        model_dir=day.model_dir, cache_dir=day.cache_dir, engine="neuron", batch_size=graph.batch, neuron=neuron
    )
    return load(config, 0, driver, packages)


def _artifacts(day: Day, graph: Graph) -> Path:
    folder = day.compiled(graph)
    if not (folder / FILE).is_file():
        raise SkippedError("it was not compiled")
    return folder


def compare_tokens(
    day: Day, graph: Graph, driver: Driver = NXDI, packages: Packages = installed_versions
) -> dict[str, Any]:
    """Count plans whose tokens are those of greedy decoding on the device, and those of a CPU in float32."""
    device = _loaded(day, graph, driver, packages)
    config = EngineConfig(model_dir=day.model_dir, cache_dir=day.cache_dir, dtype="float32")
    processor = torch_engine.load(config)
    asked = requests(day.model_dir, day.questions)
    medusa = [device.generate(request).tokens for request in asked]
    greedy = [device.generate(replace(request, strategy="autoregressive")).tokens for request in asked]
    here = [processor.generate(request).tokens for request in asked]
    return {
        "questions": len(asked),
        "medusa_is_greedy": sum(one == other for one, other in zip(medusa, greedy, strict=True)),
        "device_is_float32": sum(one == other for one, other in zip(greedy, here, strict=True)),
    }


def time_steps(day: Day, graph: Graph, driver: Driver = NXDI, _: Packages = installed_versions) -> dict[str, Any]:
    """Time a step with every row and sequence taken, and a prompt of each length that was compiled."""
    folder = _artifacts(day, graph)
    arguments = Manifest.read(folder).arguments
    shape = forward_shape(arguments)
    os.environ[VISIBLE_CORES] = neuron_cores(0, graph.cores)
    model = driver.load(folder)
    found = _milliseconds([_step(model, shape, start=32) for _ in range(WARM_UP_STEPS + day.steps)][WARM_UP_STEPS:])
    lengths = arguments["context_encoding_buckets"] if graph.batch == 1 else []  # in batches prompts are read as trees
    prompts = {
        str(length): _milliseconds([_prompt(model, length) for _ in range(WARM_UP_STEPS + day.steps)][WARM_UP_STEPS:])
        for length in lengths
        if length > shape.rows
    }
    return {"rows": shape.rows, **found, "prompts": prompts}


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "p50_ms": round(1e3 * statistics.median(seconds), 3),
        "p99_ms": round(1e3 * quantile(seconds, 0.99), 3),
    }


def _step(model: CompiledModel, shape: ForwardShape, start: int) -> float:
    """Return the seconds of one forward over a chain of the graph's rows after `start` positions."""
    batch, rows = shape.batch_size, shape.rows
    positions = torch.arange(start, start + rows).repeat(batch, 1)
    unmoved = torch.full((batch, shape.num_heads + 1), start)
    mask = torch.ones(rows, rows, dtype=torch.long).tril().repeat(batch, 1, 1)
    started = time.perf_counter()
    output = model.forward(
        input_ids=torch.ones(batch, rows, dtype=torch.long),
        attention_mask=torch.ones(batch, start, dtype=torch.long),
        position_ids=positions,
        medusa_args=None if shape.is_chain else (unmoved, unmoved, mask, positions),
    )
    output.hidden_states.cpu()  # a device answers when it is read
    return time.perf_counter() - started


def _prompt(model: CompiledModel, length: int) -> float:
    """Return the seconds of reading a prompt of `length` tokens."""
    started = time.perf_counter()
    output = model.forward(
        input_ids=torch.ones(1, length, dtype=torch.long),
        attention_mask=torch.ones(1, length, dtype=torch.long),
        position_ids=torch.arange(length)[None],
    )
    output.hidden_states.cpu()
    return time.perf_counter() - started


def time_plans(
    day: Day, graph: Graph, driver: Driver = NXDI, packages: Packages = installed_versions
) -> dict[str, Any]:
    """Plan questions on one replica whose sequences are all in use, plain and with Medusa, by strategy."""
    model = _loaded(day, graph, driver, packages)
    asked = requests(day.model_dir, day.questions)
    return {
        strategy: _plans(model, graph, [replace(request, strategy=strategy) for request in asked])
        for strategy in STRATEGIES
    }


def _plans(model: NeuronModel, graph: Graph, asked: Sequence[GenerationRequest]) -> dict[str, Any]:
    """Keep as many plans in flight as the graph has sequences; a plan's time is from its first forward to its last."""
    batch, began, results, times = Batch[int](model), dict[int, float](), list[GenerationResult](), list[float]()
    waiting, started = list(enumerate(asked)), time.perf_counter()
    while waiting or len(batch):
        while waiting and len(batch) < graph.batch:
            key, request = waiting.pop(0)
            began[key] = time.perf_counter()
            batch.add(key, request)
        for key, outcome in batch.step():
            if isinstance(outcome, Exception):
                raise outcome
            results.append(outcome)
            times.append(1e3 * (time.perf_counter() - began[key]))
    mean = 1e3 * (time.perf_counter() - started) / len(asked)
    return {
        "questions": len(results),
        "finished": sum(result.stop_reason == "finished" for result in results),
        "forwards": round(statistics.fmean(result.forwards for result in results), 2),
        "mean_ms": round(mean, 2),  # that a plan keeps the replica busy, its share of a batch
        "p50_ms": round(statistics.median(times), 2),
        "p99_ms": round(max(quantile(times, 0.99), mean), 2),
        "plans_a_second_a_core": round(1000 / mean / graph.cores, 1),
    }


PARTS: dict[str, Callable[[Day, Graph], dict[str, Any]]] = {
    "compile": compile_graph,
    "order": compare_tokens,
    "steps": time_steps,
    "plans": time_plans,
}


def main(words: Sequence[str]) -> int:
    """Measure one part and write its result, or why there is none; return 1 where it failed."""
    file, part, output = Path(words[0]), words[1], Path(words[2])
    day = Day.read(file)
    try:
        found = describe_machine() if part == "machine" else PARTS[part](day, Graph(**json.loads(words[3])))
    except SkippedError as reason:
        found = {"skipped": str(reason)}
    except Exception as error:  # the parts after it may say something all the same
        found = {"failed": f"{type(error).__name__}: {error}"}
    output.write_text(json.dumps(found), encoding="utf-8")
    return int("failed" in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
