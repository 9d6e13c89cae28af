"""One compiled Medusa model as the loop needs it: read a prompt, read a tree of tokens, keep what was accepted.

The forward contract of NxDI's Medusa models (neuronx-distributed-inference 0.8, `models/model_base.py` and
`utils/hf_adapter.py`), batch 1, K heads, a graph compiled for L rows, C candidates of each row coming back:

    prompt  forward(input_ids [1, n], attention_mask ones [1, n], position_ids 0..n-1)
            -> hidden_states: token ids [K+1, 1, C], best first, of the last position
    tree    forward(input_ids [1, L], attention_mask ones [1, n], position_ids [1, L], medusa_args=(
                accepted_indices [1, K+1], current_length [1, K+1], mask [1, L, L], scatter_index [1, L]))
            -> hidden_states: token ids [K+1, 1, L, C]

Entry 0 of the first axis is the LM head's, entry 1 + i head i's. A row sees the first n cached positions and the rows
that `mask` names. Before it reads, a step moves the keys and values at the positions `accepted_indices` to those in
`current_length`; then it writes its own rows at `scatter_index`. Nothing is moved out of bounds or checked. The tree's
shape is an input like the tokens: only L is compiled in.

Stock NxDI moves keys and values only in the view that the step itself reads and then writes the unmoved cache back
(docs/decisions/0012). `relocates` says whether the graph was compiled with our patch; where it was not, no move is
asked for, and what was accepted out of its place is read once more.

The last row of every step is left free at position 0: NxDI gathers its rows' hidden states from the lowest position on,
which is right for no other one. This module knows tokens and positions, no text, grammar or Neuron package.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.draft import TokenTree
from service.decoding.tree import ancestor_mask

MedusaArguments = tuple[Tensor, Tensor, Tensor, Tensor]


class ForwardContractError(RuntimeError):
    """The compiled model answered with something else than the contract says."""


class ForwardOutput(Protocol):
    """What NxDI returns: token ids under a name of Hugging Face's."""

    @property
    def hidden_states(self) -> Tensor: ...


class MedusaModel(Protocol):
    """NxDI's `NeuronLlamaForCausalLM`, or whatever else obeys the contract above."""

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
    """What a graph was compiled for: K heads, L rows, C candidates a row, and the longest prompt and sequence."""

    num_heads: int
    rows: int
    candidates: int
    max_context_length: int
    seq_len: int

    @property
    def most_nodes(self) -> int:
        """Nodes that one step may read; the last row stays free."""
        return self.rows - 1

    def needed(self, prompt: int, new: int) -> int:
        """Cache positions that a prompt and `new` tokens may come to touch: a step writes all its rows."""
        return prompt + new + self.num_heads + 1 + self.rows


class CompiledForward:
    """A compiled model and the state of its cache: `length` positions are kept, some still to be moved into place."""

    def __init__(self, model: MedusaModel, shape: ForwardShape, *, relocates: bool) -> None:
        self.shape = shape
        self.length = 0
        self._model = model
        self._most_moves = shape.num_heads + 1 if relocates else 0
        self._moves: list[tuple[int, int]] = []  # (from, to), absolute, due with the next step

    @property
    def most_nodes(self) -> int:
        """Tokens that the next forward can read."""
        return self.shape.most_nodes if self.length else self.shape.max_context_length

    def reset(self) -> None:
        """Forget everything: the next forward reads a prompt."""
        self.length, self._moves = 0, []

    def read(self, nodes: TokenTree) -> NDArray[np.int64]:
        """Candidates [K+1, N - root, C] of the root of `nodes` and each node after it, best first.

        The first forward after `reset` takes a chain alone. Raises ForwardContractError.
        """
        if self.length:
            return self._read_tree(nodes)[:, nodes.root : len(nodes.tokens)]
        return self._read_prompt(nodes.tokens)

    def keep(self, offsets: Sequence[int]) -> int:
        """Of the nodes just read, keep these (ascending, from 0 on), as many as can be; returns how many.

        Those whose place is taken by others move there, at most K+1 of them; after the first that cannot, none is kept.
        """
        kept = 0
        for offset in offsets:
            if offset != kept:
                if len(self._moves) >= self._most_moves:
                    break
                self._moves.append((self.length + offset, self.length + kept))
            kept += 1
        self.length += kept
        return kept

    def _read_prompt(self, tokens: Sequence[int]) -> NDArray[np.int64]:
        positions = torch.arange(len(tokens))
        output = self._model.forward(
            input_ids=torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            position_ids=positions[None],
        )
        return self._candidates(output, (self.shape.num_heads + 1, 1, self.shape.candidates))

    def _read_tree(self, nodes: TokenTree) -> NDArray[np.int64]:
        rows, start, count = self.shape.rows, self.length, len(nodes.tokens)
        if count > self.shape.most_nodes or start + rows > self.shape.seq_len:
            raise ValueError(
                f"{count} nodes after {start} positions do not fit a graph of {rows} rows and {self.shape.seq_len} "
                "positions"
            )
        tokens = torch.zeros(1, rows, dtype=torch.long)
        tokens[0, :count] = torch.tensor(nodes.tokens)
        positions = torch.full((1, rows), start)
        positions[0, :count] += torch.tensor(nodes.depths)
        positions[0, -1] = 0
        mask = torch.eye(rows, dtype=torch.long)
        mask[:count, :count] = ancestor_mask(nodes.parents)
        arguments = (*self._due_moves(), mask[None], torch.arange(start, start + rows)[None])
        output = self._model.forward(
            input_ids=tokens,
            attention_mask=torch.ones(1, start, dtype=torch.long),
            position_ids=positions,
            medusa_args=arguments,
        )
        candidates = self._candidates(output, (self.shape.num_heads + 1, 1, rows, self.shape.candidates))
        self._moves = []
        return candidates[:, 0]

    def _due_moves(self) -> tuple[Tensor, Tensor]:
        """`accepted_indices` and `current_length` [1, K+1]; a move of a free position to itself fills what is left."""
        free = range(self.length, self.length + self.shape.num_heads + 1 - len(self._moves))
        moves = [*self._moves, *((position, position) for position in free)]
        source, target = zip(*moves, strict=True)
        return torch.tensor([source]), torch.tensor([target])

    def _candidates(self, output: ForwardOutput, expected: tuple[int, ...]) -> NDArray[np.int64]:
        candidates = output.hidden_states
        if tuple(candidates.shape) != expected:
            raise ForwardContractError(
                f"the compiled model gave token ids of shape {list(candidates.shape)}, not {list(expected)}: it was "
                "compiled for another configuration. Compile it again (make compile)"
            )
        numbers: NDArray[np.int64] = candidates.cpu().numpy().astype(np.int64)
        return numbers
