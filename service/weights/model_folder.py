"""Read a model folder: what we trained (adapter, heads, tree) and the base that it was trained on.

    model.json                  id, base (a known name, or a folder in Hugging Face's layout), special tokens, limits
    vocabulary.json             what its plans may say: see service/planner/vocabulary.py
    adapter_model.safetensors   optional, PEFT's LoRA layout, with adapter_config.json; merged into the base at load
    medusa_heads.safetensors    optional, `{i}.0.linear.weight` ... as FasterDecoding and TGI name them
    medusa_tree.json            the tree as NxDI lists it: one list of ranks a node
    drafting.json               optional, how likely a node of the tree must be on a device that takes forwards of any
                                size
    reader.json                 optional, what the reader chooses from, and how likely a filter of its plan must be
    reader_words.txt            the words that it knows, and
    reader.safetensors          its weights: see service/planner/reader
    kind_head.json              optional, the name of the space in which the kind head points
    kind_head.safetensors       its weights: see service/decoding/kind_head.py
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

from service.decoding.kind_head import KindHead, load_kind_head_weights
from service.decoding.llama_config import LlamaConfig
from service.decoding.medusa import MedusaHeads
from service.weights.base_weights import BASE_NAME, ensure_base_weights
from service.weights.checkpoint import check_shapes, expected_shapes, read_config, read_weights
from service.weights.head_layouts import LayoutError
from service.weights.model_card import ModelCard, ModelFolderError, existing, read_card
from service.weights.tokenizer_file import read_tokenizer

GIB = 1 << 30
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")

__all__ = [
    "LoadedModel",
    "ModelCard",
    "ModelFolderError",
    "base_folder",
    "load_heads",
    "load_kind_head",
    "load_model",
    "merge_adapter",
    "read_card",
]
_ADAPTER_PREFIX = "base_model.model."


class TooLittleMemoryError(ValueError):
    """Raised where something needs more memory than there is; the message says how many GiB lack."""


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Return what the system and this container leave free, the lesser; None where neither says so (macOS)."""
    found = [value for value in (_of_system(meminfo), _of_container(cgroup)) if value is not None]
    return min(found, default=None)


def require_memory(needed: int, what: str, *, free: int | None = None) -> None:
    """Raise TooLittleMemoryError where `needed` bytes are more than are free; `what` says for which work."""
    free = available_bytes() if free is None else free
    if free is not None and needed > free:
        raise TooLittleMemoryError(
            f"{what} takes some {needed / GIB:.1f} GiB of memory and {free / GIB:.1f} are free: "
            f"{(needed - free) / GIB:.1f} GiB lack. End other programs, use a machine with more memory, or take a "
            "smaller model"
        )


def _of_system(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kibibytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kibibytes) * 1024 if kibibytes else None


def _of_container(cgroup: Path) -> int | None:
    """Return what cgroup 2 leaves; what the kernel would give back of its file cache counts as free."""
    try:
        limit, used = ((cgroup / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
        reclaimable = [line.split()[1] for line in (cgroup / "memory.stat").read_text(encoding="ascii").splitlines()
                       if line.startswith(("inactive_file ", "active_file "))]  # fmt: skip
    except OSError:
        return None
    return None if limit == "max" else int(limit) - int(used) + sum(map(int, reclaimable))


class Drafting(BaseModel):
    """The content of drafting.json; the beginnings of answers that older folders have are not read."""

    model_config = ConfigDict(frozen=True)

    p_min: float = Field(default=0.0, ge=0, lt=1, description="of a node by the heads, to be drafted")


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
    kind_head: KindHead | None
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
        p_min = _load_drafting(model_dir).p_min
        kind_head = load_kind_head(model_dir, config.hidden_size)
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
        kind_head=kind_head,
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


def _load_drafting(model_dir: Path) -> Drafting:
    """Read drafting.json, where there is one. Raises ValueError."""
    path = model_dir / "drafting.json"
    return Drafting.model_validate_json(path.read_text(encoding="utf-8")) if path.is_file() else Drafting()


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
