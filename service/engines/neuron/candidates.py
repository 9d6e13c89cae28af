"""Choosing among the few candidates that a compiled model gives for each row: their order is all that is known.

The device gives the C best tokens of the whole vocabulary, best first. Those before the first legal one are illegal, so
the first legal one is the best legal token there is, exactly. Where none of the C is legal, nothing on this side of the
device can tell which legal token is best: no token is made up, the generation is given up.
"""

import numpy as np
from numpy.typing import NDArray

from service.decoding.constraint import GrammarError

_OUTSIDE = -1000.0  # far below every rank, and finite: softmax of it is 0


class OutsideCandidatesError(GrammarError):
    """No candidate of a row is legal, though the grammar goes on."""


class CandidateScores:
    """`Scores` made of ranks: 0 for a row's best candidate, -1 for its second, far less for every other token."""

    def __init__(self, candidates: NDArray[np.int64]) -> None:
        """`candidates` [rows, C], best first."""
        self._candidates = candidates

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Scores of `token_ids` (ascending, at least one)."""
        scores = np.full(token_ids.size, _OUTSIDE, dtype=np.float32)
        candidates = self._candidates[row]
        places = np.searchsorted(token_ids, candidates).clip(max=token_ids.size - 1)
        found = np.flatnonzero(token_ids[places] == candidates)
        scores[places[found]] = -found
        return scores


class LegalCandidateScores(CandidateScores):
    """The same where the model's own choice is read from them, and so must be among the candidates."""

    def of(self, row: int, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Raises OutsideCandidatesError where none of `token_ids` is a candidate."""
        scores = super().of(row, token_ids)
        if scores.max() == _OUTSIDE:
            raise OutsideCandidatesError(
                f"none of the {self._candidates.shape[1]} candidates that the device gave is legal here"
            )
        return scores
