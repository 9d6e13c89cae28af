"""From hidden states to logits, reading only the rows of the vocabulary that the grammar allows."""

from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.linear import Linear, linear

# Up to this many tokens their rows are gathered and multiplied in float32; beyond, the whole product is cheaper
# (49,152 rows: 2.6 ms at one thread; gathering 4,000 of them: 0.7 ms).
MOST_GATHERED_TOKENS = 8192
# A whole product comes out rounded to the weights' dtype. So many of the best are computed again in float32: far more
# than can tie within that rounding.
REFINED_TOKENS = 16


class LmHead:
    """The output embedding of a model, a weight [V, H]."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    @cached_property
    def _product(self) -> Linear:
        """A second copy of the weight, laid out anew, made only when a grammar allows so much that it is needed."""
        return linear(self._weight)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Return float32 logits of hidden states [N, H]: [N, M] for M `token_ids` (int64), or [N, V].

        Given tokens are multiplied in float32 whatever the weights' dtype; a whole row is rounded to that dtype.
        """
        if token_ids is None:
            return self._product(hidden.to(self._weight.dtype)).float()
        rows = self._weight.index_select(0, token_ids.to(self._weight.device)).float()  # [M, H]
        return hidden.float() @ rows.T

    def of_tokens(self, hidden: Tensor, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the logits of one hidden state [H] for `token_ids` only, one for each token."""
        logits: NDArray[np.float32] = self.logits(hidden[None], torch.from_numpy(token_ids))[0].cpu().numpy()
        return logits


class Scores(Protocol):
    """The logits of several rows, read one row and its legal tokens at a time."""

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]: ...


class HiddenScores:
    """`Scores` of hidden states [N, H] through one LM head; whole rows are computed together, and only when needed."""

    def __init__(self, lm_head: LmHead, hidden: Tensor) -> None:
        self._lm_head = lm_head
        self._hidden = hidden
        self._whole: NDArray[np.float32] | None = None  # [N, V]

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the logits of `token_ids` (ascending) in `row`, one for each token."""
        if token_ids.size <= MOST_GATHERED_TOKENS:
            return self._lm_head.of_tokens(self._hidden[row], token_ids)
        if self._whole is None:
            self._whole = self._lm_head.logits(self._hidden).cpu().numpy()
        scores: NDArray[np.float32] = self._whole[row, token_ids]
        best = np.argpartition(scores, -REFINED_TOKENS)[-REFINED_TOKENS:]
        scores[best] = self._lm_head.of_tokens(self._hidden[row], token_ids[best])
        return scores
