"""`peakplan export`: write a model folder as a Hugging Face checkpoint with its heads in another engine's layout.

    OUTPUT/config.json, model.safetensors   the base with the adapter merged in, as it is served
    OUTPUT/tokenizer.json ...               as transformers' AutoTokenizer loads them
    OUTPUT/medusa/ or OUTPUT/               the heads, see `layouts.py`; medusa_tree.json where the engine takes a tree
    OUTPUT/eagle/                           an EAGLE-3 head, for engines that read one
    OUTPUT/model.json                       so that the export is itself a model folder of ours

Weights keep the dtype that their base is published in; heads keep every bit.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor

from service.decoding.llama_config import LlamaConfig
from service.weights.checkpoint import BESIDE, EMBEDDING, LM_HEAD, read_config, read_json, read_lm_head
from service.weights.eagle_head import FOLDER, drafts_every_token
from service.weights.head_layouts import (
    PEAKPLAN,
    HeadWeights,
    Layout,
    LayoutError,
    read_heads,
    save_tensors,
    write_heads,
)
from service.weights.model_folder import ModelCard, base_folder, load_model, read_card

_TREE = "medusa_tree.json"
_WITH_EAGLE = ("vllm", "nxdi", PEAKPLAN.name)
_WITHOUT_WINDOW = ("nxdi", PEAKPLAN.name)  # what is compiled for Neuron is exported as the latter


@dataclass(frozen=True)
class Exported:
    """The output of an export: the base's folder and the heads' files (none where the model has no heads)."""

    folder: Path
    heads: list[Path]


def export_model(model_dir: Path, cache_dir: Path, layout: Layout, output: Path) -> Exported:
    """Write `model_dir` into the empty or new folder `output`.

    Raises LayoutError, ModelFolderError or BaseWeightsError with what to do.
    """
    if output.exists() and any(output.iterdir()):
        raise LayoutError(f"{output} is not empty; name a new folder with OUTPUT=")
    card = read_card(model_dir)
    base = base_folder(card, model_dir, cache_dir)
    dtype = read_lm_head(base, read_config(base)).dtype
    loaded = load_model(model_dir, cache_dir, dtype)
    output.mkdir(parents=True, exist_ok=True)
    _write_base(base, output, loaded.weights, dtype, card)
    if layout.name in _WITHOUT_WINDOW:
        _write_json(output / "config.json", _without_window(read_json(output / "config.json"), loaded.config))
    heads = _heads(model_dir, loaded.weights)
    written = [] if heads is None else _write_heads(heads, layout, model_dir, output, loaded.weights)
    eagle = model_dir / FOLDER
    if layout.name in _WITH_EAGLE and eagle.is_dir() and (layout.name != "nxdi" or drafts_every_token(eagle)):
        shutil.copytree(eagle, output / FOLDER)
    _write_json(output / "model.json", card.model_copy(update={"base": "."}).model_dump(mode="json"))
    return Exported(output, written)


def _without_window(config: dict[str, Any], described: LlamaConfig) -> dict[str, Any]:
    """Say as a limit what a sliding window means for plans, which are shorter: NxDI makes its cache as long as one."""
    config = {name: value for name, value in config.items() if name not in ("layer_types", "max_window_layers")}
    return config | {
        "sliding_window": None,
        "use_sliding_window": False,
        "max_position_embeddings": described.longest_sequence,
    }


def _lm_head(weights: dict[str, Tensor]) -> Tensor:
    return weights.get(LM_HEAD, weights[EMBEDDING])


def _heads(model_dir: Path, weights: dict[str, Tensor]) -> HeadWeights | None:
    path = model_dir / PEAKPLAN.file
    return read_heads(path, _lm_head(weights)).heads if path.is_file() else None


def _write_heads(
    heads: HeadWeights, layout: Layout, model_dir: Path, output: Path, weights: dict[str, Tensor]
) -> list[Path]:
    folder = output / layout.folder
    written = write_heads(heads, layout, folder, lm_head=_lm_head(weights), base=str(output.resolve()))
    if layout.has_tree and (model_dir / _TREE).is_file():
        shutil.copy(model_dir / _TREE, folder / _TREE)
        written.append(folder / _TREE)
    return written


def _write_base(base: Path, output: Path, weights: dict[str, Tensor], dtype: torch.dtype, card: ModelCard) -> None:
    config = read_json(base / "config.json") | read_config(base).rope_fields()
    is_copy = {LM_HEAD} if config.get("tie_word_embeddings") else set()
    save_tensors({name: weights[name] for name in weights.keys() - is_copy}, output / "model.safetensors")
    _write_json(output / "config.json", config | {"torch_dtype": str(dtype).removeprefix("torch.")})
    for name in BESIDE:
        if (base / name).is_file():
            shutil.copy(base / name, output / name)
    if not (base / "tokenizer_config.json").is_file():
        _describe_tokenizer(output, card)
    if not (base / "generation_config.json").is_file():
        greedy = {"bos_token_id": card.bos_token_id, "eos_token_id": card.eos_token_id, "do_sample": False}
        _write_json(output / "generation_config.json", greedy)


def _describe_tokenizer(output: Path, card: ModelCard) -> None:
    """Make other programs put the first token before a prompt as we do, which our base's tokenizer.json does not."""
    tokenizer: Any = Tokenizer.from_file(str(output / "tokenizer.json"))
    bos, eos = tokenizer.id_to_token(card.bos_token_id), tokenizer.id_to_token(card.eos_token_id)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, card.bos_token_id)]
    )
    tokenizer.save(str(output / "tokenizer.json"))
    _write_json(
        output / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": bos, "eos_token": eos, "pad_token": eos}
        | {"clean_up_tokenization_spaces": False},
    )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
