"""The mean of several independently trained adapters, as one adapter.

Fine-tuned runs of one base that differ in order and mix err differently, and the mean of their weights errs less than
each ("model soups", Wortsman et al., 2022, arXiv 2203.05482). The mean of products of low rank has a higher rank; the
best approximation of the wanted rank is its truncated singular value decomposition.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_WEIGHTS = "adapter_model.safetensors"
_CONFIG = "adapter_config.json"
_DOWN = ".lora_A.weight"
_UP = ".lora_B.weight"


def blend(adapters: Sequence[Path], rank: int, output: Path) -> Path:
    """Write the mean of PEFT adapters, cut to `rank`; return `output`. Raises ValueError where they do not match."""
    parts = [(load_file(folder / _WEIGHTS), _scale(folder)) for folder in adapters]
    names = sorted(name.removesuffix(_DOWN) for name in parts[0][0] if name.endswith(_DOWN))
    for folder, (weights, _) in zip(adapters, parts, strict=True):
        if {f"{name}{part}" for name in names for part in (_DOWN, _UP)} != set(weights):
            raise ValueError(f"{folder} adapts other layers than {adapters[0]}")
    blended: dict[str, Tensor] = {}
    for name in names:
        down = torch.cat([weights[f"{name}{_DOWN}"].float() for weights, _ in parts])  # [sum of ranks, in]
        up = torch.cat([weights[f"{name}{_UP}"].float() * scale / len(parts) for weights, scale in parts], 1)
        blended[f"{name}{_UP}"], blended[f"{name}{_DOWN}"] = _truncated(up, down, rank)
    config = json.loads((adapters[0] / _CONFIG).read_text(encoding="utf-8")) | {"r": rank, "lora_alpha": rank}
    output.mkdir(parents=True, exist_ok=True)
    (output / _CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    kept = {name: value.to(torch.bfloat16).contiguous() for name, value in blended.items()}
    save_file(kept, output / _WEIGHTS, metadata={"format": "pt"})
    return output


def _scale(folder: Path) -> float:
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    scale: float = config["lora_alpha"] / config["r"]
    return scale


def _truncated(up: Tensor, down: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the best factors of rank `rank` of the product up [out, R] @ down [R, in], without computing it."""
    left, left_rest = torch.linalg.qr(up)
    right, right_rest = torch.linalg.qr(down.T)
    u, values, v = torch.linalg.svd(left_rest @ right_rest.T)
    root = values[:rank].sqrt()
    return left @ u[:, :rank] * root, (right @ v[:rank].T * root).T
