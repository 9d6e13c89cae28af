"""A tiny transformer behind the forward contract of `service/engines/neuron/forward.py`, and a driver that loads it.

Its cache is one block of absolute positions for each sequence that each call reads and writes as the contract says;
nothing in it knows the loop. float64 keeps sums in another order from ever turning a choice.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from service.decoding.constraint import Constraint
from service.decoding.generation import RunningGeneration, step
from service.decoding.linear import LmHead
from service.decoding.medusa import MedusaHeads
from service.engines.neuron.compilation import compile_model
from service.engines.neuron.configuration import CompileSettings, forward_shape
from service.engines.neuron.forward import CompiledTarget, ForwardShape, MedusaArguments
from service.engines.neuron.manifest import FILE, Manifest
from service.engines.neuron.model import NeuronModel, load
from service.settings.engines import EngineConfig, NeuronSettings
from tests.tiny_model import HIDDEN

LAYERS, ATTENTION_HEADS = 2, 2
# The tree that Medusa's authors publish for Vicuna 7B, `mc_sim_7b_63` (FasterDecoding/Medusa, Apache-2.0): 63 nodes of
# 4 heads, each a digit a rank. NxDI's examples and AWS's samples compile it.
PUBLISHED_TREE = [
    [int(rank) for rank in node]
    for node in (
        "0 00 000 0000 01 0001 001 1 10 010 100 02 0010 002 03 0100 020 2 0002 20 1000 003 030 04 004 200 0020 3 30 "
        "0200 040 0003 005 05 0011 0030 0300 300 006 4 0101 40 007 0040 0004 011 2000 050 06 11 1001 008 07 009 0400 "
        "0050 101 400 08 09 0005 3000 5"
    ).split()
]


@dataclass(frozen=True)
class Output:
    hidden_states: Tensor


@dataclass
class FakeCompiled:
    """A fake graph, which refuses to move what it has cached."""

    shape: ForwardShape
    vocab_size: int
    seed: int = 0
    width: int = 24
    calls: int = 0

    def __post_init__(self) -> None:
        self._cache = torch.zeros(self.shape.batch_size, LAYERS, 2, self.shape.seq_len, self.width, dtype=torch.float64)
        generator = torch.Generator().manual_seed(self.seed)

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        self._embedding = random(self.vocab_size, self.width)
        self._positions = random(self.shape.seq_len, self.width)
        self._layers = [random(4, self.width, self.width) / self.width**0.5 for _ in range(LAYERS)]
        self.lm_head = LmHead(random(self.vocab_size, self.width).float())
        heads = self.shape.num_heads
        self.heads = MedusaHeads(random(heads, self.width, self.width).float(), random(heads, self.width).float())

    def target(self, sequence: int = 0) -> CompiledTarget:
        """Return a target of one of this graph's sequences."""
        return CompiledTarget(self, self.shape, self.lm_head, self.heads, sequence=sequence)

    def forward(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        medusa_args: MedusaArguments | None = None,
    ) -> Output:
        self.calls += 1
        assert len(input_ids) == self.shape.batch_size
        assert (medusa_args is None) or not self.shape.is_chain, "the plain graph has no such inputs"
        if self.shape.is_chain and input_ids.shape[1] == self.shape.rows:
            causal = torch.ones(self.shape.rows, self.shape.rows).tril().expand(self.shape.batch_size, -1, -1)
            unmoved = torch.zeros(self.shape.batch_size, self.shape.num_heads + 1, dtype=torch.long)
            medusa_args = (unmoved, unmoved, causal, position_ids)
        if medusa_args is None:
            assert bool(attention_mask.all())
            assert self.shape.batch_size == 1
            return Output(self._prompt(input_ids[0], position_ids[0])[None])
        rows = [
            self._tree(row, input_ids[row], position_ids[row], int(attention_mask[row].sum()), medusa_args)
            for row in range(self.shape.batch_size)
        ]
        return Output(torch.stack(rows))

    def next_logits(self, tokens: list[int]) -> Tensor:
        """Return the LM head's logits [V] after a sequence, read at once into an empty cache."""
        count = len(tokens)
        causal = torch.ones(count, count, dtype=torch.bool).tril()
        hidden, _ = self._hidden(torch.tensor(tokens), torch.arange(count), self._cache[0, :, :, :0], causal)
        return self.lm_head.logits(hidden[-1:].float(), torch.arange(self.vocab_size))[0]

    def _prompt(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Read a prompt; return the state of its last position, [1, W]."""
        count = len(tokens)
        assert self.shape.rows < count <= self.shape.max_context_length
        assert positions.tolist() == list(range(count))
        hidden, written = self._hidden(
            tokens, positions, self._cache[0, :, :, :0], torch.ones(count, count, dtype=torch.bool).tril()
        )
        self._cache[0, :, :, :count] = written
        return hidden[-1:]

    def _tree(self, row: int, tokens: Tensor, positions: Tensor, visible: int, arguments: MedusaArguments) -> Tensor:
        """Return the states of a step's rows, [L, W]."""
        source, target, mask, slots = (argument[row] for argument in arguments)
        rows, cache = self.shape.rows, self._cache[row]
        assert len(tokens) == len(positions) == len(slots) == rows
        assert mask.shape == (rows, rows)
        assert len(source) == len(target) == self.shape.num_heads + 1
        assert torch.equal(source, target), "no key or value is moved"
        assert int(slots.max()) < self.shape.seq_len
        sees = torch.cat([torch.ones(rows, visible, dtype=torch.bool), mask.bool()], dim=1)
        hidden, written = self._hidden(tokens, positions, cache[:, :, :visible], sees)
        self._cache[row] = cache.index_copy(2, slots, written)
        return hidden

    def _hidden(self, tokens: Tensor, positions: Tensor, past: Tensor, sees: Tensor) -> tuple[Tensor, Tensor]:
        """Return hidden states [N, W] and cache writes [layers, 2, N, W]; `sees` is [N, past + N]."""
        hidden = self._embedding[tokens] + self._positions[positions]
        written = []
        for layer, (query, key, value, output) in enumerate(self._layers):
            keys = torch.cat([past[layer, 0], hidden @ key])
            values = torch.cat([past[layer, 1], hidden @ value])
            written.append(torch.stack([keys[-len(tokens) :], values[-len(tokens) :]]))
            whole = (hidden @ query, keys, values)
            split = [each.unflatten(-1, (ATTENTION_HEADS, -1)).transpose(0, 1) for each in whole]
            attended = torch.nn.functional.scaled_dot_product_attention(*split, attn_mask=sees)
            hidden = hidden + attended.transpose(0, 1).flatten(1) @ output
            hidden = hidden / hidden.norm(dim=-1, keepdim=True) * self.width**0.5
        return hidden, torch.stack(written)


def greedy(model: FakeCompiled, prompt: list[int], constraint: Constraint, max_tokens: int) -> list[int]:
    """Return textbook greedy tokens, the whole sequence read again for every decision."""
    tokens: list[int] = []
    while not constraint.finished() and len(tokens) < max_tokens:
        chosen = constraint.forced()[: max_tokens - len(tokens)]
        if not chosen:
            logits, legal = model.next_logits(prompt + tokens).numpy(), constraint.legal()
            chosen = [int(legal[np.argmax(logits[legal])])]
        constraint.accept(chosen)
        tokens += chosen
    return tokens


def shared(
    starts: Sequence[Callable[[int], RunningGeneration]], places: int, joins: Callable[[], bool] = lambda: True
) -> list[list[int]]:
    """Run generations in the places of one graph, the next one where one has ended; return the tokens of each."""
    found: dict[int, list[int]] = {}
    slots: dict[int, tuple[int, RunningGeneration]] = {}
    waiting = list(enumerate(starts))
    while waiting or slots:
        for place in sorted(set(range(places)) - set(slots)):
            if waiting and (not slots or joins()):
                number, start = waiting.pop(0)
                slots[place] = number, start(place)
        for place in [place for place, (_, running) in slots.items() if not running.goes_on()]:
            number, running = slots.pop(place)
            found[number] = running.result().tokens
        step([running for _, running in slots.values()])
    return [found[number] for number in range(len(starts))]


PACKAGES = {"neuronx-cc": "2.23.6484", "neuronx-distributed-inference": "0.8.16251"}
SETTINGS = CompileSettings(
    chip="inf2", tensor_parallel=1, max_prompt_tokens=40, max_new_tokens=512, sequence_length=640, dtype="float32"
)
ANY_TEXT = r"start: /(.|\n){8,24}/"


@dataclass
class FakeDriver:
    """A driver that writes the files that NxDI would write, and counts its calls."""

    compiled: list[Mapping[str, Any]] = field(default_factory=list)
    loaded: int = 0

    def compile(self, checkpoint: Path, output: Path, arguments: Mapping[str, Any]) -> None:
        assert torch.load(checkpoint / "medusa_heads.pt", weights_only=True) == {}  # the host multiplies them
        self.compiled.append(arguments)
        (output / "weights").mkdir()
        (output / "model.pt").write_bytes(b"graph")
        (output / "weights" / "tp0_sharded_checkpoint.safetensors").write_bytes(b"weights")

    def load(self, compiled: Path) -> FakeCompiled:
        self.loaded += 1
        arguments = json.loads((compiled / FILE).read_text(encoding="utf-8"))["arguments"]
        return FakeCompiled(forward_shape(arguments), vocab_size=1000, seed=5, width=HIDDEN)


def compiled(model_dir: Path, folder: Path, driver: FakeDriver | None = None, **changes: Any) -> Manifest:
    settings = SETTINGS.model_copy(update=changes)
    return compile_model(model_dir, folder.parent, folder, settings, PACKAGES, driver or FakeDriver())


def loaded(model_dir: Path, folder: Path, driver: FakeDriver | None = None, **changes: Any) -> NeuronModel:
    number = changes.pop("number", None)
    config = EngineConfig(
        model_dir=model_dir,
        cache_dir=folder,
        engine="neuron",
        neuron=NeuronSettings(compiled_dir=folder),
        **({"max_prompt_tokens": 40} | changes),
    )
    return load(config, number, driver=driver or FakeDriver(), packages=lambda: PACKAGES)
