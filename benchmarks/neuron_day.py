"""`make neuron-day`: what only a Neuron device can say, in order, into a figure file. Not run on hardware.

    compile   seconds and bytes of the graphs for this chip, by rows and batch
    order     the device's tokens beside those of a CPU, and beside its own greedy ones
    steps     milliseconds of a step by rows and batch
    plans     forwards, milliseconds and plans a second of a core, plain and with Medusa
    triton    whether a Triton stub can host a replica: libnrt beside the stubs' numpy
    boot      seconds from a process's start to its first plan, without Triton

A part that fails is written down with its reason, and the next is tried. `--fleet FILE` then puts the measured service
time, and the strategy that was faster, into a fleet file. It runs where the Neuron SDK is (docs/neuron.md).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import describe_machine
from benchmarks.neuron_loop import requests
from benchmarks.series import quantile
from service.engines.neuron.compilation import compile_model
from service.engines.neuron.configuration import Chip, CompileSettings, forward_shape
from service.engines.neuron.forward import CompiledModel, ForwardShape
from service.engines.neuron.manifest import Manifest, artifact_sizes
from service.engines.neuron.model import NeuronModel, load
from service.engines.neuron.nxdi import NXDI, Driver
from service.engines.neuron.packages import NeuronUnavailableError, installed_versions
from service.engines.protocol import GenerationResult
from service.engines.torch import engine as torch_engine
from service.settings import Settings
from service.settings.choices import Strategy
from service.settings.engines import EngineConfig, NeuronSettings
from service.weights.model_folder import read_card

OUTPUT = Path(__file__).parents[1] / "docs" / "figures" / "neuron_day.json"
ROWS = (0, 32, 48)  # 0: the tree's own
BATCHES = (1, 4, 8)
STEPS, WARM_UP_STEPS = 200, 20
BOOT_SECONDS = 600
STRATEGIES: tuple[Strategy, ...] = ("autoregressive", "medusa")
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Day:
    """What is measured, where artifacts go, and with what: tests bring a driver and packages of their own."""

    model_dir: Path
    cache_dir: Path
    folder: Path
    chip: Chip
    questions: int
    driver: Driver = NXDI
    packages: Callable[[], Any] = installed_versions

    def compiled(self, rows: int = 0, batch: int = 1) -> Path:
        """Return where the graph of so many rows and sequences is."""
        return self.folder / f"{self.chip}-{rows or 'tree'}-{batch}"

    def loaded(self, rows: int = 0, batch: int = 1) -> NeuronModel:
        """Load a compiled model as a replica does, on the cores that this process sees."""
        neuron = NeuronSettings(compiled_dir=self.compiled(rows, batch))
        config = EngineConfig(
            model_dir=self.model_dir, cache_dir=self.cache_dir, engine="neuron", batch_size=batch, neuron=neuron
        )
        return load(config, None, self.driver, self.packages)


def compile_graphs(day: Day, sequence_length: int) -> dict[str, Any]:
    """Compile every combination of rows and batch that is not there yet; return seconds and bytes."""
    found = {}
    for rows, batch in _graphs():
        output = day.compiled(rows, batch)
        settings = CompileSettings(
            chip=day.chip,
            max_prompt_tokens=Settings().max_prompt_tokens,
            max_new_tokens=read_card(day.model_dir).max_tokens,
            sequence_length=sequence_length,
            speculation_length=rows,
            batch_size=batch,
        )
        started = time.monotonic()
        if not (output / "manifest.json").is_file():
            compile_model(day.model_dir, day.cache_dir, output, settings, day.packages(), day.driver)
        found[_name(rows, batch)] = {
            "seconds": round(time.monotonic() - started, 1),
            "bytes": sum(artifact_sizes(output).values()),
        }
    return found


def _graphs() -> list[tuple[int, int]]:
    return [(rows, 1) for rows in ROWS] + [(0, batch) for batch in BATCHES[1:]]


def _name(rows: int, batch: int) -> str:
    return f"{rows or 'tree'} rows, batch {batch}"


def compare_tokens(day: Day) -> dict[str, Any]:
    """Count plans whose tokens are those of greedy decoding on the device, and those of a CPU in float32."""
    device = day.loaded()
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


def time_steps(day: Day) -> dict[str, Any]:
    """Time a step of each graph, with every row and sequence taken."""
    found = {}
    for rows, batch in _graphs():
        folder = day.compiled(rows, batch)
        shape = forward_shape(Manifest.read(folder).arguments)
        model = day.driver.load(folder)
        times = [_step(model, shape, start=32) for _ in range(WARM_UP_STEPS + STEPS)][WARM_UP_STEPS:]
        found[_name(rows, batch)] = {
            "rows": shape.rows,
            "p50_ms": round(1e3 * statistics.median(times), 3),
            "p99_ms": round(1e3 * quantile(times, 0.99), 3),
        }
    return found


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
        medusa_args=(unmoved, unmoved, mask, positions),
    )
    output.hidden_states.cpu()  # a device answers when it is read
    return time.perf_counter() - started


def time_plans(day: Day) -> dict[str, Any]:
    """Plan questions one after another on one replica, plain and with Medusa, and say which is faster."""
    model = day.loaded()
    found: dict[str, Any] = {}
    for strategy in STRATEGIES:
        results, times = [], []
        for request in requests(day.model_dir, day.questions):
            started = time.perf_counter()
            results.append(model.generate(replace(request, strategy=strategy)))
            times.append(1e3 * (time.perf_counter() - started))
        found[strategy] = _plans(results, times)
    found["faster"] = min(STRATEGIES, key=lambda strategy: float(found[strategy]["mean_ms"]))
    return found


def _plans(results: Sequence[GenerationResult], times: Sequence[float]) -> dict[str, Any]:
    mean = statistics.fmean(times)
    return {
        "questions": len(results),
        "finished": sum(result.stop_reason == "finished" for result in results),
        "forwards": round(statistics.fmean(result.forwards for result in results), 2),
        "mean_ms": round(mean, 2),
        "p50_ms": round(statistics.median(times), 2),
        "p99_ms": round(quantile(times, 0.99), 2),
        "plans_a_second_a_core": round(1000 / mean, 1),
    }


def boot(day: Day, engine: str) -> dict[str, Any]:
    """Start the service on the compiled model and ask until it is ready. Raises RuntimeError with its last words."""
    port = 18080
    environment = os.environ | {
        "PEAKPLAN_ENGINE": engine,
        "PEAKPLAN_TRITON_HOSTS": "neuron",
        "PEAKPLAN_MODEL_DIR": str(day.model_dir),
        "PEAKPLAN_COMPILED_DIR": str(day.compiled()),
        "PEAKPLAN_REPLICAS": "1",
        "HOST": "127.0.0.1",
        "PORT": str(port),
    }
    log = day.folder / f"{engine}.log"
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as lines:
        service = subprocess.Popen([sys.executable, "-m", "service.container"], env=environment, stderr=lines)
    try:
        while not _is_ready(port):
            if service.poll() is not None or time.monotonic() - started > BOOT_SECONDS:
                last = (log.read_text(encoding="utf-8").splitlines() or ["it said nothing"])[-1]
                raise RuntimeError(f"the service was not ready after {time.monotonic() - started:.0f} s: {last}")
            time.sleep(_POLL_SECONDS)
        return {"engine": engine, "seconds_to_ready": round(time.monotonic() - started, 1)}
    finally:
        service.terminate()
        service.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def fleet_text(text: str, plans: dict[str, Any], source: str) -> str:
    """Return a fleet file with the measured service time and the faster strategy; its comments stay.

    Raises ValueError where the file has no `service_time` in its model.
    """
    chosen = plans[plans["faster"]]
    block = re.compile(r"^(?P<indent> +)service_time:\n(?:(?P=indent) +.*\n)+", re.MULTILINE)
    if not block.search(text):
        raise ValueError("the fleet file has no model.service_time to replace")

    def measured(found: re.Match[str]) -> str:
        indent = found["indent"]
        lines = [f"mean_ms: {chosen['mean_ms']:g}", f"p99_ms: {chosen['p99_ms']:g}", f"source: {json.dumps(source)}"]
        return f"{indent}strategy: {plans['faster']}\n{indent}service_time:\n" + "".join(
            f"{indent}  {line}\n" for line in lines
        )

    return block.sub(measured, re.sub(r"^ +strategy: .*\n", "", text, flags=re.MULTILINE), count=1)


def run(day: Day, sequence_length: int = 512) -> dict[str, Any]:
    """Run every part in order and return the figures; a part that fails is its reason."""
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "compile": lambda: compile_graphs(day, sequence_length),
        "order": lambda: compare_tokens(day),
        "steps": lambda: time_steps(day),
        "plans": lambda: time_plans(day),
        "triton": lambda: boot(day, "triton"),
        "boot": lambda: boot(day, "neuron"),
    }
    found: dict[str, Any] = {"command": "make neuron-day", "chip": day.chip, "machine": describe_machine()}
    for name, part in parts.items():
        try:
            found[name] = part()
        except Exception as error:  # the next part may say something all the same
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(name, json.dumps(found[name]), flush=True)
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Measure and write; return 2 where there is no Neuron SDK, 1 where a part failed."""
    settings = Settings()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neuron_day", description=__doc__)
    parser.add_argument("--model", type=Path, default=settings.model_dir)
    parser.add_argument("--chip", choices=["inf2", "trn1"], default="inf2")
    parser.add_argument("--folder", type=Path, default=Path("runs/neuron-day"), help="keeps what was compiled")
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--sequence-length", type=int, default=576)
    parser.add_argument("--fleet", type=Path, help="a fleet file that takes the measured service time")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args(words)
    try:
        installed_versions()
    except NeuronUnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    arguments.folder.mkdir(parents=True, exist_ok=True)
    day = Day(arguments.model, settings.cache_dir, arguments.folder.absolute(), arguments.chip, arguments.questions)
    found = run(day, arguments.sequence_length)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.fleet and "faster" in found["plans"]:
        source = f"measured: make neuron-day on a {arguments.chip}, {datetime.now(UTC):%Y-%m-%d}, one replica a core"
        text = fleet_text(arguments.fleet.read_text(encoding="utf-8"), found["plans"], source)
        arguments.fleet.write_text(text, encoding="utf-8")
    return int(any("failed" in part for part in found.values() if isinstance(part, dict)))


if __name__ == "__main__":
    sys.exit(main())
