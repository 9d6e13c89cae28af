"""Checkpoints as they are published: pickled shards, and Medusa heads among the model's own weights.

FasterDecoding's v1.0 models are both (`medusa_head.{i}.…` in pytorch_model-*.bin). What we load is safetensors with the
base's tensors alone, so such a checkpoint is written anew, a shard at a time.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

from service.weights.checkpoint import read_json, weight_files
from service.weights.head_layouts import COMBINED, combined_files, load_tensors, save_tensors
from service.weights.head_weights import LayoutError

_PICKLED = "pytorch_model"
_INDEX = "model.safetensors.index.json"


def has_heads(checkpoint: Path) -> bool:
    """Tell whether a checkpoint's own files hold Medusa heads."""
    return bool(combined_files(checkpoint))


def as_safetensors(checkpoint: Path, scratch: Path) -> Path:
    """Return the checkpoint, or the same one in `scratch`, as safetensors without heads. Raises LayoutError."""
    pickled = pickled_files(checkpoint)
    if not pickled and not has_heads(checkpoint):
        return checkpoint
    weights = shutil.ignore_patterns("*.bin", "*.safetensors", "*.pt", "*.index.json")
    shutil.copytree(checkpoint, scratch, ignore=weights)
    places: dict[str, str] = {}
    for number, file in enumerate(pickled or weight_files(checkpoint)):
        kept = {name: tensor for name, tensor in load_tensors(file).items() if not name.startswith(COMBINED)}
        if kept:
            save_tensors(kept, scratch / f"model-{number:05}.safetensors")
            places |= dict.fromkeys(kept, f"model-{number:05}.safetensors")
    (scratch / _INDEX).write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    return scratch


def pickled_files(checkpoint: Path) -> list[Path]:
    """Return the shards of a checkpoint that has no safetensors; [] of one that has. Raises LayoutError."""
    if (checkpoint / "model.safetensors").is_file() or (checkpoint / _INDEX).is_file():
        return []
    index = checkpoint / f"{_PICKLED}.bin.index.json"
    names: Iterable[str] = [f"{_PICKLED}.bin"]
    if index.is_file():
        names = sorted(set(read_json(index).get("weight_map", {}).values()))
    elif not (checkpoint / f"{_PICKLED}.bin").is_file():
        return []
    if missing := [name for name in names if not (checkpoint / name).is_file()]:
        raise LayoutError(f"{checkpoint} lacks {', '.join(missing)}. Is the download whole?")
    return [checkpoint / name for name in names]
