"""Matrix products whose weights are laid out once for the machine they run on."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

# oneDNN's blocked kernels cost the same for one to six rows, and cost more for one or two than for four: 12.6 ms for 4
# rows of our 30 layers against 14.7 and 16.9 for 1 and 2 (bfloat16, one thread of a Zen 4 core). See `Llama.forward`.
CHEAPEST_ROWS = 4


class Linear:
    """The product `x -> x @ weight.T` for a weight [out, in], with torch's own kernels."""

    cheapest_rows = 1

    def __init__(self, weight: Tensor) -> None:
        self.dtype = weight.dtype  # dtype of the inputs that it multiplies
        self._weight = weight.contiguous()

    def __call__(self, x: Tensor) -> Tensor:  # [rows, in] -> [rows, out]
        return F.linear(x, self._weight)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """Return `residual + x @ weight.T`, [rows, out]."""
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
