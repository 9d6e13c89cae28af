"""Calls of the kernels with fixed inputs, run here or by the program that replays them under an emulator."""

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.llama import rotary_table
from service.decoding.llama_config import LlamaConfig
from service.decoding.native.build import REPLAY_PROGRAM
from service.decoding.native.library import PREBUILT, Shape
from service.decoding.native_llama import LAYER_WEIGHTS
from service.decoding.tree import ancestor_mask

QEMU = "qemu-aarch64-static"
ARM64_SYSTEM = Path("/usr/aarch64-linux-gnu")
_FORWARD, _MULTIPLY, _SCORES = range(3)
Array = NDArray[Any]


@dataclass(frozen=True)
class Call:
    """One call: the input that `replay.cpp` reads, and the number of floats that it returns."""

    kind: int
    numbers: tuple[int, int, int, int]
    inputs: tuple[Array, ...]
    answers: int


@dataclass
class KernelCalls:
    """A model and the calls of it, all float32."""

    config: LlamaConfig
    weights: dict[str, Tensor]
    positions: int
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rotary = rotary_table(self.config, torch.device("cpu"))

    def forward(self, tokens: Sequence[int], parents: Sequence[int], kept: int) -> None:
        """Read a tree of tokens after `kept` positions of the cache."""
        depths: list[int] = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        hidden = self.weights["model.embed_tokens.weight"][torch.tensor(tokens)].bfloat16().float()
        rotary = self._rotary[torch.tensor(depths) + kept]
        mask = ancestor_mask(list(parents))
        inputs = tuple(tensor.contiguous().numpy() for tensor in (hidden, rotary, mask.to(torch.uint8)))
        self.calls.append(Call(_FORWARD, (len(tokens), kept, self.positions, 0), inputs, hidden.numel()))

    def multiply(self, weight: Tensor, x: Tensor) -> None:
        numbers = (x.shape[0], weight.shape[0], weight.shape[1], 0)
        inputs = (weight.float().contiguous().numpy(), x.contiguous().numpy())
        self.calls.append(Call(_MULTIPLY, numbers, inputs, x.shape[0] * weight.shape[0]))

    def scores(self, weight: Tensor, row: Tensor, tokens: Sequence[int]) -> None:
        numbers = (len(tokens), weight.shape[1], weight.shape[0], 0)
        bits = weight.bfloat16().contiguous().view(torch.int16).numpy()
        self.calls.append(Call(_SCORES, numbers, (bits, row.numpy(), np.array(tokens, np.int64)), len(tokens)))

    def run(self, library: ctypes.CDLL) -> bytes:
        """Return the answers of a library of this processor, call after call."""
        shape = self._shape()
        model = library.peakplan_create(ctypes.byref(shape))
        for index, layer in enumerate(self._layers()):
            library.peakplan_set_layer(model, index, (ctypes.c_void_p * 9)(*(each.ctypes.data for each in layer)))
        norm = self._norm()
        library.peakplan_set_norm(model, norm.ctypes.data)
        cache = np.zeros(self.config.num_layers * 2 * self.config.num_kv_heads * self.positions * self.config.head_dim)
        cache = cache.astype(np.float32)
        answers = b"".join(_run(library, model, cache, call).tobytes() for call in self.calls)
        library.peakplan_destroy(model)
        return answers

    def run_emulated(self, file_name: str, folder: Path) -> bytes:
        """Return an arm64 library's answers under qemu. Raises CalledProcessError with its output."""
        self.write(folder / "calls")
        command = [QEMU, "-L", str(ARM64_SYSTEM), str(PREBUILT / REPLAY_PROGRAM), str(PREBUILT / file_name)]
        subprocess.run([*command, str(folder / "calls"), str(folder / "answers")], check=True, timeout=600)
        return (folder / "answers").read_bytes()

    def write(self, path: Path) -> None:
        """Write the file that `replay.cpp` reads."""
        with path.open("wb") as file:
            file.write(bytes(self._shape()))
            for layer in self._layers():
                for weight in layer:
                    file.write(weight.tobytes())
            file.write(self._norm().tobytes())
            for call in self.calls:
                file.write(np.array([call.kind, *call.numbers], np.int32).tobytes())
                for array in call.inputs:
                    file.write(array.tobytes())

    def _shape(self) -> Shape:
        c = self.config
        return Shape(
            c.hidden_size, c.intermediate_size, c.num_layers, c.num_heads, c.num_kv_heads, c.head_dim, c.rms_norm_eps
        )

    def _layers(self) -> list[list[Array]]:
        return [
            [self.weights[f"model.layers.{index}.{name}.weight"].float().contiguous().numpy() for name in LAYER_WEIGHTS]
            for index in range(self.config.num_layers)
        ]

    def _norm(self) -> Array:
        norm: Array = self.weights["model.norm.weight"].float().contiguous().numpy()
        return norm


def _run(library: ctypes.CDLL, model: int, cache: Array, call: Call) -> Array:
    rows, second, third, _ = call.numbers
    pointers = [array.ctypes.data for array in call.inputs]
    answers = np.zeros(call.answers, np.float32)
    if call.kind == _FORWARD:
        answers = call.inputs[0].copy()
        assert not library.peakplan_forward(
            model, answers.ctypes.data, rows, *pointers[1:], cache.ctypes.data, third, second
        )
    elif call.kind == _MULTIPLY:
        matrix = library.peakplan_matrix_create(second, third, pointers[0])
        assert not library.peakplan_matrix_multiply(matrix, pointers[1], rows, answers.ctypes.data)
        library.peakplan_matrix_destroy(matrix)
    else:
        library.peakplan_scores(pointers[0], second, pointers[1], pointers[2], rows, answers.ctypes.data)
    return answers
