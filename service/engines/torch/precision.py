"""The number formats in which the torch engine can keep a model's weights."""

from typing import Literal

# auto      int8 where our kernels run, else bfloat16 where the CPU multiplies it fast, else float32
# int8      our own AVX-512 kernels (`forward_ms` in docs/figures/decoding.json has what each takes)
# bfloat16  torch's kernels
# float32   torch's kernels; the reference
Precision = Literal["auto", "int8", "bfloat16", "float32"]
