"""Matrix products outside the layers with the compiled kernels: int8 Medusa heads, and the logits of a few tokens."""

import ctypes
import weakref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.linear import Linear
from service.decoding.lm_head import LmHead


class NativeLinear(Linear):
    """The product `x -> x @ weight.T` in int8, float32 in and out, for a weight [out, in] (multiples of 32 and 64)."""

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        """Quantise and lay out the weight. Raises MemoryError."""
        self.dtype = torch.float32
        full = weight.float().contiguous()
        self._outputs, inputs = full.shape
        self._library = library
        self._matrix = library.peakplan_matrix_create(self._outputs, inputs, full.data_ptr())
        if not self._matrix:
            raise MemoryError(f"no memory for a weight of {self._outputs} by {inputs}")
        weakref.finalize(self, library.peakplan_matrix_destroy, self._matrix)

    def __call__(self, x: Tensor) -> Tensor:  # [rows, in] -> [rows, out]
        x = x.float().contiguous()
        out = torch.empty((x.shape[0], self._outputs))
        if self._library.peakplan_matrix_multiply(self._matrix, x.data_ptr(), x.shape[0], out.data_ptr()):
            raise MemoryError(f"no memory for a product of {x.shape[0]} rows")
        return out

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + self(x)


class NativeLmHead(LmHead):
    """An LM head in bfloat16 whose rows are read in place, without a copy of the requested ones."""

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        """Take `weight` [V, H], H a multiple of 16."""
        super().__init__(weight.bfloat16().contiguous())
        self._library = library

    def of_tokens(self, hidden: Tensor, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.empty(token_ids.size, np.float32)
        token_ids = np.ascontiguousarray(token_ids)
        self._library.peakplan_scores(
            self._weight.data_ptr(),
            self._weight.shape[1],
            hidden.float().contiguous().data_ptr(),
            token_ids.ctypes.data,
            token_ids.size,
            scores.ctypes.data,
        )
        return scores
