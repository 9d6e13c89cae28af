"""A tiny transformer behind the forward contract of `service/engines/neuron/forward.py`.

Its cache is one block of absolute positions for each sequence that each call reads and writes as the contract says;
nothing in it knows the loop. float64 keeps sums in another order from ever turning a choice.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from service.decoding.constraint import Constraint
from service.decoding.linear import LmHead
from service.decoding.medusa import MedusaHeads
from service.engines.neuron.forward import CompiledTarget, ForwardShape, MedusaArguments

LAYERS, ATTENTION_HEADS = 2, 2


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
        step = constraint.forced()[: max_tokens - len(tokens)]
        if not step:
            logits, legal = model.next_logits(prompt + tokens).numpy(), constraint.legal()
            step = [int(legal[np.argmax(logits[legal])])]
        constraint.accept(step)
        tokens += step
    return tokens
