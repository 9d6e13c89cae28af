"""The limits of one thread of this machine (a roofline), and the least time of a forward there.

A forward reads every int8 weight of the layers once and multiplies it with every row, so it takes at least the longer
of the two: bytes at the memory's bandwidth, or multiplies at the processor's peak. Both are measured by limits.cpp:
reads of as many bytes as the weights are, again and again as forwards do, so that what stays in a cache stays there for
both; and multiplies from registers alone, with the kernel's own instructions. It needs a C++ compiler.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service.decoding.llama_config import LlamaConfig
from service.decoding.native.library import instructions
from service.decoding.target import CausalLM

_SOURCE = Path(__file__).with_name("limits.cpp")
_REPEATS = 12
_MULTIPLY_TIMES = 2_000_000
# limits.cpp's name of each kernel's multiply instruction.
_SETS = {"avx512vnni": 0, "avxvnni": 1, "avx2": 2, "neon": 3}


@dataclass(frozen=True)
class Limits:
    """One thread's limits: 1e9 bytes read per second, 1e9 8-bit multiplies per second, and the weights to read."""

    layer_weights: int
    gigabytes_per_second: float
    gigamultiplies_per_second: float
    measured_with: str

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
    """Measure for some seconds; `kernel` names the instructions that `model` multiplies with.

    Raises CalledProcessError or OSError where limits.cpp cannot be compiled, KeyError for a kernel that is not ours.
    """
    weights, library = layer_weights(model.config), _library(cache_dir)
    bandwidth = max(map(memory_reader(library, weights), range(_REPEATS)))
    peak = max(library.limits_multiply(_SETS[kernel], _MULTIPLY_TIMES) for _ in range(_REPEATS))
    return Limits(weights, round(bandwidth, 1), round(peak, 1), "limits.cpp")


def _library(cache_dir: Path) -> ctypes.CDLL:
    """Return limits.cpp, compiled once."""
    path = cache_dir / "native" / f"limits-{hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]}.so"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / path.name
            compiler = os.environ.get("CXX", "c++").split()
            command = [*compiler, "-std=c++17", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(built)]
            subprocess.run(command, check=True, timeout=120)
            built.replace(path)
    library = ctypes.CDLL(str(path))
    library.limits_read.restype = library.limits_multiply.restype = ctypes.c_double
    library.limits_read.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.limits_multiply.argtypes = [ctypes.c_int, ctypes.c_long]
    return library


def memory_reader(library: ctypes.CDLL, size: int) -> Callable[[object], float]:
    """Return what reads `size` bytes of memory once, the same ones every time, and returns 1e9 bytes a second."""
    whole, wide = size - size % 256, "avx512f" in instructions()
    buffer = np.ones(whole + 8192, np.uint8)  # prefetching reads past the end

    def rate(_: object) -> float:
        start = -(-buffer.ctypes.data // 64) * 64
        return whole * 1e-9 / float(library.limits_read(start, whole, wide))

    return rate
