"""Every kernel gives the same bits, on whatever processor: the hashes below are committed, and none may differ.

Kernels that this processor does not run are run under qemu (arm64), or with their instructions emulated (x86).
Who changes the arithmetic, the model or the plan's grammar on purpose changes the hashes, which a failing test prints,
and measures the quality again.
"""

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from rehearsal.bench.decoding import our_strategy
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from service.decoding.llama import cosines_and_sines, rotary_table
from service.decoding.llama_config import LlamaConfig
from service.decoding.native.build import REPLAY_PROGRAM
from service.decoding.native.library import (
    FLAGS,
    MAIN,
    PREBUILT,
    SOURCES,
    TARGETS,
    KernelName,
    Shape,
    Target,
    bind,
    load_kernels,
    targets_here,
    targets_of_system,
)
from service.decoding.native_llama import LAYER_WEIGHTS
from service.decoding.tree import ancestor_mask
from service.engines.torch_engine import load
from service.planner.prompt import render_prompt
from service.planner.reader.reading import Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.weights.base_weights import BaseWeightsError
from service.weights.model_folder import LoadedModel, load_model
from tests.decoding.tiny import layer_shapes

DRAWN_MODEL = "142d23e159a962ed9b5bc7bbd60c207d323ea323535ac3a847768f6fddd98fa9"
SHIPPED_MODEL = "aabfcbff963ffd0b2ae02e230d3754fc85a28735f6309e675d503b392291de88"
PLANS_OF_DEV_QUESTIONS = "026be42e398650725335e925a023a730a8df2f788ff50b8663bd10ee8510c025"
ROTARY_ANGLES = "bda1ea8408d185875b4c0ab99e1bc2bfbcc79f63de2f85db75f45e171de24652"

HERE = {target.kernel: target for target in targets_here()}
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


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def drawn(seed: int, *shape: int, scale: float = 1.0) -> Tensor:
    """Draw numbers that are the same on every machine: integers, divided by a power of two."""
    integers = np.random.Generator(np.random.PCG64(seed)).integers(-(2**20), 2**20, shape)
    return torch.from_numpy((integers / 2**20 * scale).astype(np.float32))


@cache
def drawn_model() -> KernelCalls:
    """Heads of every kind of width, trees on a kept prefix, rows of few and of several tiles, odd numbers of keys."""
    config = LlamaConfig(
        hidden_size=192, intermediate_size=320, num_layers=3, num_heads=6, num_kv_heads=2, head_dim=32, vocab_size=96,
        rms_norm_eps=1e-5, rope_theta=10_000.0, max_position_embeddings=128, tie_word_embeddings=True,
    )  # fmt: skip
    weights = {"model.embed_tokens.weight": drawn(0, 96, 192), "model.norm.weight": drawn(1, 192)}
    for layer in range(config.num_layers):
        for number, (name, shape) in enumerate(layer_shapes(config).items()):
            seed = 100 + layer * 10 + number
            weights[f"model.layers.{layer}.{name}.weight"] = drawn(seed, *shape, scale=0.25 if len(shape) > 1 else 1.0)
    calls = KernelCalls(config, weights, positions=128)
    rng = np.random.Generator(np.random.PCG64(7))
    kept = 0
    for rows in (9, 1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31):
        tokens = rng.integers(0, 96, rows).tolist()
        calls.forward(tokens, [-1, *(int(rng.integers(0, node)) for node in range(1, rows))], kept)
        calls.forward(tokens, range(-1, rows - 1), kept)
        kept += min(rows, 8)
    head = drawn(3, 96, 192)
    calls.multiply(head, drawn(4, 11, 192, scale=8.0))
    calls.scores(head, drawn(5, 192), [95, 0, 17])
    return calls


@cache
def shipped_model() -> LoadedModel:
    settings = Settings()
    try:
        return load_model(settings.model_dir, settings.cache_dir, torch.float16)
    except BaseWeightsError as error:
        pytest.skip(f"the base weights cannot be had: {error}")


@cache
def shipped_calls(questions: int) -> KernelCalls:
    """Return calls of the shipped model on our questions' prompts, and of LM head rows for the last states drawn."""
    loaded = shipped_model()
    calls = KernelCalls(loaded.config, loaded.weights, positions=256)
    for question in own_questions(questions):
        tokens = [loaded.bos_token_id, *loaded.tokenizer.encode(render_prompt(question), add_special_tokens=False).ids]
        calls.forward(tokens, range(-1, len(tokens) - 1), 0)
        calls.forward([5, 9, 11, 13, 17], [-1, 0, 0, 1, 2], len(tokens))
    embedding = loaded.weights["model.embed_tokens.weight"]
    calls.multiply(embedding[:4096], drawn(8, 3, loaded.config.hidden_size, scale=4.0))
    calls.scores(embedding, drawn(9, loaded.config.hidden_size), [0, 1, 2, 4095, 49_151])
    return calls


def functions(kernel: KernelName) -> ctypes.CDLL:
    if kernel not in HERE:
        pytest.skip(f"this processor does not run the {kernel} kernels")
    return load_kernels(kernel).functions


@pytest.mark.parametrize("kernel", [target.kernel for target in targets_of_system()])
def test_a_drawn_model_has_the_committed_states(kernel: KernelName) -> None:
    assert sha256(drawn_model().run(functions(kernel))) == DRAWN_MODEL


@pytest.mark.parametrize("kernel", [target.kernel for target in targets_of_system()])
def test_the_shipped_model_has_the_committed_states(kernel: KernelName) -> None:
    assert sha256(shipped_calls(4).run(functions(kernel))) == SHIPPED_MODEL


def arm64() -> Target:
    """Return the arm64 target, if qemu can run it here; skip the test otherwise."""
    if shutil.which(QEMU) is None or not ARM64_SYSTEM.is_dir():
        pytest.skip(f"needs {QEMU} and arm64's C library: apt-get install qemu-user-static libc6-arm64-cross")
    return next(target for target in TARGETS if (target.system, target.machine) == ("linux", "arm64"))


def test_arm64_has_the_same_states_of_a_drawn_model(tmp_path: Path) -> None:
    assert sha256(drawn_model().run_emulated(arm64().file_name, tmp_path)) == DRAWN_MODEL


@pytest.mark.slow
def test_arm64_has_the_same_states_of_the_shipped_model(tmp_path: Path) -> None:
    assert sha256(shipped_calls(4).run_emulated(arm64().file_name, tmp_path)) == SHIPPED_MODEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["avxvnni", "avx512vnni"])
def test_x86_instructions_that_are_emulated_give_the_same_states(kernel: str, tmp_path: Path) -> None:
    """Compile the kernels for newer processors for AVX2, with the new instructions emulated."""
    compiler = shutil.which("c++")
    if "avx2" not in HERE or compiler is None:
        pytest.skip("needs a processor with AVX2 and a C++ compiler: apt-get install g++")
    emulated = Path(__file__).with_name("emulated_instructions.h")
    flags = [*FLAGS, "-w", "-march=x86-64-v3", "-include", str(emulated), f"-DEMULATE_{kernel.upper()}"]
    library = tmp_path / "emulated.so"
    subprocess.run([compiler, *flags, str(SOURCES / MAIN), "-o", str(library)], check=True)
    functions = bind(ctypes.CDLL(str(library)))
    assert functions.peakplan_target().decode() == kernel
    assert sha256(drawn_model().run(functions)) == DRAWN_MODEL
    assert sha256(shipped_calls(4).run(functions)) == SHIPPED_MODEL


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [target.kernel for target in targets_of_system()])
def test_200_dev_questions_have_the_committed_plans(kernel: KernelName) -> None:
    if not has_dev_data():
        pytest.skip("the dev questions are not here (PEAKPLAN_DATA)")
    functions(kernel)
    settings = Settings()
    model = load(settings.engine_config.model_copy(update={"dtype": "int8", "kernel": kernel, "strategy": "medusa"}))
    plan = our_strategy(model, shipped_vocabulary(), Reader.load(settings.model_dir), "medusa", fast_forward=True)
    tokens = [list(plan(question).tokens) for question in dev_questions(200)]
    assert sha256(repr(tokens).encode()) == PLANS_OF_DEV_QUESTIONS


def test_rotary_angles_are_right_and_the_same_everywhere() -> None:
    angles = torch.outer(torch.arange(8192.0), torch.tensor([100_000.0 ** -(i / 64) for i in range(0, 64, 2)])).double()
    cosine, sine = cosines_and_sines(angles)
    torch.testing.assert_close(cosine, angles.cos(), rtol=0, atol=2e-16)
    torch.testing.assert_close(sine, angles.sin(), rtol=0, atol=2e-16)
    assert sha256(cosine.float().numpy().tobytes() + sine.float().numpy().tobytes()) == ROTARY_ANGLES
