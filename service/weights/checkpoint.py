"""Hugging Face checkpoint folders of Llama and its relatives: checked before anything is computed, read and copied.

`LlamaConfig` describes what they have in common and what each adds; unsupported features are refused by name. A sliding
window is harmless while no sequence is longer than it, so it only limits how long prompt and plan may be.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from service.decoding.llama_config import LlamaConfig
from service.weights.head_layouts import LayoutError

EMBEDDING = "model.embed_tokens.weight"
LM_HEAD = "lm_head.weight"
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_IGNORED = ".rotary_emb.inv_freq"  # old checkpoints contain this table, which follows from the configuration

# What of a checkpoint belongs to the model beside its weights; all that AutoTokenizer and generate may read.
BESIDE = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
)
_WITH_THEM = ("config.json", "model.safetensors.index.json", "LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises LayoutError."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LayoutError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise LayoutError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise LayoutError(f"{path} holds no JSON object")
    return content


def read_config(folder: Path) -> LlamaConfig:
    """Return the model's shape. Raises LayoutError for an architecture or a feature that our forward lacks."""
    path = folder / "config.json"
    config = read_json(path)
    if config.get("quantization_config"):
        raise LayoutError(f"{path}: the weights are quantised; give the checkpoint that they were made from")
    try:
        return LlamaConfig.from_dict(config)
    except KeyError as error:
        raise LayoutError(f"{path} lacks {error}") from error
    except ValueError as error:
        raise LayoutError(f"{path}: {error}") from error


def expected_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that the forward needs, under Hugging Face's name."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    if config.qk_norm:
        layer |= {"self_attn.q_norm": (config.head_dim,), "self_attn.k_norm": (config.head_dim,)}
    biases = {f"self_attn.{name}_proj": (keys if name in "kv" else queries,) for name in "qkv" if config.qkv_bias}
    if config.output_bias:
        biases["self_attn.o_proj"] = (hidden,)
    shapes = {EMBEDDING: (config.vocab_size, hidden), "model.norm.weight": (hidden,)}
    for index in range(config.num_layers):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
        shapes |= {f"model.layers.{index}.{name}.bias": shape for name, shape in biases.items()}
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab_size, hidden)
    return shapes


def check_shapes(found: Mapping[str, tuple[int, ...]], config: LlamaConfig, where: Path) -> None:
    """Compare shapes. Raises LayoutError naming the first tensors that are missing, unexpected or of another shape."""
    expected = expected_shapes(config)
    optional = {LM_HEAD} if config.tie_word_embeddings else set()  # a copy of the embedding, which some tools write
    found = {name: shape for name, shape in found.items() if not name.endswith(_IGNORED) and name not in optional}
    if wrong := differences(found, expected, "this architecture"):
        raise LayoutError(f"the checkpoint {where} does not fit its config.json: {wrong}")


def differences(
    found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]], of: str, more: Sequence[str] = ()
) -> str:
    """Describe the first three tensors that are missing, unexpected or of another shape, or `more`; "" for none."""
    wrong = [f"{name} is missing" for name in expected if name not in found]
    wrong += [f"{name} is not of {of}" for name in found if name not in expected]
    wrong += [
        f"{name} is {list(found[name])}, and config.json says {list(shape)}"
        for name, shape in expected.items()
        if name in found and tuple(found[name]) != shape
    ]
    wrong += more
    return "; ".join(wrong[:3]) + (f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else "")


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors file, or an index's shards. Raises LayoutError with how to get safetensors."""
    if (folder / _INDEX).is_file():
        index = read_json(folder / _INDEX)
        files = [folder / name for name in sorted(set(index.get("weight_map", {}).values()))]
    else:
        files = [folder / _SINGLE]
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        pickled = any(folder.glob("pytorch_model*.bin"))
        how = (
            "Its weights are pickled: load it with transformers' AutoModelForCausalLM and save_pretrained it"
            if pickled
            else "Is the download whole?"
        )
        raise LayoutError(f"{folder} lacks {', '.join(missing) or 'weights'}. {how}")
    return files


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a checkpoint's tensors, without reading the tensors. Raises LayoutError."""
    return {name: tuple(tensors.get_slice(name).get_shape()) for name, tensors in _held(folder)}


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return a checkpoint's tensors by name, each in its own dtype. Raises LayoutError."""
    return {name: tensors.get_tensor(name) for name, tensors in _held(folder) if not name.endswith(_IGNORED)}


def read_named(folder: Path, names: Collection[str]) -> dict[str, Tensor]:
    """Return those of a checkpoint's tensors, reading no others. Raises LayoutError."""
    return {name: tensors.get_tensor(name) for name, tensors in _held(folder) if name in names}


def _held(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name of each of a checkpoint's tensors with the open file that holds it. Raises LayoutError."""
    for file in weight_files(folder):
        try:
            with safe_open(file, framework="pt") as tensors:
                yield from ((name, tensors) for name in tensors.keys())  # noqa: SIM118 (it is no mapping)
        except (SafetensorError, OSError) as error:
            raise LayoutError(f"{file} is not a whole safetensors file: {error}") from error


def read_lm_head(folder: Path, config: LlamaConfig) -> Tensor:
    """Read only the base's LM head [V, H]: a checkpoint may exceed this machine's memory. Raises LayoutError."""
    name = EMBEDDING if config.tie_word_embeddings else LM_HEAD
    if found := read_named(folder, {name}):
        return found[name]
    raise LayoutError(f"{folder} holds no {name}")


@contextmanager
def appearing(output: Path) -> Iterator[Path]:
    """Give a folder beside `output` that takes its place when the block has ended well, and is removed otherwise."""
    output.parent.mkdir(parents=True, exist_ok=True)
    made = output.with_name(f".{output.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
        if output.is_dir():
            output.rmdir()  # an empty one
        made.rename(output)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def copy_base(checkpoint: Path, folder: Path) -> None:
    """Put a checkpoint into the new `folder`: weights as hard links, where both are on one disk, all else copied.

    Raises LayoutError where the disk has no room for a copy.
    """
    folder.mkdir(parents=True)
    for name in (*BESIDE, *_WITH_THEM):
        if (checkpoint / name).is_file():
            shutil.copyfile(checkpoint / name, folder / name)
    for file in weight_files(checkpoint):
        try:
            os.link(file.resolve(), folder / file.name)
        except OSError:  # another disk, or one without links
            _copy_large(file, folder / file.name)


def _copy_large(file: Path, target: Path) -> None:
    needed, free = file.stat().st_size, shutil.disk_usage(target.parent).free
    if needed > free:
        raise LayoutError(
            f"{file} has {needed / 1e9:.1f} GB, and {free / 1e9:.1f} are free in {target.parent.parent.parent}: make "
            f"room for {(needed - free) / 1e9:.1f} GB there, or name an OUTPUT= on the checkpoint's own disk, where "
            "nothing is copied"
        )
    shutil.copyfile(file, target)
