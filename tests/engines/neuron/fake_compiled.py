"""A tiny transformer behind the forward contract of `service/engines/neuron/forward.py`, faults of stock NxDI included.

Its cache is one block of absolute positions that each call reads and writes as the contract says; nothing in it knows
the loop. float64 keeps sums in another order from ever turning a choice.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from service.decoding.constraint import Constraint
from service.engines.neuron.forward import ForwardShape, MedusaArguments

LAYERS, WIDTH, ATTENTION_HEADS = 2, 24, 2


@dataclass(frozen=True)
class Output:
    hidden_states: Tensor


@dataclass
class FakeCompiled:
    """A fake graph; with `relocates` False it forgets what it moved after the step, as stock NxDI does."""

    shape: ForwardShape
    vocab_size: int
    seed: int = 0
    relocates: bool = True
    calls: int = 0

    def __post_init__(self) -> None:
        self._cache = torch.zeros(LAYERS, 2, self.shape.seq_len, WIDTH, dtype=torch.float64)
        generator = torch.Generator().manual_seed(self.seed)

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        self._embedding = random(self.vocab_size, WIDTH)
        self._positions = random(self.shape.seq_len, WIDTH)
        self._layers = [random(4, WIDTH, WIDTH) / WIDTH**0.5 for _ in range(LAYERS)]
        self._heads = [random(WIDTH, self.vocab_size) for _ in range(self.shape.num_heads + 1)]

    def forward(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        medusa_args: MedusaArguments | None = None,
    ) -> Output:
        self.calls += 1
        assert bool(attention_mask.all())
        if medusa_args is None:
            return self._prompt(input_ids[0], position_ids[0])
        return self._tree(input_ids[0], position_ids[0], attention_mask.shape[1], medusa_args)

    def next_logits(self, tokens: list[int]) -> Tensor:
        """Return the LM head's logits [V] after a sequence, read at once into an empty cache."""
        count = len(tokens)
        causal = torch.ones(count, count, dtype=torch.bool).tril()
        hidden, _ = self._hidden(torch.tensor(tokens), torch.arange(count), self._cache[:, :, :0], causal)
        return hidden[-1] @ self._heads[0]

    def _prompt(self, tokens: Tensor, positions: Tensor) -> Output:
        count = len(tokens)
        assert count <= self.shape.max_context_length
        assert positions.tolist() == list(range(count))
        hidden, written = self._hidden(
            tokens, positions, self._cache[:, :, :0], torch.ones(count, count, dtype=torch.bool).tril()
        )
        self._cache[:, :, :count] = written
        return Output(self._best(hidden[-1:]))  # [K+1, 1, C]

    def _tree(self, tokens: Tensor, positions: Tensor, visible: int, arguments: MedusaArguments) -> Output:
        source, target, mask, slots = (argument[0] for argument in arguments)
        rows = self.shape.rows
        assert len(tokens) == len(positions) == len(slots) == rows
        assert mask.shape == (rows, rows)
        assert len(source) == len(target) == self.shape.num_heads + 1
        assert int(max(slots.max(), source.max(), target.max())) < self.shape.seq_len
        moved = self._cache.index_copy(2, target, self._cache.index_select(2, source))
        sees = torch.cat([torch.ones(rows, visible, dtype=torch.bool), mask.bool()], dim=1)
        hidden, written = self._hidden(tokens, positions, moved[:, :, :visible], sees)
        self._cache = (moved if self.relocates else self._cache).index_copy(2, slots, written)
        gathered = int(positions.min()) + torch.arange(rows)  # NxDI's own way of selecting the rows
        return Output(self._best(hidden[gathered])[:, None])  # [K+1, 1, L, C]

    def _best(self, hidden: Tensor) -> Tensor:
        return torch.stack([(hidden @ head).topk(self.shape.candidates).indices for head in self._heads])

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
            hidden = hidden / hidden.norm(dim=-1, keepdim=True) * WIDTH**0.5
        return hidden, torch.stack(written)


def greedy(model: FakeCompiled, prompt: list[int], constraint: Constraint, max_tokens: int) -> list[int] | None:
    """Return textbook greedy tokens, the whole sequence read again for every decision.

    Returns None where a decision comes up whose legal tokens are all outside the model's candidates.
    """
    tokens: list[int] = []
    while not constraint.finished() and len(tokens) < max_tokens:
        step = constraint.forced()[: max_tokens - len(tokens)]
        if not step:
            logits = model.next_logits(prompt + tokens)
            legal = constraint.legal().tolist()
            step = [max(legal, key=lambda token: float(logits[token]))]
            if step[0] not in logits.topk(model.shape.candidates).indices.tolist():
                return None
        constraint.accept(step)
        tokens += step
    return tokens
