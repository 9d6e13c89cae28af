"""The limits of one thread of this machine (a roofline), and the least time of a forward there.

A forward reads every int8 weight of the layers once and multiplies it with every row, so it takes at least the longer
of the two: bytes at the memory's bandwidth, or multiplies at the processor's peak. Both are measured by limits.cpp:
reads of as many bytes as the weights are, again and again as forwards do, so that what stays in a cache stays there for
both; and multiplies from registers alone, with the kernel's own instructions. Without a compiler NumPy's dot product
reads instead, and our kernel on weights in the cache multiplies, which is less than the peak; the figure says which.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from service.decoding.linear import Linear
from service.decoding.llama_config import LlamaConfig
from service.decoding.native.targets import instructions
from service.decoding.target import CausalLM

_SOURCE = Path(__file__).with_name("limits.cpp")
_REPEATS = 12
_MULTIPLY_TIMES = 2_000_000
# limits.cpp's name of each kernel's multiply instruction.
_SETS = {"avx512vnni": 0, "avxvnni": 1, "avx2": 2, "neon": 3}
_CACHED_SHAPE = (256, 576)  # outputs by inputs, 144 KiB, which fits a second-level cache


@dataclass(frozen=True)
class Limits:
    """One thread's limits: 1e9 bytes read per second, 1e9 8-bit multiplies per second, and the weights to read."""

    layer_weights: int
    gigabytes_per_second: float
    gigamultiplies_per_second: float
    measured_with: str
    kernel_in_cache_gigamultiplies_per_second: float

    def forward_ms(self, rows: int) -> float:
        """Return the least milliseconds of a forward of `rows` rows."""
        reading = self.layer_weights / self.gigabytes_per_second
        multiplying = self.layer_weights * rows / self.gigamultiplies_per_second
        return max(reading, multiplying) * 1e-6

    def figure(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the limits as a figure's file holds them."""
        return {**asdict(self), "forward_ms": {str(each): round(self.forward_ms(each), 2) for each in rows}}


def layer_weights(config: LlamaConfig) -> int:
    """Count the weights of the matrices that every row passes: all layers', without embedding and LM head."""
    attention = 2 * config.hidden_size * config.head_dim * (config.num_heads + config.num_kv_heads)
    return config.num_layers * (attention + 3 * config.hidden_size * config.intermediate_size)


def measure_limits(kernel: str, model: CausalLM, cache_dir: Path) -> Limits:
    """Measure for some seconds; `kernel` names the instructions that `model` multiplies with."""
    weights = layer_weights(model.config)
    in_cache = _multiplies_in_cache(model.linear(torch.randn(_CACHED_SHAPE)))
    readers, peak = (memory_reader(weights, cache_dir), _numpy_reader(weights)), 0.0
    bandwidth = max(read() for read in readers for _ in range(_REPEATS))
    library = _library(cache_dir)
    if library is not None and kernel in _SETS:
        peak = max(library.limits_multiply(_SETS[kernel], _MULTIPLY_TIMES) for _ in range(_REPEATS))
    how = "limits.cpp" if library else "NumPy"
    how += "" if peak else " and our kernel in the cache"
    return Limits(weights, round(bandwidth, 1), round(peak or in_cache, 1), how, in_cache)


def _library(cache_dir: Path) -> ctypes.CDLL | None:
    """Return limits.cpp, compiled once; None without a compiler, or with one that cannot compile it."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    path = cache_dir / "native" / f"limits-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not path.is_file():
        if compiler is None:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / path.name
            command = [*compiler.split(), "-std=c++17", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(built)]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=120)
            except (OSError, subprocess.SubprocessError):
                return None
            built.replace(path)
    library = ctypes.CDLL(str(path))
    library.limits_read.restype = library.limits_multiply.restype = ctypes.c_double
    library.limits_read.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.limits_multiply.argtypes = [ctypes.c_int, ctypes.c_long]
    return library


def memory_reader(size: int, cache_dir: Path) -> Callable[[], float]:
    """Return what reads `size` bytes of memory once, the same ones every time, and returns 1e9 bytes a second."""
    library = _library(cache_dir)
    if library is None:
        return _numpy_reader(size)
    whole, wide = size - size % 256, "avx512f" in instructions()
    buffer = np.ones(whole + 8192, np.uint8)  # prefetching reads past the end

    def rate() -> float:
        start = -(-buffer.ctypes.data // 64) * 64
        return whole * 1e-9 / float(library.limits_read(start, whole, wide))

    return rate


def _numpy_reader(size: int) -> Callable[[], float]:
    buffer = np.ones(size // 4, np.float32)

    def rate() -> float:
        started = time.perf_counter()
        np.dot(buffer, buffer)
        return size * 1e-9 / (time.perf_counter() - started)

    return rate


def _multiplies_in_cache(product: Linear, rows: int = 16) -> float:
    """Return 1e9 multiplies per second of our kernel, quantising activations and writing results included."""
    x = torch.randn(rows, _CACHED_SHAPE[1])
    seconds = []
    for _ in range(_REPEATS * 100):
        started = time.perf_counter()
        product(x)
        seconds.append(time.perf_counter() - started)
    return round(rows * _CACHED_SHAPE[0] * _CACHED_SHAPE[1] * 1e-9 / min(seconds), 1)
