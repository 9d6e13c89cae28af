"""Matrix products: weights laid out once for the machine they run on, and the LM head.

The LM head reads only the rows of the vocabulary that the grammar allows.
"""

from functools import cache, cached_property
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

# oneDNN's blocked kernels cost the same for one to six rows, and cost more for one or two than for four: 12.6 ms for 4
# rows of our 30 layers against 14.7 and 16.9 for 1 and 2 (bfloat16, one thread of a Zen 4 core). See `Llama.forward`.
CHEAPEST_ROWS = 4

# Up to this many tokens their rows are gathered and multiplied in float32; beyond, the whole product is cheaper
# (49,152 rows: 2.6 ms at one thread; gathering 4,000 of them: 0.7 ms).
MOST_GATHERED_TOKENS = 8192
# A whole product comes out rounded to the weights' dtype. So many of the best are computed again in float32: far more
# than can tie within that rounding.
REFINED_TOKENS = 16


class Linear:
    """The product `x -> x @ weight.T` for a weight [out, in], with torch's own kernels."""

    cheapest_rows = 1

    def __init__(self, weight: Tensor) -> None:
        self.dtype = weight.dtype  # dtype of the inputs that it multiplies
        self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:  # [rows, in] -> [rows, out]
        return F.linear(x, self._weight)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + F.linear(x, self._weight)


class PackedLinear(Linear):
    """A `Linear` with the weight reordered into oneDNN's blocked layout, which `F.linear` would redo at every call.

    These are the operators that torch's own compiler calls when it freezes a model for CPUs. They halve a forward of
    few rows: 31 to 16 ms for 8 rows of our 30 layers (bfloat16, one thread).
    """

    cheapest_rows = CHEAPEST_ROWS

    def __init__(self, weight: Tensor) -> None:
        self.dtype = weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), CHEAPEST_ROWS)
        self._product = torch.ops.mkldnn._linear_pointwise.default
        self._sum = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Tensor) -> Tensor:
        product: Tensor = self._product(x, self._weight, None, "none", [], "")
        return product

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        total: Tensor = self._sum(x, residual, self._weight, None, "add")
        return total


def linear(weight: Tensor) -> Linear:
    """Return the fastest exact product that this machine has for a weight [out, in] of its dtype and device."""
    packed = weight.device.type == "cpu" and has_packed_kernels(weight.dtype)
    return PackedLinear(weight) if packed else Linear(weight)


@cache
def has_packed_kernels(dtype: torch.dtype) -> bool:
    """Tell whether this CPU multiplies `dtype` in oneDNN's own layout (bfloat16 needs AVX-512 or AMX)."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch._C._has_mkldnn:
        return False
    try:
        if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        probe = torch.eye(2, dtype=dtype)
        return torch.equal(PackedLinear(probe)(probe), probe)
    except (AttributeError, NotImplementedError, RuntimeError):  # a torch built without these operators
        return False


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
