"""Matrix products outside the layers with the compiled kernels: int8 Medusa heads, and the logits of a few tokens."""

import ctypes
import weakref

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.kernel_widths import above, pad_last
from service.decoding.linear import Linear
from service.decoding.lm_head import LmHead

_STRIP = 32  # outputs that the kernels multiply together, at most


class NativeLinear(Linear):
    """The product `x -> x @ weight.T` in int8, float32 in and out, for a weight [out, in] of any width."""

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        """Quantise and lay out the weight. Raises MemoryError."""
        self.dtype = torch.float32
        self._outputs, inputs = weight.shape
        self._inputs = above(inputs)
        full = pad_last(weight.float(), self._inputs)
        full = F.pad(full, (0, 0, 0, -self._outputs % _STRIP)).contiguous()
        self._library = library
        self._rows = full.shape[0]
        self._matrix = library.peakplan_matrix_create(self._rows, self._inputs, full.data_ptr())
        if not self._matrix:
            raise MemoryError(f"no memory for a weight of {self._outputs} by {inputs}")
        weakref.finalize(self, library.peakplan_matrix_destroy, self._matrix)

    def __call__(self, x: Tensor) -> Tensor:  # [rows, in] -> [rows, out]
        x = pad_last(x.float(), self._inputs).contiguous()
        out = torch.empty((x.shape[0], self._rows))
        if self._library.peakplan_matrix_multiply(self._matrix, x.data_ptr(), x.shape[0], out.data_ptr()):
            raise MemoryError(f"no memory for a product of {x.shape[0]} rows")
        return out[:, : self._outputs]

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + self(x)


class NativeLmHead(LmHead):
    """An LM head: some tokens' logits from bfloat16 weights, read where they lie, and whole rows in int8.

    A whole row is needed where a grammar leaves much open, and only finds the tokens worth a logit (`HiddenScores`).
    Few processors multiply bfloat16 fast: 4 rows of 49,152 tokens took torch 23 ms with AVX2, and take int8 2 ms.
    """

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        """Take `weight` [V, H]. Raises MemoryError."""
        super().__init__(pad_last(weight.bfloat16(), above(weight.shape[1])).contiguous())
        self._library = library
        # Made here and not when first wanted: replicas that are forked then share it.
        self._rows = NativeLinear(weight, library)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Return logits like `LmHead.logits`; whole rows [N, V] have int8's error of some percent."""
        if token_ids is None:
            return self._rows(hidden)
        return super().logits(self._padded(hidden), token_ids)

    def of_tokens(self, hidden: Tensor, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.empty(token_ids.size, np.float32)
        token_ids = np.ascontiguousarray(token_ids)
        state = self._padded(hidden).float().contiguous()  # held until the call returns
        self._library.peakplan_scores(
            self._weight.data_ptr(),
            self._weight.shape[1],
            state.data_ptr(),
            token_ids.ctypes.data,
            token_ids.size,
            scores.ctypes.data,
        )
        return scores

    def _padded(self, hidden: Tensor) -> Tensor:
        """Return states [..., H] as wide as the weight's rows."""
        return pad_last(hidden, self._weight.shape[1])
