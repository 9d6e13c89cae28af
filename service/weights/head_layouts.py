"""Layouts of Medusa heads: each engine's tensor names, files and configuration.

    fasterdecoding  medusa_lm_head.pt           {i}.0.linear.weight|bias, {i}.1.weight
    tgi-v1          medusa_lm_head.safetensors  the same names
    tgi-v2          medusa_lm_head.safetensors  without {i}.1.weight: the base's LM head is shared
    nxdi            medusa_heads.pt             medusa_head_{i}.0.linear.weight|bias, medusa_head_{i}.1.weight
    vllm            model.safetensors           blocks.{i}.layers.0.weight|bias, lm_heads.{i}.weight
    peakplan        medusa_heads.safetensors    as TGI's, {i}.1.weight only where heads have their own

Read in November 2026 in FasterDecoding/Medusa (medusa_model.py), huggingface/text-generation-inference (MedusaHeadV1
and V2 in layers/medusa.py), aws-neuron/neuronx-distributed-inference (modeling_llama.py, application_base.py) and
vllm-project/vllm (models/medusa.py). Where an engine expects an LM head for each Medusa head and ours share the base's,
the base's is written for each: FasterDecoding (`strict=False`) and NxDI otherwise start with random ones, silently.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

LmHeads = Literal["a head", "optional", "shared", "first is shared"]
_BLOCK = ("{i}.0.linear.weight", "{i}.0.linear.bias", "{i}.1.weight")
_NXDI = ("medusa_head_{i}.0.linear.weight", "medusa_head_{i}.0.linear.bias", "medusa_head_{i}.1.weight")
_VLLM = ("blocks.{i}.layers.0.weight", "blocks.{i}.layers.0.bias", "lm_heads.{i}.weight")
_READABLE = 0o644
# In the order in which a folder is searched; FasterDecoding publishes both of its files side by side.
_FILES = (
    "medusa_heads.safetensors",
    "medusa_heads.pt",
    "medusa_lm_head.safetensors",
    "medusa_lm_head.pt",
    "model.safetensors",
)
COMBINED = "medusa_head."  # prefix in a whole FasterDecoding model, which keeps its heads beside its own weights


class LayoutError(ValueError):
    """Raised for a file that does not match its layout. The message names the file, the problem and what to do."""


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """One residual block for each head, `x + SiLU(W x + b)`, and its LM head.

    `weights` [H, H] and `biases` [H], one of each for a head; `lm_heads` [V, H] for each head, None where all share the
    base's.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    lm_heads: tuple[Tensor, ...] | None = None

    @property
    def count(self) -> int:
        return len(self.weights)

    @property
    def hidden_size(self) -> int:
        return int(self.weights[0].shape[0])

    def sharing(self, lm_head: Tensor) -> "HeadWeights":
        """Return the same heads, without their own LM heads where each equals the base's `lm_head` to the last bit."""
        if self.lm_heads is not None and all(same_bits(own, lm_head) for own in self.lm_heads):
            return HeadWeights(self.weights, self.biases)
        return self

    def refuse_other_shapes(self, hidden_size: int, vocab_size: int) -> None:
        """Raise LayoutError unless every tensor fits a base of `hidden_size` and `vocab_size`."""
        wanted = {"weight": (hidden_size, hidden_size), "bias": (hidden_size,), "LM head": (vocab_size, hidden_size)}
        for kind, tensors in zip(wanted, (self.weights, self.biases, self.lm_heads or ()), strict=True):
            for head, tensor in enumerate(tensors):
                if tuple(tensor.shape) != wanted[kind]:
                    raise LayoutError(
                        f"the {kind} of head {head} is {list(tensor.shape)}, and this base needs {list(wanted[kind])}: "
                        "these heads were trained on another base"
                    )


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors have the same shape, dtype and bits (-0.0 differs from 0.0, and NaN equals NaN)."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one is other or torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def refuse_other_names(found: Mapping[str, Tensor], expected: set[str], where: str) -> None:
    """Raise LayoutError naming the tensors that are missing or unexpected."""
    missing, unexpected = sorted(expected - set(found)), sorted(set(found) - expected)
    parts = [f"{what}: {_some(names)}" for what, names in (("missing", missing), ("unexpected", unexpected)) if names]
    if parts:
        raise LayoutError(f"{where} does not hold the tensors of its layout; {'; '.join(parts)}")


def _some(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


@dataclass(frozen=True)
class Layout:
    """One engine's layout of heads. `folder` is where an export puts them, "" beside the base's own files."""

    name: str
    file: str
    folder: str
    weight: str
    bias: str
    lm_head: str
    lm_heads: LmHeads
    has_tree: bool

    @property
    def is_pickled(self) -> bool:
        return self.file.endswith(".pt")

    def tensors(self, heads: HeadWeights, lm_head: Tensor) -> dict[str, Tensor]:
        """Return the file's tensors by name; `lm_head` [V, H] is the base's.

        Raises LayoutError where the heads have LM heads of their own and this layout has no place for them.
        """
        if self.lm_heads == "shared" and heads.lm_heads is not None:
            raise LayoutError(
                f"these heads have LM heads of their own, and {self.name} heads share the base's: choose "
                f"another format, such as {'tgi-v1' if self.name.startswith('tgi') else 'nxdi'}"
            )
        named = {self.weight.format(i=i): tensor for i, tensor in enumerate(heads.weights)}
        named |= {self.bias.format(i=i): tensor for i, tensor in enumerate(heads.biases)}
        return named | {self.lm_head.format(i=i): tensor for i, tensor in enumerate(self._own(heads, lm_head))}

    def _own(self, heads: HeadWeights, lm_head: Tensor) -> tuple[Tensor, ...]:
        if heads.lm_heads is not None:
            return heads.lm_heads
        return (lm_head,) * {"a head": heads.count, "first is shared": 1, "optional": 0, "shared": 0}[self.lm_heads]

    def names(self, count: int, lm_heads: int) -> set[str]:
        """Return the names of `count` heads, the first `lm_heads` of which have an LM head in the file."""
        blocks = {name.format(i=i) for name in (self.weight, self.bias) for i in range(count)}
        return blocks | {self.lm_head.format(i=i) for i in range(lm_heads)}

    def config(self, heads: HeadWeights, vocab_size: int, base: str) -> dict[str, Any] | None:
        """Return the config.json for the file, or None for an engine that reads none; `base` names the base model."""
        if self.name in ("nxdi", "peakplan"):
            return None
        if self.name != "vllm":
            # No `architectures`: TGI takes a speculator that names one for something other than Medusa.
            return {"medusa_num_heads": heads.count, "medusa_num_layers": 1, "base_model_name_or_path": base}
        return {
            "model_type": "medusa",
            "architectures": ["MedusaModel"],
            "hidden_size": heads.hidden_size,
            "vocab_size": vocab_size,
            "truncated_vocab_size": vocab_size,
            "num_heads": heads.count,
            "num_hidden_layers": 1,
            "medusa_fc_bias": True,
            "original_lm_head": heads.lm_heads is None,
        }


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("fasterdecoding", "medusa_lm_head.pt", "medusa", *_BLOCK, "a head", has_tree=True),
        Layout("tgi-v1", "medusa_lm_head.safetensors", "medusa", *_BLOCK, "a head", has_tree=False),
        Layout("tgi-v2", "medusa_lm_head.safetensors", "medusa", *_BLOCK, "shared", has_tree=False),
        Layout("nxdi", "medusa_heads.pt", "", *_NXDI, "a head", has_tree=True),
        Layout("vllm", "model.safetensors", "medusa", *_VLLM, "first is shared", has_tree=False),
        Layout("peakplan", "medusa_heads.safetensors", "", *_BLOCK, "optional", has_tree=True),
    )
}
PEAKPLAN = LAYOUTS["peakplan"]


@dataclass(frozen=True)
class Found:
    """The heads that were found: their file, their layout, and notes for the user."""

    heads: HeadWeights
    path: Path
    layout: Layout
    notes: tuple[str, ...] = ()


def write_heads(heads: HeadWeights, layout: Layout, folder: Path, *, lm_head: Tensor, base: str) -> list[Path]:
    """Write the heads' file and its config.json into `folder`; return the files written.

    `lm_head` [V, H] is the base's and `base` its name or path. Raises LayoutError, see `Layout.tensors`.
    """
    tensors = layout.tensors(heads, lm_head)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / layout.file
    if layout.is_pickled:
        torch.save(tensors, path)
    else:
        save_tensors(tensors, path)
    config = layout.config(heads, int(lm_head.shape[0]), base)
    if config is None:
        return [path]
    beside = folder / "config.json"
    beside.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return [path, beside]


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write a safetensors file that other users may read: servers have their own, and `save_file` excludes them."""
    seen: set[int] = set()  # safetensors refuses two names for one memory
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        kept[name] = tensor.clone(memory_format=torch.contiguous_format) if memory in seen else tensor.contiguous()
        seen.add(memory)
    save_file(kept, path, {"format": "pt"})
    path.chmod(_READABLE)


def read_heads(path: Path, lm_head: Tensor) -> Found:
    """Read heads from a file, or from a folder that holds one, and recognise the layout by its names.

    `lm_head` [V, H] is the base's: heads must fit it, and LM heads that equal it to the last bit are not kept twice.
    Raises LayoutError for tensors that are missing, unexpected, of another shape or unreadable.
    """
    file, *more = _files_of(path)
    tensors = load_tensors(file)
    for shard in more:
        tensors |= {name: tensor for name, tensor in load_tensors(shard).items() if name.startswith(COMBINED)}
    layout, tensors = _recognise(tensors, file)
    config = _config_beside(file)
    heads = _vllm_heads(tensors, layout, config, file) if layout.name == "vllm" else _heads(tensors, layout, file)
    try:
        heads.refuse_other_shapes(int(lm_head.shape[1]), int(lm_head.shape[0]))
    except LayoutError as error:
        raise LayoutError(f"{file}: {error}") from None
    notes = _claims(config, heads, file)
    return Found(heads.sharing(lm_head), file, layout, notes)


def _files_of(path: Path) -> list[Path]:
    """Return the file of heads, or the shards of a whole model that hold some."""
    if path.is_file():
        return [path]
    found = [path / name for name in _FILES if (path / name).is_file()][:1] or combined_files(path)
    if not found:
        raise LayoutError(
            f"{path} holds no Medusa heads. A file of heads is called one of {', '.join(_FILES)}, or they stand in a "
            f"model's own files as {COMBINED}0.0.linear.weight"
        )
    return found


def combined_files(folder: Path) -> list[Path]:
    """Return the files of a whole model that hold its Medusa heads; [] where there are none, or they cannot be read."""
    with suppress(OSError, ValueError, SafetensorError, LayoutError):  # reading the weights reports what is wrong
        return _combined_files(folder)
    return []


def _combined_files(folder: Path) -> list[Path]:
    for index in (folder / "model.safetensors.index.json", folder / "pytorch_model.bin.index.json"):
        if index.is_file():
            places: dict[str, str] = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {})
            return [folder / file for file in sorted({places[name] for name in places if name.startswith(COMBINED)})]
    if (whole := folder / "model.safetensors").is_file():
        with safe_open(whole, framework="pt") as tensors:
            names: list[str] = tensors.keys()
            return [whole] if any(name.startswith(COMBINED) for name in names) else []
    pickled = folder / "pytorch_model.bin"
    return [pickled] if pickled.is_file() and any(name.startswith(COMBINED) for name in load_tensors(pickled)) else []


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Load a file's tensors. Raises LayoutError; torch refuses a pickle that would run code."""
    try:
        if file.suffix == ".safetensors":
            loaded: Any = load_file(file)
        else:
            loaded = torch.load(file, "cpu", weights_only=True, mmap=_is_zip(file))
    except (SafetensorError, UnpicklingError, OSError, RuntimeError, EOFError) as error:
        raise LayoutError(
            f"{file} cannot be read as tensors: {(str(error) or 'it is cut short').splitlines()[0]}"
        ) from error
    if not isinstance(loaded, dict) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise LayoutError(f"{file} holds something else than tensors by name")
    return loaded


def _is_zip(file: Path) -> bool:
    """Tell torch's newer format, whose tensors may stay in the file until they are read."""
    with file.open("rb") as content:
        return content.read(2) == b"PK"


def _recognise(tensors: dict[str, Tensor], file: Path) -> tuple[Layout, dict[str, Tensor]]:
    """Return the layout that has these names, and the tensors that belong to heads."""
    if any(name.startswith(COMBINED) for name in tensors):
        tensors = {name.removeprefix(COMBINED): t for name, t in tensors.items() if name.startswith(COMBINED)}
    tensors = {name.removeprefix("medusa_heads."): tensor for name, tensor in tensors.items()}  # as vLLM does
    for name, pattern in (("nxdi", r"medusa_head_\d+\."), ("vllm", r"blocks\.\d+\."), ("fasterdecoding", r"\d+\.")):
        if any(re.match(pattern, key) for key in tensors):
            return LAYOUTS[name], tensors
    some = ", ".join(sorted(tensors)[:3]) or "nothing"
    raise LayoutError(
        f"{file} holds {some}, and no layout that Peakplan knows calls heads so: it reads FasterDecoding's and TGI's "
        "0.0.linear.weight, NxDI's medusa_head_0.0.linear.weight and vLLM's blocks.0.layers.0.weight"
    )


def _heads(tensors: Mapping[str, Tensor], layout: Layout, file: Path) -> HeadWeights:
    count = _count(tensors, layout.weight)
    deeper = [name for name in tensors if re.search(r"(^|_)\d+\.[1-9]\d*\.linear\.", name)]
    if deeper:
        raise LayoutError(
            f"{file} has heads of several residual blocks ({deeper[0]}); Peakplan, NxDI and TGI v2 run heads of one: "
            "train them with medusa_num_layers=1"
        )
    has_own = any(layout.lm_head.format(i=i) in tensors for i in range(count))
    must_own = layout.name == "nxdi"  # NxDI starts with random ones where they are missing
    refuse_other_names(tensors, layout.names(count, count if has_own or must_own else 0), str(file))
    return HeadWeights(
        tuple(tensors[layout.weight.format(i=i)] for i in range(count)),
        tuple(tensors[layout.bias.format(i=i)] for i in range(count)),
        tuple(tensors[layout.lm_head.format(i=i)] for i in range(count)) if has_own else None,
    )


def _vllm_heads(tensors: Mapping[str, Tensor], layout: Layout, config: Mapping[str, Any], file: Path) -> HeadWeights:
    """Read vLLM's heads, which may lack a bias (`medusa_fc_bias`) and share one LM head (`original_lm_head`)."""
    if "token_map" in tensors:
        raise LayoutError(f"{file} has a token_map, heads over a part of the vocabulary, which Peakplan does not run")
    count = _count(tensors, layout.weight)
    deeper = [name for name in tensors if re.match(r"blocks\.\d+\.layers\.[1-9]", name)]
    if deeper:
        raise LayoutError(f"{file} has heads of several residual blocks ({deeper[0]}); Peakplan runs heads of one")
    shared = bool(config.get("original_lm_head"))
    tensors = {("lm_heads.0.weight" if name == "lm_head.weight" else name): t for name, t in tensors.items()}
    expected = layout.names(count, 1 if shared else count)
    if not config.get("medusa_fc_bias"):
        expected -= {layout.bias.format(i=i) for i in range(count)}
    refuse_other_names(tensors, expected, str(file))
    weights = tuple(tensors[layout.weight.format(i=i)] for i in range(count))
    return HeadWeights(
        weights,
        tuple(tensors.get(layout.bias.format(i=i), torch.zeros_like(weights[i][0])) for i in range(count)),
        tuple(tensors[layout.lm_head.format(i=0 if shared else i)] for i in range(count)),
    )


def _count(tensors: Mapping[str, Tensor], weight: str) -> int:
    """Return the number of heads by the highest index, so that a gap shows up as missing names."""
    prefix, suffix = map(re.escape, weight.split("{i}"))
    numbers = [int(match[1]) for name in tensors if (match := re.match(rf"{prefix}(\d+){suffix[:2]}", name))]
    return max(numbers, default=-1) + 1


def _config_beside(file: Path) -> dict[str, Any]:
    path = file.with_name("config.json")
    if not path.is_file():
        return {}
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LayoutError(f"{path} is not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _claims(config: Mapping[str, Any], heads: HeadWeights, file: Path) -> tuple[str, ...]:
    """Return warnings where a configuration names fewer heads than its file has; raise LayoutError for more.

    FasterDecoding's own vicuna heads say two and are five (the remark is in its medusa_model.py).
    """
    claimed = config.get("medusa_num_heads", config.get("num_heads"))
    if not isinstance(claimed, int) or claimed == heads.count:
        return ()
    if claimed > heads.count:
        raise LayoutError(f"{file} holds {heads.count} heads, and config.json beside it says {claimed}: is it whole?")
    return (f"config.json says {claimed} heads, {file.name} holds {heads.count}: all are taken",)
