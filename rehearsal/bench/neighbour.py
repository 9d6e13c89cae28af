"""`peakplan bench neighbour`: plans a second beside a neighbour that eats memory bandwidth, by size of the batch.

A replica with a copy of the forward of its own reads all weights for each step of each plan. Requests that share a
forward read them once for all. Both run on one core, while a neighbour on another core reads memory without pause, as
STREAM does (McCalpin, 1995), or sleeps. Sizes and neighbours take turns, and time is that of the core, so that nothing
else that runs here counts. The figures go to docs/figures/neighbour.json, by machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rehearsal.bench.batching import load, run
from rehearsal.bench.figure_file import write_machine
from rehearsal.bench.limits import memory_reader
from rehearsal.bench.machine import describe_machine, kernel_in_use, machine_name
from rehearsal.bench.neuron_loop import requests
from service.engines.protocol import GenerationRequest
from service.engines.torch.engine import TorchModel
from service.settings import Settings

OUTPUT = Path(__file__).parents[2] / "docs" / "figures" / "neighbour.json"
SIZES = (1, 2, 4, 8)
_EATEN = 256 << 20  # bytes that the neighbour reads again and again, more than any core's share of a cache
_READ = 106_168_320  # bytes that tell what bandwidth is left, as many as a forward reads
_REPEATS = 5
_SETTLES = 0.5  # seconds until a neighbour that starts reads at its full rate


def eat(core: int, cache_dir: Path) -> None:
    """Read memory on `core` until this process is ended."""
    os.sched_setaffinity(0, {core})
    read = memory_reader(_EATEN, cache_dir)
    while True:
        read()


@contextmanager
def neighbour(core: int, cache_dir: Path) -> Iterator[None]:
    """Run a process on `core` that reads memory without pause."""
    command = [
        sys.executable,
        "-m",
        "rehearsal.bench.neighbour",
        "--eat",
        str(core),
        "--cache-dir",
        str(cache_dir),
    ]
    process = subprocess.Popen(command)
    try:
        time.sleep(_SETTLES)
        if process.poll() is not None:
            raise SystemExit(f"the neighbour ended at once: {' '.join(command)}")
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def nobody() -> Iterator[None]:
    """Leave the other core alone."""
    yield


def plans_per_second(model: TorchModel, asked: Sequence[GenerationRequest], size: int) -> float:
    """Return the plans of a second of this core, `size` of them sharing each forward."""
    started = time.process_time()
    run(model, asked, size)
    return len(asked) / (time.process_time() - started)


def measure(
    model: TorchModel,
    asked: Sequence[GenerationRequest],
    sizes: Sequence[int],
    rounds: int,
    beside: dict[str, Callable[[], Any]],
    bandwidth: Callable[[], float],
) -> dict[str, Any]:
    """Return, for each way of being `beside` somebody, the bandwidth left and the plans a second by size."""
    run(model, asked[: max(sizes)], max(sizes))  # memory is taken
    rates: dict[tuple[str, int], list[float]] = {}
    left: dict[str, list[float]] = {}
    for number in range(rounds):
        share = asked[number::rounds]
        for name, other in beside.items():
            with other():
                left.setdefault(name, []).append(bandwidth())
                for size in sizes:
                    rates.setdefault((name, size), []).append(plans_per_second(model, share, size))
    found = {}
    for name in beside:
        by_size = {str(size): round(statistics.median(rates[name, size]), 1) for size in sizes}
        found[name] = {
            "gigabytes_per_second_left": round(max(left[name]), 1),
            "plans_per_second": by_size,
            "best_over_own_copies": round(max(by_size.values()) / by_size[str(sizes[0])], 2),
        }
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Write the figures and return the exit code."""
    settings = Settings()
    parser = argparse.ArgumentParser(prog="python -m rehearsal.bench.neighbour", description=__doc__)
    parser.add_argument("--model", type=Path, default=settings.model_dir)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--eat", type=int, metavar="CORE", help="be the neighbour on this core")
    parser.add_argument("--cache-dir", type=Path, default=settings.cache_dir)
    arguments = parser.parse_args(words)
    if arguments.eat is not None:
        eat(arguments.eat, arguments.cache_dir)
    cores, machine = sorted(os.sched_getaffinity(0)), describe_machine()
    if len(cores) < 2:
        raise SystemExit("a neighbour needs a second core")
    os.sched_setaffinity(0, {cores[0]})
    torch.set_num_threads(1)
    asked = requests(arguments.model, arguments.questions)
    model = load(arguments.model, settings.cache_dir, "int8", "cpu", max(arguments.sizes))
    read = memory_reader(_READ, settings.cache_dir)
    figure = {
        "command": "peakplan bench neighbour",
        "machine": machine,
        "kernel": model.kernel,
        "questions": len(asked),
        "rounds": arguments.rounds,
        "beside": measure(
            model,
            asked,
            arguments.sizes,
            arguments.rounds,
            {"nobody": nobody, "a neighbour": lambda: neighbour(cores[-1], arguments.cache_dir)},
            lambda: max(read() for _ in range(_REPEATS)),
        ),
    }
    print(figure["beside"])
    write_machine(arguments.output, machine_name(kernel_in_use(model)), figure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
