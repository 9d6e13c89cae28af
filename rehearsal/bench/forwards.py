"""Measure the milliseconds of one forward by precision and by the number of positions it reads, interleaved."""

import statistics
import time
from pathlib import Path

import torch

from service.decoding.target import CausalLM
from service.engines.torch.forward import build_forward, kept_dtype
from service.settings.choices import KernelChoice, Precision
from service.weights.model_folder import ModelFolderError, load_model

ROWS = (1, 4, 8, 16, 32)
_REPEATS = 15
_PREFIX = 24  # cached positions while a plan is written
_PRECISIONS: tuple[Precision, ...] = ("int8", "bfloat16", "float32")


def measure_forwards(model_dir: Path, cache_dir: Path, kernel: KernelChoice) -> dict[str, dict[int, float]]:
    """Return medians on one thread; a precision that this machine does not support is left out."""
    torch.set_num_threads(1)
    models = _models(model_dir, cache_dir, kernel)
    caches = {precision: model.new_cache(_PREFIX + max(ROWS)) for precision, model in models.items()}
    for precision, model in models.items():
        model.forward(torch.arange(_PREFIX), torch.arange(_PREFIX), caches[precision])
        caches[precision].keep(range(_PREFIX))
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(_REPEATS):
        for rows in ROWS:
            tokens, positions = torch.arange(rows), torch.arange(rows) + _PREFIX
            for precision, model in models.items():
                # A replica's forward follows one of its own, as the limits' reads do: another model's would find caches
                # full of what this one never reads.
                model.forward(tokens, positions, caches[precision])
                started = time.perf_counter()
                model.forward(tokens, positions, caches[precision])
                times.setdefault((precision, rows), []).append((time.perf_counter() - started) * 1000)
    return {
        precision: {rows: round(statistics.median(times[precision, rows]), 2) for rows in ROWS} for precision in models
    }


def _models(model_dir: Path, cache_dir: Path, kernel: KernelChoice) -> dict[str, CausalLM]:
    models: dict[str, CausalLM] = {}
    for precision in _PRECISIONS:
        try:
            loaded = load_model(model_dir, cache_dir, kept_dtype(precision))
            chosen: KernelChoice = kernel if precision == "int8" else "torch"
            models[precision] = build_forward(loaded, precision, cache_dir, chosen)
        except ModelFolderError as error:
            print(error)
    return models
