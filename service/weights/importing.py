"""`make import`: turn a checkpoint of Llama or a relative, and published Medusa heads, into a model folder.

The folder holds all that it needs, the checkpoint in its `base/` (weights as hard links where the disk allows it), so
that it can be moved, baked into an image and rolled back. Anything that would fail at the first request, or give wrong
answers, is refused here, and the folder appears whole or not at all.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import Tokenizer

from service.decoding.tree import MedusaTree
from service.weights.checkpoint import check_shapes, read_config, read_json, read_lm_head, read_shapes
from service.weights.eagle_head import FOLDER, check_eagle_head, copy_eagle_head
from service.weights.head_layouts import PEAKPLAN, Found, read_heads, write_heads
from service.weights.head_weights import LayoutError
from service.weights.model_card import BASE_FOLDER, ModelCard, ModelFolderError
from service.weights.self_contained import appearing, copy_base
from service.weights.tokenizer_file import read_tokenizer

MAX_TOKENS = 96  # the longest plan text of the shipped model
_TREE = "medusa_tree.json"
# Small, as suits a CPU (docs/figures/decoding.json): each head's best after the best, plus a few second-best ones.
_TREE_OF_HEADS = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0, 0]]


@dataclass(frozen=True)
class Imported:
    """The model folder that was made, its heads, and notes for its owner."""

    folder: Path
    heads: Found | None
    notes: list[str]


def import_model(
    checkpoint: Path,
    output: Path,
    heads: Path | None = None,
    *,
    name: str = "",
    tree: Path | None = None,
    eagle: Path | None = None,
    beside: Mapping[str, Path] = MappingProxyType({}),
) -> Imported:
    """Write the model folder `output`. `heads` is a file or a folder; `tree` a JSON list of choices.

    `eagle` is the folder of an EAGLE-3 head (`eagle_head.py`), which only exports for other engines use.
    `beside` are other files for the folder, by their names there. Raises LayoutError with what to do.
    """
    if output.exists() and any(output.iterdir()):
        raise LayoutError(f"{output} is not empty; name a new folder with OUTPUT=")
    config = read_config(checkpoint)
    check_shapes(read_shapes(checkpoint), config, checkpoint)
    bos, eos = special_tokens(checkpoint, config.vocab_size)
    card = ModelCard(
        id=name or checkpoint.resolve().name,
        base=BASE_FOLDER,
        bos_token_id=bos,
        eos_token_id=eos,
        max_tokens=MAX_TOKENS,
    )
    lm_head = read_lm_head(checkpoint, config)
    found = read_heads(heads, lm_head) if heads is not None else None
    if eagle is not None:
        check_eagle_head(eagle, config)
    choices = _choices(tree, found) if found is not None else []
    notes = list(found.notes) if found else ["no Medusa heads: serve it with PEAKPLAN_STRATEGY=autoregressive"]
    if bos == eos:
        notes.append("it names no first token (bos_token_id): prompts begin with the end token")
    with appearing(output) as made:
        copy_base(checkpoint, made / BASE_FOLDER)
        if eagle is not None:
            copy_eagle_head(eagle, made / FOLDER)
        if found is not None:
            write_heads(found.heads, PEAKPLAN, made, lm_head=lm_head, base="")
            (made / _TREE).write_text(json.dumps(choices) + "\n", encoding="utf-8")
            if tree is None and not (found.path.with_name(_TREE)).is_file():
                notes.append(f"{_TREE} is a small default; TREE= names one that was made for these heads")
        for file, source in beside.items():
            shutil.copyfile(source, made / file)
        (made / "model.json").write_text(card.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return Imported(output, found, notes)


def _tokenizer(checkpoint: Path, vocab_size: int) -> Tokenizer:
    path = checkpoint / "tokenizer.json"
    if not path.is_file():
        raise LayoutError(
            f"{path} is missing. Make it with transformers: AutoTokenizer.from_pretrained({checkpoint.name!r}) and "
            "save_pretrained into the same folder"
        )
    try:
        tokenizer = read_tokenizer(path)
    except ModelFolderError as error:
        raise LayoutError(str(error)) from error
    if tokenizer.get_vocab_size() > vocab_size:
        raise LayoutError(f"{path} has {tokenizer.get_vocab_size()} tokens, and the model's vocabulary is {vocab_size}")
    return tokenizer


def special_tokens(checkpoint: Path, vocab_size: int) -> tuple[int, int]:
    """Return the ids of the first and the end token; a checkpoint without a first one begins with the end.

    Raises LayoutError for a tokenizer that is missing or has more tokens than the model.
    """
    tokenizer = _tokenizer(checkpoint, vocab_size)
    eos = _special_token(checkpoint, "eos_token_id", tokenizer)
    if eos is None:
        raise LayoutError(f"{checkpoint / 'config.json'} says no eos_token_id that its tokenizer has; add it there")
    bos = _special_token(checkpoint, "bos_token_id", tokenizer)
    return eos if bos is None else bos, eos


def _special_token(checkpoint: Path, field: str, tokenizer: Tokenizer) -> int | None:
    """Return a token id from config.json or generation_config.json, the first of several; None where there is none."""
    for name in ("config.json", "generation_config.json"):
        path = checkpoint / name
        value: Any = read_json(path).get(field) if path.is_file() else None
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, int):
            if tokenizer.id_to_token(value) is not None:
                return value
            raise LayoutError(f"{path} says {field} {value}, and {checkpoint / 'tokenizer.json'} has no such token")
    return None


def _choices(tree: Path | None, found: Found) -> list[list[int]]:
    """Return the tree's choices: those named, those beside the heads, or the small default. Raises LayoutError."""
    beside = found.path.with_name(_TREE)
    path = tree or (beside if beside.is_file() else None)
    if path is None:
        return [choice for choice in _TREE_OF_HEADS if len(choice) <= found.heads.count]
    try:
        choices: Any = json.loads(path.read_text(encoding="utf-8"))
        MedusaTree.from_choices(choices, found.heads.count)
    except (OSError, ValueError, TypeError) as error:
        raise LayoutError(f"{path} is no tree for these heads: {error}") from error
    return [list(choice) for choice in choices]
