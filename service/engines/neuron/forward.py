"""A compiled Medusa model as the decoding loop's target: it reads a prompt or a tree, and keeps what was accepted.

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
(docs/decisions/0012). `relocates` tells whether the graph was compiled with our patch; where it was not, no move is
requested, and nodes that were accepted out of place are read again.

The last row of every step is left free at position 0: NxDI gathers its rows' hidden states from the lowest position on,
which is right only for position 0. This module knows tokens and positions, but no text, grammar or Neuron package.

The C candidates are the best tokens of the whole vocabulary, best first; their order is all that is known. Those before
the first legal one are illegal, so the first legal one is the best legal token there is, exactly. Where none of the C
is legal, the best legal token is unknown on the host: the generation fails, and no token is invented.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.constraint import GrammarError
from service.decoding.lm_head import Scores
from service.decoding.proposer import MOST_DRAFTED_NODES
from service.decoding.tree import TokenTree, ancestor_mask

MedusaArguments = tuple[Tensor, Tensor, Tensor, Tensor]

_OUTSIDE = -1000.0  # a score far below every rank, and finite: softmax of it is 0


class ForwardContractError(RuntimeError):
    """Raised when the compiled model's answer violates the contract."""


class OutsideCandidatesError(GrammarError):
    """Raised when no candidate of a row is legal, though the grammar goes on."""


class ForwardOutput(Protocol):
    """The output of NxDI: token ids under a Hugging Face field name."""

    @property
    def hidden_states(self) -> Tensor: ...


class CompiledModel(Protocol):
    """NxDI's `NeuronLlamaForCausalLM`, or any other model that follows the contract above."""

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
    """The shape of a graph: K heads, L rows, C candidates for each row, and the longest prompt and sequence."""

    num_heads: int
    rows: int
    candidates: int
    max_context_length: int
    seq_len: int

    @property
    def most_nodes(self) -> int:
        """Number of nodes that one step may read; the last row stays free."""
        return self.rows - 1

    def needed(self, prompt: int, new: int) -> int:
        """Return how many cache positions a prompt and `new` tokens may touch, as a step writes all its rows."""
        return prompt + new + self.num_heads + 1 + self.rows


class CandidateScores:
    """`Scores` from ranks: 0 for a row's best candidate, -1 for its second, far less for every other token."""

    def __init__(self, candidates: NDArray[np.int64]) -> None:
        """Take `candidates` [rows, C], best first."""
        self._candidates = candidates

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of `token_ids` (ascending, at least one)."""
        scores = np.full(token_ids.size, _OUTSIDE, dtype=np.float32)
        candidates = self._candidates[row]
        places = np.searchsorted(token_ids, candidates).clip(max=token_ids.size - 1)
        found = np.flatnonzero(token_ids[places] == candidates)
        scores[places[found]] = -found
        return scores


class LegalCandidateScores(CandidateScores):
    """`CandidateScores` that decide the model's own choice, which must therefore be among the candidates."""

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of `token_ids`. Raises OutsideCandidatesError where none of them is a candidate."""
        scores = super().of(row, token_ids)
        if scores.max() == _OUTSIDE:
            raise OutsideCandidatesError(
                f"none of the {self._candidates.shape[1]} candidates that the device gave is legal here"
            )
        return scores


class CompiledTarget:
    """A compiled model and the state of its cache: `length` positions are kept, some still to be moved into place.

    A node that cannot be moved is not kept and is read again, so tokens never depend on how much a step has room for.
    """

    def __init__(self, model: CompiledModel, shape: ForwardShape, *, relocates: bool) -> None:
        self.shape = shape
        self.length = 0
        self._model = model
        self._most_moves = shape.num_heads + 1 if relocates else 0
        self._moves: list[tuple[int, int]] = []  # (from, to), absolute; done by the next step
        self._run = 0  # number of run nodes in the tree just read
        self._candidates: NDArray[np.int64]  # [K+1, N - root, C], of its root and the nodes after it
        self._guesses: NDArray[np.int64]  # [K, C], the heads' guesses after the last kept position

    @property
    def most_nodes(self) -> int:
        return self.shape.most_nodes if self.length else self.shape.max_context_length

    @property
    def most_drafted_nodes(self) -> int:
        """Zero while the prompt is read: that graph takes a chain and answers for its last token only."""
        return MOST_DRAFTED_NODES if self.length else 0

    @property
    def num_heads(self) -> int:
        return self.shape.num_heads

    def begin(self, prompt_tokens: int, max_tokens: int) -> None:
        """Prepare a new generation. Raises ValueError for a prompt that does not fit the compiled lengths."""
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
        self.length, self._moves = 0, []

    def forward(self, tree: TokenTree) -> Scores:
        """Read a tree; the first forward of a generation takes only a chain. Raises ForwardContractError.

        The scores raise OutsideCandidatesError where no candidate is legal.
        """
        self._run = tree.run
        if self.length:
            self._candidates = self._read_tree(tree)[:, tree.root : len(tree.tokens)]
        else:
            self._candidates = self._read_prompt(tree.tokens)
        return LegalCandidateScores(self._candidates[0])

    def commit(self, path: Sequence[int]) -> int:
        """Keep as many nodes as possible: those out of place are moved, at most K+1 of them."""
        kept = 0
        for offset in (*range(self._run), *path):
            if offset != kept:
                if len(self._moves) >= self._most_moves:
                    break
                self._moves.append((self.length + offset, self.length + kept))
            kept += 1
        self.length += kept
        kept -= self._run
        self._guesses = self._candidates[1:, path[kept - 1] - self._run + 1 if kept else 0]
        return kept

    def head_scores(self) -> Scores:
        return CandidateScores(self._guesses)

    def _read_prompt(self, tokens: Sequence[int]) -> NDArray[np.int64]:
        positions = torch.arange(len(tokens))
        output = self._model.forward(
            input_ids=torch.tensor([tokens]),
            attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
            position_ids=positions[None],
        )
        return self._checked(output, (self.shape.num_heads + 1, 1, self.shape.candidates))

    def _read_tree(self, tree: TokenTree) -> NDArray[np.int64]:
        rows, start, count = self.shape.rows, self.length, len(tree.tokens)
        if count > self.shape.most_nodes or start + rows > self.shape.seq_len:
            raise ValueError(
                f"{count} nodes after {start} positions do not fit a graph of {rows} rows and {self.shape.seq_len} "
                "positions"
            )
        tokens = torch.zeros(1, rows, dtype=torch.long)
        tokens[0, :count] = torch.tensor(tree.tokens)
        positions = torch.full((1, rows), start)
        positions[0, :count] += torch.tensor(tree.depths)
        positions[0, -1] = 0
        mask = torch.eye(rows, dtype=torch.long)
        mask[:count, :count] = ancestor_mask(tree.parents)
        arguments = (*self._due_moves(), mask[None], torch.arange(start, start + rows)[None])
        output = self._model.forward(
            input_ids=tokens,
            attention_mask=torch.ones(1, start, dtype=torch.long),
            position_ids=positions,
            medusa_args=arguments,
        )
        candidates = self._checked(output, (self.shape.num_heads + 1, 1, rows, self.shape.candidates))
        self._moves = []
        return candidates[:, 0]

    def _due_moves(self) -> tuple[Tensor, Tensor]:
        """Return `accepted_indices` and `current_length` [1, K+1], padded with moves of a free position to itself."""
        free = range(self.length, self.length + self.shape.num_heads + 1 - len(self._moves))
        moves = [*self._moves, *((position, position) for position in free)]
        source, target = zip(*moves, strict=True)
        return torch.tensor([source]), torch.tensor([target])

    def _checked(self, output: ForwardOutput, expected: tuple[int, ...]) -> NDArray[np.int64]:
        candidates = output.hidden_states
        if tuple(candidates.shape) != expected:
            raise ForwardContractError(
                f"the compiled model gave token ids of shape {list(candidates.shape)}, not {list(expected)}: it was "
                "compiled for another configuration. Compile it again (make compile)"
            )
        numbers: NDArray[np.int64] = candidates.cpu().numpy().astype(np.int64)
        return numbers
