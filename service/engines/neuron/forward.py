"""A compiled model as the decoding loop's target: it reads prompts and trees, and keeps what was accepted.

The forward contract of our graph in NxDI (`nxdi.py`), compiled for B sequences of H wide states, L rows and K heads:

    tree    forward(input_ids [B, L], attention_mask [B, n], position_ids [B, L], medusa_args=(
                accepted_indices [B, K+1], current_length [B, K+1], mask [B, L, L], scatter_index [B, L]))
            -> hidden_states [B, L, H] of all rows
    prompt  forward(input_ids [B, n], attention_mask ones [B, n], position_ids 0..n-1 [B, n]), n > L
            -> hidden_states [B, 1, H] of the last position

States are after the final norm: the heads and the LM head are multiplied here on the host, for the tokens that the
grammar allows and no others, so that a choice is exact however unlikely the model holds it. A row sees the cached
positions that `attention_mask` names and the rows that `mask` names, and a step writes its rows at `scatter_index`,
which nothing checks. The tree's shape is an input like the tokens: only L is compiled in. A prompt that fits L rows is
a tree too, with drafted nodes below it; a longer one takes the prompt's graph.

The other graph that can be compiled is NxDI's plain one, of `speculation_length` rows. It has no `medusa_args`: its
rows are a chain, which it writes at their positions.

NxDI's Medusa could move accepted rows to their places in the cache. We ask for no move, so that a graph needs no gather
of its cache: an accepted node that was written out of place is read again by the next step (docs/decisions/0012). This
module knows tokens and positions, but no text, grammar or Neuron package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from service.decoding.linear import LmHead, Scores
from service.decoding.medusa import MedusaHeads
from service.decoding.proposer import MOST_DRAFTED_NODES
from service.decoding.target import TargetWithHeads
from service.decoding.tree import TokenTree, ancestor_mask

MedusaArguments = tuple[Tensor, Tensor, Tensor, Tensor]


class ForwardContractError(RuntimeError):
    """Raised when the compiled model's answer violates the contract."""


class ForwardOutput(Protocol):
    """The output of NxDI: states under a Hugging Face field name."""

    @property
    def hidden_states(self) -> Tensor: ...


class CompiledModel(Protocol):
    """NxDI's model with our graph, or any other model that follows the contract above."""

    def forward(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        medusa_args: MedusaArguments | None = None,
    ) -> ForwardOutput: ...


@dataclass(frozen=True, slots=True)
class ForwardShape:
    """The shape of a graph: K heads, L rows, the longest prompt and sequence, and B sequences at once."""

    num_heads: int
    rows: int
    max_context_length: int
    seq_len: int
    batch_size: int = 1
    is_chain: bool = False

    def needed(self, prompt: int, new: int) -> int:
        """Return how many cache positions a prompt and `new` tokens may touch, as a step writes all its rows."""
        return prompt + new + self.num_heads + 1 + self.rows


class CompiledTarget(TargetWithHeads):
    """One of a compiled model's sequences, of which `length` positions are kept.

    A node that was written out of place is not kept and is read again.
    """

    def __init__(
        self,
        model: CompiledModel,
        shape: ForwardShape,
        lm_head: LmHead,
        heads: MedusaHeads | None,
        *,
        sequence: int = 0,
    ) -> None:
        super().__init__(lm_head, heads)
        self.shape = shape
        self.length = 0
        self._model = model
        self._sequence = sequence

    @property
    def most_run(self) -> int:
        """A prompt may be longer than a step: it has a graph of its own, where a sequence is alone."""
        return self.shape.rows if self.length or self.shape.batch_size > 1 else self.shape.max_context_length

    def room(self, run: int) -> int:
        return min(max(self.shape.rows - run, 0), MOST_DRAFTED_NODES)

    def begin(self, prompt: Sequence[int], max_tokens: int) -> int:
        """See `Target.begin`: no prefix is cached. Raises ValueError for what does not fit the compiled lengths."""
        prompt_tokens = len(prompt)
        needed = self.shape.needed(prompt_tokens, max_tokens)
        if prompt_tokens > self.shape.max_context_length:
            raise ValueError(
                f"{prompt_tokens} prompt tokens are more than the {self.shape.max_context_length} compiled for"
            )
        if needed > self.shape.seq_len:
            raise ValueError(
                f"{prompt_tokens} prompt tokens and {max_tokens} more may touch {needed} cache positions, and "
                f"{self.shape.seq_len} were compiled"
            )
        self.length, self._of_prompt = 0, None
        return 0

    @classmethod
    def forward(cls, targets: Sequence[Self], trees: Sequence[TokenTree]) -> list[Scores]:
        """Read a tree of each of several sequences in one call. Raises ForwardContractError."""
        first, tree = targets[0], trees[0]
        if len(tree.tokens) > first.shape.rows:
            scores = first.take(tree, first._read_prompt(tree))
            first._of_prompt = None  # of its states only the last is known
            return [scores]
        states = first._read(targets, trees)
        return [target.take(tree, states[target._sequence]) for target, tree in zip(targets, trees, strict=True)]

    def commit(self, path: Sequence[int]) -> int:
        """Keep the run and the nodes after it that lie in place: those of a row's first descendants.

        The heads guess from the last accepted node all the same: its state is known, whatever is read again.
        """
        kept = 0
        while kept < len(path) and path[kept] == self._run + kept:
            kept += 1
        self.length += self._run + kept
        self.read_again = len(path) - kept
        self.accept(path)
        return kept

    def _read_prompt(self, tree: TokenTree) -> Tensor:
        """Read a prompt that is longer than a step; of its states only the last is known."""
        count = len(tree.tokens)
        output = self._model.forward(
            input_ids=torch.tensor([tree.tokens]),
            attention_mask=torch.ones(1, count, dtype=torch.long),
            position_ids=torch.arange(count)[None],
        )
        return _states(output, (1, 1))[0].expand(count, -1)

    def _read(self, targets: Sequence[Self], trees: Sequence[TokenTree]) -> Tensor:
        """Return the states [B, L, H] of a step; what the other sequences read is written where nothing is kept."""
        batch, rows = self.shape.batch_size, self.shape.rows
        # numpy fills so small an array several times faster than torch.
        tokens = np.zeros((batch, rows), np.int64)
        visible = np.zeros((batch, max(1, *(target.length for target in targets))), np.int64)
        positions = np.zeros((batch, rows), np.int64)
        masks = np.zeros((batch, rows, rows), np.int64)
        masks[:] = np.eye(rows, dtype=np.int64)
        slots = np.zeros((batch, rows), np.int64)
        slots[:] = np.arange(self.shape.seq_len - rows, self.shape.seq_len)
        for target, tree in zip(targets, trees, strict=True):
            row, start, count = target._sequence, target.length, len(tree.tokens)
            assert not self.shape.is_chain or tree.depths[-1] == count - 1, "a chain has no branches"
            if count > rows or start + rows > self.shape.seq_len:
                raise ValueError(
                    f"{count} nodes after {start} positions do not fit a graph of {rows} rows and {self.shape.seq_len} "
                    "positions"
                )
            tokens[row, :count] = tree.tokens
            visible[row, :start] = 1
            positions[row] = start
            positions[row, :count] += tree.depths
            masks[row, :count, :count] = ancestor_mask(tree.parents).numpy()
            slots[row] = np.arange(start, start + rows)
        no_moves = torch.zeros(batch, self.shape.num_heads + 1, dtype=torch.long)
        as_tree = (no_moves, no_moves, torch.from_numpy(masks), torch.from_numpy(slots))
        output = self._model.forward(
            input_ids=torch.from_numpy(tokens),
            attention_mask=torch.from_numpy(visible),
            position_ids=torch.from_numpy(slots if self.shape.is_chain else positions),
            medusa_args=None if self.shape.is_chain else as_tree,
        )
        return _states(output, (batch, rows))


def _states(output: ForwardOutput, expected: tuple[int, int]) -> Tensor:
    states = output.hidden_states
    if states.ndim != 3 or tuple(states.shape[:2]) != expected or not states.is_floating_point():
        raise ForwardContractError(
            f"the compiled model gave {states.dtype} of shape {list(states.shape)}, not hidden states "
            f"{[*expected, 'hidden size']}: it was compiled for another configuration. Compile it again "
            "(peakplan compile)"
        )
    return states.cpu().float()
