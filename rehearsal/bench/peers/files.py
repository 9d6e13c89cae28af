"""Reads the prepared checkpoint (checkpoint.py) for every converter; needs neither torch nor the service."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Floats = NDArray[np.float32]


def read_weights(checkpoint: Path) -> dict[str, Floats]:
    """Return every weight in float32 by Hugging Face's names."""
    return {name: weight.astype(np.float32) for name, weight in load_file(checkpoint / "model.safetensors").items()}


def token_names(checkpoint: Path, config: dict[str, Any]) -> list[str]:
    """Return every token's text by its id, special ones included. Raises ValueError unless the tokenizer is BPE."""
    described = json.loads((checkpoint / "tokenizer.json").read_text(encoding="utf-8"))
    if described["model"]["type"] != "BPE":
        raise ValueError(f"{checkpoint} has a tokenizer of type {described['model']['type']}, and only BPE is written")
    names = {index: name for name, index in described["model"]["vocab"].items()}
    names |= {token["id"]: token["content"] for token in described["added_tokens"]}
    return [names.get(index, f"<unused{index}>") for index in range(config["vocab_size"])]
