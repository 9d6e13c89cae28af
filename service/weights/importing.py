"""`peakplan import`: turn a checkpoint of Llama or a relative, and published Medusa heads, into a model folder.

The folder holds all that it needs, the checkpoint in its `base/` (weights as hard links where the disk allows it), so
that it can be moved, baked into an image and rolled back. Anything that would fail at the first request, or give wrong
answers, is refused here, and the folder appears whole or not at all.

FasterDecoding's v1.0 models are pickled shards with the heads among the model's own weights (`medusa_head.{i}.…` in
pytorch_model-*.bin). What we load is safetensors with the base's tensors alone, so such a checkpoint is written anew, a
shard at a time.
"""

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import Tokenizer

from service.decoding.tree import MedusaTree
from service.weights.checkpoint import (
    appearing,
    check_shapes,
    copy_base,
    read_config,
    read_json,
    read_lm_head,
    read_shapes,
    weight_files,
)
from service.weights.eagle_head import FOLDER, check_eagle_head, copy_eagle_head
from service.weights.head_layouts import (
    COMBINED,
    PEAKPLAN,
    Found,
    LayoutError,
    combined_files,
    load_tensors,
    read_heads,
    save_tensors,
    write_heads,
)
from service.weights.model_card import BASE_FOLDER, ModelCard, ModelFolderError
from service.weights.tokenizer_file import read_tokenizer

_PICKLED = "pytorch_model"
_INDEX = "model.safetensors.index.json"

MAX_TOKENS = 96  # the longest plan text of the shipped model
_TREE = "medusa_tree.json"
# Small, as suits a CPU (docs/figures/decoding.json): each head's best after the best, plus a few second-best ones.
_TREE_OF_HEADS = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0, 0]]


def as_safetensors(checkpoint: Path, scratch: Path) -> Path:
    """Return the checkpoint, or the same one in `scratch`, as safetensors without heads. Raises LayoutError."""
    pickled = pickled_files(checkpoint)
    if not pickled and not combined_files(checkpoint):
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
    if heads is None and combined_files(checkpoint):
        heads = checkpoint
    with tempfile.TemporaryDirectory(dir=_existing(output.parent), prefix=".checkpoint-") as scratch:
        base = as_safetensors(checkpoint, Path(scratch) / checkpoint.resolve().name)
        return _import(base, output, heads, name, tree, eagle, beside)


def _existing(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _import(
    checkpoint: Path,
    output: Path,
    heads: Path | None,
    name: str,
    tree: Path | None,
    eagle: Path | None,
    beside: Mapping[str, Path],
) -> Imported:
    """Do so for a checkpoint in safetensors that holds no heads."""
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
    if other_ends := _special_tokens(checkpoint, "eos_token_id", _tokenizer(checkpoint, config.vocab_size))[1:]:
        notes.append(
            f"it names several end tokens: plans end as their grammar says, by {eos} where a token must, and "
            f"{', '.join(map(str, other_ends))} can never be decoded"
        )
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
                notes.append(f"{_TREE} is a small default; --tree names one that was made for these heads")
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
    ends = _special_tokens(checkpoint, "eos_token_id", tokenizer)
    if not ends:
        raise LayoutError(f"{checkpoint / 'config.json'} says no eos_token_id that its tokenizer has; add it there")
    begins = _special_tokens(checkpoint, "bos_token_id", tokenizer) or ends
    return begins[0], ends[0]


def _special_tokens(checkpoint: Path, field: str, tokenizer: Tokenizer) -> list[int]:
    """Return token ids from config.json, or else from generation_config.json."""
    for name in ("config.json", "generation_config.json"):
        path = checkpoint / name
        value: Any = read_json(path).get(field) if path.is_file() else None
        found = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, int)]
        for each in found:
            if tokenizer.id_to_token(each) is None:
                raise LayoutError(f"{path} says {field} {each}, and {checkpoint / 'tokenizer.json'} has no such token")
        if found:
            return found
    return []


def _choices(tree: Path | None, found: Found) -> list[list[int]]:
    """Return the tree's choices: those named, those beside the heads, or the small default. Raises LayoutError."""
    beside = found.path.with_name(_TREE)
    path = tree or (beside if beside.is_file() else None)
    if path is None:
        return [choice for choice in _TREE_OF_HEADS if len(choice) <= found.heads.count]
    try:
        choices: Any = json.loads(path.read_text(encoding="utf-8"))
        # A list may name leaves alone: its paths are the tree.
        choices = [list(path) for path in sorted({tuple(c[:end]) for c in choices for end in range(1, len(c) + 1)})]
        if not choices:
            raise ValueError("it is empty: plain decoding needs no heads")
        MedusaTree.from_choices(choices, found.heads.count)
    except (OSError, ValueError, TypeError) as error:
        raise LayoutError(f"{path} is no tree for these heads: {error}") from error
    return [list(choice) for choice in choices]
