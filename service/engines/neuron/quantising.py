"""int8 weights for NeuronCores: an exported checkpoint's layers as NxDI 0.8 reads quantised ones.

NxDI quantises by loading Hugging Face's whole model (`save_quantized_state_dict` in models/application_base.py); here
each tensor is read, quantised and written by itself, so that a shard's worth of memory is enough. The scheme is the
same, symmetric and per output row (`quantize_per_channel_symmetric` in neuronx_distributed): a row's int8 values are
its weights over `scale` [out, 1] float32, by which its largest weight is 127. The compiled layers multiply them back
to the compute dtype as they are read, so half the bytes pass through the memory and the arithmetic stays. Embedding and
norms stay as they are, and so does the LM head, which the host multiplies (`graph.py`). Not run on hardware.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from service.weights.checkpoint import weight_files

_LAYERS, _PRODUCT = "model.layers.", "_proj.weight"
_STEPS = 127


def quantise_checkpoint(folder: Path) -> None:
    """Replace the layers' products in a checkpoint's files by int8 weights with their scales, one file at a time."""
    for file in weight_files(folder):
        made: dict[str, Tensor] = {}
        with safe_open(file, framework="pt") as tensors:
            names: list[str] = tensors.keys()  # what safe_open opens is no mapping
            for name in names:
                weight = tensors.get_tensor(name)
                if name.startswith(_LAYERS) and name.endswith(_PRODUCT):
                    made[name], made[name.removesuffix("weight") + "scale"] = quantised(weight)
                else:
                    made[name] = weight.clone()  # of its own: the file that it lies in is replaced
        beside = file.with_name(f".{file.name}")
        save_file(made, beside, metadata={"format": "pt"})
        beside.replace(file)


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 values [out, in] and float32 scales [out, 1] of a weight, whose rows may be zero."""
    exact = weight.float()
    scale = (exact.abs().amax(1, keepdim=True) / _STEPS).clamp(min=torch.finfo(torch.float32).eps)
    return (exact / scale).round().clamp(-128, 127).to(torch.int8), scale
