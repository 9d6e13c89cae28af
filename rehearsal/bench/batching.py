"""`python -m rehearsal.bench.batching`: plans a second and their p99 by the size of the batch, in one process.

Every size is kept full: a plan that ends is followed by the next question. The tokens of every plan are compared with
those of the model alone. The figures go to docs/figures/batching.json, by machine; `--device cuda` measures a GPU.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from rehearsal.bench.figure_file import write_machine
from rehearsal.bench.machine import describe_machine, processor_name
from rehearsal.bench.neuron_loop import requests
from rehearsal.bench.series import quantile
from service.decoding.heads import MedusaHeads
from service.engines.batch import Batch
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch.engine import TorchModel
from service.engines.torch.forward import build_forward, kept_dtype
from service.settings import Settings
from service.weights.model_folder import load_model

OUTPUT = Path(__file__).parents[2] / "docs" / "figures" / "batching.json"
SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Run:
    """What one size of batch gave: results in the questions' order, and the seconds of all."""

    results: list[GenerationResult]
    seconds: float


def load(model_dir: Path, cache_dir: Path, precision: Any, device: str, slots: int) -> TorchModel:
    """Load a model with so many slots onto a device."""
    loaded = load_model(model_dir, cache_dir, kept_dtype(precision))
    if device != "cpu":
        weights = {name: weight.to(device) for name, weight in loaded.weights.items()}
        heads = MedusaHeads.from_state_dict(load_file(model_dir / "medusa_heads.safetensors", device=device))
        loaded = replace(loaded, weights=weights, heads=heads)
    forward = build_forward(loaded, precision, cache_dir, "auto" if precision in ("auto", "int8") else "torch")
    return TorchModel(loaded, forward, Settings().max_prompt_tokens, slots=slots)


def run(model: TorchModel, asked: Sequence[GenerationRequest], size: int) -> Run:
    """Plan all questions, `size` at a time."""
    batch = Batch[int](model)
    results: dict[int, GenerationResult] = {}
    waiting = list(enumerate(asked))[::-1]
    started = time.perf_counter()
    while waiting or len(batch):
        while waiting and len(batch) < size:
            batch.add(*waiting.pop())
        for number, outcome in batch.step():
            if not isinstance(outcome, GenerationResult):
                raise outcome
            results[number] = outcome
    return Run([results[number] for number in range(len(asked))], time.perf_counter() - started)


def figures(model: TorchModel, asked: Sequence[GenerationRequest], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return a row for each size of batch; the first is compared with the model alone, the others with it."""
    run(model, asked[:8], max(sizes))  # kernels are chosen, and memory is taken
    alone = [model.generate(request).tokens for request in asked]
    rows = []
    for size in sizes:
        found = run(model, asked, size)
        milliseconds = [1e3 * result.seconds for result in found.results]
        rows.append(
            {
                "batch": size,
                "plans_per_second": round(len(asked) / found.seconds, 1),
                "p50_ms": round(quantile(milliseconds, 0.5), 1),
                "p99_ms": round(quantile(milliseconds, 0.99), 1),
                "identical_to_alone": sum(
                    result.tokens == tokens for result, tokens in zip(found.results, alone, strict=True)
                ),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main(words: Sequence[str] | None = None) -> int:
    """Write the figures and return the exit code."""
    settings = Settings()
    parser = argparse.ArgumentParser(prog="python -m rehearsal.bench.batching", description=__doc__)
    parser.add_argument("--model", type=Path, default=settings.model_dir)
    parser.add_argument("--precision", nargs="+", default=["int8", "bfloat16"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args(words)
    torch.set_num_threads(settings.threads_per_replica)
    asked = requests(arguments.model, arguments.questions)
    rows = {}
    for precision in arguments.precision:
        model = load(arguments.model, settings.cache_dir, precision, arguments.device, max(arguments.sizes))
        print(model.kernel, flush=True)
        rows[model.kernel] = figures(model, asked, arguments.sizes)
    machine = processor_name() if arguments.device == "cpu" else torch.cuda.get_device_name()
    figure = {
        "command": "peakplan bench batching",
        "machine": describe_machine(),
        "device": arguments.device,
        "threads": settings.threads_per_replica,
        "questions": len(asked),
        "kernels": rows,
    }
    write_machine(arguments.output, machine, figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
