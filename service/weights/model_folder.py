"""Read a model folder: what we trained (adapter, heads, tree) and the base that it was trained on.

    model.json                  id, base (a known name, or a folder in Hugging Face's layout), special tokens, limits
    vocabulary.json             what its plans may say: see service/planner/vocabulary.py
    adapter_model.safetensors   optional, PEFT's LoRA layout, with adapter_config.json; merged into the base at load
    medusa_heads.safetensors    optional, `{i}.0.linear.weight` ... as FasterDecoding and TGI name them
    medusa_tree.json            the tree as NxDI lists it: one list of ranks a node
    drafting.json               optional, what is worth drafting on a device that takes forwards of any size: texts with
                                which answers often begin, and how likely a node of the tree must be
    prefill_head.json           optional, better than fixed texts: phrases with which answers begin, how likely a guess
                                must be, for a head that guesses from the prompt's words
    prefill_head.safetensors    its weights: see service/decoding/prefill_head.py
    kind_head.json              optional, the name of the space in which the kind head points
    kind_head.safetensors       its weights: see service/decoding/kind_head.py
    prompt_tagger.json          optional, phrases that stand in answers, and how likely a chain must be, for a tagger
    prompt_tagger.safetensors   that drafts from the states of a prompt: see service/decoding/prompt_tags.py
    eagle/                      optional, an EAGLE-3 head for engines that draft with one: see eagle_head.py

Your own model needs a folder like this one; an adapter, heads and tree are optional. `peakplan import` writes one.
Files that are not named here, as the early_exit.* of older folders, are not read.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from service.decoding.heads import MedusaHeads
from service.decoding.kind_head import KindHead, load_kind_head_weights
from service.decoding.llama_config import LlamaConfig
from service.decoding.prefill_draft import PrefillDraft
from service.decoding.prefill_head import PrefillHead, load_prefill_head_weights
from service.decoding.prompt_tags import PromptTagger
from service.weights.base_weights import BASE_NAME, ensure_base_weights
from service.weights.checkpoint import check_shapes, expected_shapes, read_config, read_weights
from service.weights.head_weights import LayoutError
from service.weights.memory import require_memory
from service.weights.model_card import ModelCard, ModelFolderError, existing, read_card
from service.weights.prompt_tagger import load_prompt_tagger
from service.weights.tokenizer_file import read_tokenizer

__all__ = [
    "LoadedModel",
    "ModelCard",
    "ModelFolderError",
    "base_folder",
    "load_drafting",
    "load_heads",
    "load_kind_head",
    "load_model",
    "load_prefill_head",
    "load_prompt_tagger",
    "merge_adapter",
    "read_card",
]

_ADAPTER_PREFIX = "base_model.model."


class Drafting(BaseModel):
    """The content of drafting.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefill_draft: list[str] = Field(default=[], description="beginnings of answers, drafted while the prompt is read")
    p_min: float = Field(default=0.0, ge=0, lt=1, description="of a node by the heads, to be drafted")


class PrefillHeadCard(BaseModel):
    """The content of prefill_head.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    phrases: list[str] = Field(min_length=1, description="with which answers begin, before they copy a word")
    p_min: float = Field(gt=0, lt=1, description="of a guess, to be drafted")


class KindHeadCard(BaseModel):
    """The content of kind_head.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: str = Field(pattern=r"^[0-9a-f]{16}$", description="the digest of the word vectors among which it points")


@dataclass(frozen=True)
class LoadedModel:
    """A model as an engine needs it. `weights` have Hugging Face's parameter names, the adapter merged.

    `config.longest_sequence` limits prompt, plan and drafted nodes; beyond it the base's attention differs from ours.
    """

    id: str
    config: LlamaConfig
    weights: dict[str, Tensor]
    heads: MedusaHeads | None
    tree: list[list[int]]
    p_min: float
    prefill_draft: PrefillDraft
    prefill_head: PrefillHead | None
    kind_head: KindHead | None
    prompt_tagger: PromptTagger | None
    tokenizer: Tokenizer
    bos_token_id: int
    eos_token_id: int
    max_tokens: int


def load_model(model_dir: Path, cache_dir: Path, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load a model folder and its base, the weights in `dtype`.

    Raises ModelFolderError, or BaseWeightsError for the default base.
    """
    card = read_card(model_dir)
    base = base_folder(card, model_dir, cache_dir)
    try:
        config = read_config(base)
        _require_memory(config, dtype, base)
        weights = read_weights(base)
        check_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, config, base)
        tokenizer = read_tokenizer(existing(base / "tokenizer.json"))
        if (model_dir / "adapter_model.safetensors").is_file():
            merge_adapter(weights, model_dir, dtype)
        for name in weights:  # one by one: two copies of all weights would double a replica's peak memory
            weights[name] = weights[name].to(dtype)
            if not weights[name].isfinite().all():  # int8 would make numbers of them, and wrong plans
                raise ValueError(f"{name} holds values that are no numbers: it is damaged, or too large for {dtype}")
        heads = load_heads(model_dir)
        tree: list[list[int]] = _optional_list(model_dir / "medusa_tree.json")
        p_min, prefill_draft = load_drafting(model_dir, tokenizer)
        prefill_head = load_prefill_head(model_dir, tokenizer, config.hidden_size)
        kind_head = load_kind_head(model_dir, config.hidden_size)
        prompt_tagger = load_prompt_tagger(model_dir, tokenizer, config.hidden_size)
    except LayoutError as error:
        raise ModelFolderError(f"The model in {model_dir} cannot be read: {error}") from error
    except (KeyError, ValueError, SafetensorError) as error:  # JSON errors are ValueErrors
        raise ModelFolderError(f"The model in {model_dir} (base {base}) cannot be read: {error}") from error
    return LoadedModel(
        id=card.id,
        config=config,
        weights=weights,
        heads=heads,
        tree=tree,
        p_min=p_min,
        prefill_draft=prefill_draft,
        prefill_head=prefill_head,
        kind_head=kind_head,
        prompt_tagger=prompt_tagger,
        tokenizer=tokenizer,
        bos_token_id=card.bos_token_id,
        eos_token_id=card.eos_token_id,
        max_tokens=card.max_tokens,
    )


def _require_memory(config: LlamaConfig, dtype: torch.dtype, base: Path) -> None:
    """Raise TooLittleMemoryError where the weights in `dtype`, and the int8 ones that a forward makes, do not fit."""
    weights = sum(math.prod(shape) for shape in expected_shapes(config).values())
    require_memory(weights * (dtype.itemsize + 1), f"loading the {weights / 1e6:,.0f} million weights of {base}")


def load_heads(model_dir: Path) -> MedusaHeads | None:
    """Read a model folder's Medusa heads, where it has them. Raises ValueError or SafetensorError."""
    path = model_dir / "medusa_heads.safetensors"
    return MedusaHeads.load(path) if path.is_file() else None


def load_drafting(model_dir: Path, tokenizer: Tokenizer) -> tuple[float, PrefillDraft]:
    """Read drafting.json: how likely a node must be, and how answers often begin. Raises ValueError."""
    path = model_dir / "drafting.json"
    drafting = Drafting.model_validate_json(path.read_text(encoding="utf-8")) if path.is_file() else Drafting()
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in drafting.prefill_draft]
    return drafting.p_min, PrefillDraft.from_sequences(encoded)


def load_prefill_head(model_dir: Path, tokenizer: Tokenizer, hidden_size: int) -> PrefillHead | None:
    """Read a model folder's prefill head, where it has one, for embeddings of a width.

    Raises ValueError, SafetensorError or ModelFolderError.
    """
    path = model_dir / "prefill_head.json"
    if not path.is_file():
        return None
    card = PrefillHeadCard.model_validate_json(path.read_text(encoding="utf-8"))
    phrases = [tokenizer.encode(phrase, add_special_tokens=False).ids for phrase in card.phrases]
    weights = load_prefill_head_weights(existing(model_dir / "prefill_head.safetensors"))
    head = PrefillHead(phrases, weights, card.p_min)
    if head.hidden_size != hidden_size:
        raise ValueError(f"its prefill head reads embeddings of {head.hidden_size}, and the base's are {hidden_size}")
    return head


def load_kind_head(model_dir: Path, hidden_size: int) -> KindHead | None:
    """Read a model folder's kind head, where it has one, for states of a width.

    Raises ValueError, SafetensorError or ModelFolderError.
    """
    path = model_dir / "kind_head.json"
    if not path.is_file():
        return None
    card = KindHeadCard.model_validate_json(path.read_text(encoding="utf-8"))
    head = KindHead(load_kind_head_weights(existing(model_dir / "kind_head.safetensors")), card.space)
    if head.hidden_size != hidden_size:
        raise ValueError(f"its kind head reads states of {head.hidden_size}, and the base's are {hidden_size}")
    return head


def base_folder(card: ModelCard, model_dir: Path, cache_dir: Path) -> Path:
    """Return the folder of the base; the default one is fetched when it is not there yet."""
    if card.base == BASE_NAME:
        return ensure_base_weights(cache_dir)
    folder = (model_dir / card.base).resolve()
    if not folder.is_dir():
        raise ModelFolderError(f"{model_dir / 'model.json'} names the base {card.base!r}, and {folder} is no folder")
    return folder


def merge_adapter(weights: dict[str, Tensor], model_dir: Path, dtype: torch.dtype = torch.float32) -> None:
    """Add a LoRA adapter in place: W += alpha / r * B @ A, kept in `dtype` (Hu et al., 2021).

    Sums have one order, so that every processor has the same weights to the last bit.
    """
    config = json.loads(existing(model_dir / "adapter_config.json").read_text(encoding="utf-8"))
    adapter = load_file(model_dir / "adapter_model.safetensors")
    scale = config["lora_alpha"] / config["r"]
    for name, down in adapter.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removeprefix(_ADAPTER_PREFIX).removesuffix(".lora_A.weight")
        up = adapter[name.replace(".lora_A.", ".lora_B.")]
        target = f"{module}.weight"
        if target not in weights or weights[target].shape != (up.shape[0], down.shape[1]):
            raise ValueError(f"the adapter's {module} does not fit the base")
        weights[target] = weights[target].float().add_(_product(up.float(), down.float()) * scale).to(dtype)


def _product(up: Tensor, down: Tensor) -> Tensor:
    """Return `up` [out, r] @ `down` [r, in] in float32, summed rank by rank.

    A library's order of summation depends on the processor. Products of an adapter in bfloat16 or float16 are exact in
    float32, so that it makes no difference either whether they are fused with the sum.
    """
    total = torch.zeros((up.shape[0], down.shape[1]))
    for rank in range(up.shape[1]):
        total.addr_(up[:, rank], down[rank])
    return total


def _optional_list(path: Path) -> list[Any]:
    if not path.is_file():
        return []
    listed = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(listed, list):
        raise ValueError(f"{path.name} holds no list")
    return listed
