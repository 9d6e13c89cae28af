"""The model's properties as its model folder states them, and the shapes of planners of other sizes.

The folder is read without the service, so that no fleet file repeats it.

`infra` may not import `service`, so the few lines that read the folder stand here too;
tests/infra/fleet/test_settings.py holds them to what the service itself reads.
"""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# These are the shapes of bases that a model.json may name without a folder, where config.json would say it.
KNOWN_BASES = {
    "smollm2-135m-instruct": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    }
}
_LONGEST_HEADER = 1 << 20  # bytes; a header of Medusa heads has some hundred bytes


def read_model_folder(folder: Path) -> dict[str, Any]:
    """Return the `model` settings that the folder states: id, shape, intents, heads, tree, max_plan_tokens, worth.

    Raise ValueError, with a message for the fleet file's author, where the folder is missing or its files are invalid.
    """
    card = _json(folder / "model.json")
    tree = folder / "medusa_tree.json"
    try:
        shape = KNOWN_BASES.get(card["base"]) or _json(folder / card["base"] / "config.json")
        return {
            "id": card["id"],
            "vocabulary": int(shape["vocab_size"]),
            "intents": len(_json(folder / "vocabulary.json")["intents"]),
            "attention_heads": int(shape["num_attention_heads"]),
            "key_value_heads": int(shape.get("num_key_value_heads") or shape["num_attention_heads"]),
            **_memory(shape),
            "heads": _heads(folder / "medusa_heads.safetensors"),
            "tree": _json(tree) if tree.exists() else [],
            "max_plan_tokens": card["max_tokens"],
            "work_by_choice": _work_by_choice(folder / "reader.json"),
        }
    except (KeyError, TypeError) as missing:
        raise ValueError(f"{folder}: model.json or vocabulary.json does not say {missing}") from missing


def _memory(shape: dict[str, Any]) -> dict[str, int]:
    """Return what a replica holds on a device: bytes of layers and embedding in bfloat16, and of a cached position."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers")
    if not all(shape.get(name) for name in names):
        return {}
    hidden, inner, layers = (int(shape[name]) for name in names)
    heads = int(shape["num_attention_heads"])
    width = int(shape.get("head_dim") or hidden // heads)
    keys = width * int(shape.get("num_key_value_heads") or heads)
    layer = 2 * hidden * width * heads + 2 * hidden * keys + 3 * hidden * inner
    return {
        "weight_bytes": 2 * (layers * layer + hidden * int(shape["vocab_size"])),
        "cache_bytes": 2 * 2 * layers * keys,
    }


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"no {file.name} in {file.parent} (paths start at the repository's root)") from error
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error


def _work_by_choice(file: Path) -> float:
    """Return the share of the model's work that is left where the reader plans what the folder's bound allows."""
    bound = _json(file).get("bound") if file.exists() else None
    return float(bound.get("work", 1)) if bound else 1.0


def _heads(file: Path) -> int:
    """Return how many heads the file holds, from its header's names (safetensors: 8 bytes of length, then JSON)."""
    if not file.exists():
        return 0
    with file.open("rb") as weights:
        (length,) = struct.unpack("<Q", weights.read(8).ljust(8, b"\0"))
        header = weights.read(length) if length <= _LONGEST_HEADER else b""
    try:
        names = json.loads(header)
    except ValueError as error:
        raise ValueError(f"{file} is not a safetensors file (a Git LFS pointer, perhaps: git lfs pull)") from error
    return len({name.partition(".")[0] for name in names if name[0].isdigit()})


GIB = 2**30


@dataclass(frozen=True)
class Planner:
    """A size by the shape of its base. Bytes are in bfloat16, two a parameter, as devices hold them."""

    name: str
    hidden: int
    inner: int
    layers: int
    attention_heads: int
    key_value_heads: int
    vocabulary: int
    head_width: int
    heads: int = 4  # Medusa's
    tied: bool = True  # the LM head is the embedding

    @property
    def layer_bytes(self) -> int:
        """The layers' attention and MLP, all of which each step reads."""
        queries, keys = self.attention_heads * self.head_width, self.key_value_heads * self.head_width
        attention = 2 * self.hidden * queries + 2 * self.hidden * keys
        return 2 * self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def embedding_bytes(self) -> int:
        """The embedding, which a step reads a few rows of."""
        return 2 * self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        return (self.layer_bytes + self.embedding_bytes * (1 if self.tied else 2)) // 2

    def cache_bytes(self, positions: int, batch: int = 1) -> int:
        return 2 * 2 * self.layers * self.key_value_heads * self.head_width * positions * batch

    def device_bytes(self, positions: int, batch: int = 1) -> int:
        """Return what a replica holds on its cores: layers, embedding, keys and values; our graph has no LM head."""
        return self.layer_bytes + self.embedding_bytes + self.cache_bytes(positions, batch)


def _known(name: str, base: str) -> Planner:
    shape = KNOWN_BASES[base]
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"]
    return Planner(
        name, hidden, shape["intermediate_size"], shape["num_hidden_layers"], heads, shape["num_key_value_heads"],
        shape["vocab_size"], hidden // heads,
    )  # fmt: skip


SHIPPED = _known("135M (SmolLM2, which ships)", "smollm2-135m-instruct")
MISTRAL = Planner("7B (as Mistral 0.2)", 4096, 14336, 32, 32, 8, 32000, 128, tied=False)
PLANNERS = (
    SHIPPED,
    Planner("360M (as SmolLM2)", 960, 2560, 32, 15, 5, 49152, 64),
    Planner("1B (as Llama 3.2)", 2048, 8192, 16, 32, 8, 128256, 64),
    Planner("3B (as Llama 3.2)", 3072, 8192, 28, 24, 8, 128256, 128),
    MISTRAL,
    Planner("8B (as Llama 3.1)", 4096, 14336, 32, 32, 8, 128256, 128, tied=False),
)
