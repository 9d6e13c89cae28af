"""EAGLE-3 heads as SafeAILab/EAGLE publishes them and vLLM, NxDI and speculators read them: checked and copied.

    eagle/config.json         of the head's one layer, as of a Llama's; draft_vocab_size; which states it reads
    eagle/model.safetensors   fc, midlayer.* (or layers.0.*), norm, lm_head; embed_tokens where it has its own
                              d2t [draft vocabulary]: how much larger the target's id of each token is; t2d is not read

Read in November 2026 in SafeAILab/EAGLE (cnets.py), vllm-project/vllm (models/llama_eagle3.py),
aws-neuron/neuronx-distributed-inference (modeling_llama.py, model_base.py) and vllm-project/speculators. States are
those after layers 2, n / 2 and n - 3, counted from 1, unless the config says others. NxDI reads no d2t: it drafts over
the whole vocabulary.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from service.decoding.llama_config import LlamaConfig
from service.weights.checkpoint import differences, read_json
from service.weights.head_layouts import LayoutError, load_tensors, save_tensors

FOLDER = "eagle"  # in a model folder and in an export
_LAYER = "midlayer."
_FILE = "model.safetensors"
_FILES = (_FILE, "pytorch_model.bin")
_LAYERS = "eagle_aux_hidden_state_layer_ids"
_EMBEDDING, _OFFSETS = "embed_tokens.weight", "d2t"
_NOT_READ = ("t2d",)
# What newer heads compute otherwise, and the values that leave it as it is here.
_ELSEWHERE: Mapping[str, tuple[Any, ...]] = {
    "norm_before_fc": (False,),
    "fc_norm": (False,),
    "norm_output": (False,),
    "parallel_drafting": (False,),
    "use_aux_hidden_state": (True,),
    "logit_scale": (1,),
}


def check_eagle_head(folder: Path, target: LlamaConfig) -> None:
    """Check that a head is whole and of this target. Raises LayoutError with what is missing, unknown or another's."""
    path = folder / "config.json"
    config = read_json(path)
    try:
        layer = _layer(config)
    except KeyError as error:
        raise LayoutError(f"{path} lacks {error}") from error
    except ValueError as error:
        raise LayoutError(f"{path}: {error}") from error
    if layer.hidden_size != target.hidden_size:
        raise LayoutError(
            f"{path}: this EAGLE-3 head is for states of {layer.hidden_size}, and the model's are "
            f"{target.hidden_size}: it was trained on another base"
        )
    layers = _said(config, _LAYERS) or (2, target.num_layers // 2, target.num_layers - 3)
    if list(layers) != sorted(set(layers)) or not 0 < layers[0] <= layers[-1] <= target.num_layers:
        raise LayoutError(
            f"{path}: states after layers {', '.join(map(str, layers))} are not those of a model of "
            f"{target.num_layers}: name them in {_LAYERS}"
        )
    file = _file_in(folder)
    tensors = _named(load_tensors(file))
    _check_shapes(tensors, layer, len(layers), _drafted(tensors, target.vocab_size, file), file)


def copy_eagle_head(source: Path, folder: Path) -> None:
    """Put a head that `check_eagle_head` took into the new `folder`, its tensors' names and bits as they are."""
    folder.mkdir(parents=True)
    shutil.copyfile(source / "config.json", folder / "config.json")
    file = _file_in(source)
    if file.name == _FILE:
        shutil.copyfile(file, folder / _FILE)
    else:
        save_tensors(load_tensors(file), folder / _FILE)


def drafts_every_token(folder: Path) -> bool:
    """Tell whether a head's vocabulary is its target's, as NxDI takes it to be."""
    return _OFFSETS not in load_tensors(_file_in(folder))


def _said(config: Mapping[str, Any], name: str) -> Any:
    """Return a field of a config, or of its `eagle_config`."""
    return config.get(name, (config.get("eagle_config") or {}).get(name))


def _layer(config: Mapping[str, Any]) -> LlamaConfig:
    """Return the layer's architecture. Raises KeyError or ValueError, naming what is missing or unknown here."""
    for name, neutral in _ELSEWHERE.items():
        if (value := _said(config, name)) is not None and value not in neutral:
            raise ValueError(f"EAGLE-3 heads with {name} ({value!r}) are not taken")
    described: Mapping[str, Any] = config.get("transformer_layer_config") or config  # speculators' form has it inside
    layer = LlamaConfig.from_dict(described)
    if layer.num_layers != 1:
        raise ValueError(f"EAGLE-3 heads of {layer.num_layers} layers are not taken; those of one are")
    if layer.qkv_bias or layer.output_bias or layer.qk_norm:
        raise ValueError("EAGLE-3 heads whose attention has biases or norms are not taken")
    wide = config.get("target_hidden_size") or layer.hidden_size
    if wide != layer.hidden_size:
        raise ValueError(f"an EAGLE-3 head of width {layer.hidden_size} on states of {wide} is not taken")
    return replace(layer, unrotated_layers=())


def _file_in(folder: Path) -> Path:
    for name in _FILES:
        if (folder / name).is_file():
            return folder / name
    raise LayoutError(f"{folder} has neither {' nor '.join(_FILES)}: is the download whole?")


def _named(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors by the names that SafeAILab/EAGLE gives them."""
    short = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    return {
        name.replace("layers.0.", _LAYER): tensor
        for name, tensor in short.items()
        if name not in _NOT_READ and not name.endswith(".rotary_emb.inv_freq")
    }


def _drafted(tensors: dict[str, Tensor], vocab_size: int, file: Path) -> int:
    """Take `d2t` out of the tensors; return how many tokens the draft's vocabulary has."""
    offsets = tensors.pop(_OFFSETS, None)
    tokens = torch.arange(vocab_size) if offsets is None else torch.arange(len(offsets)) + offsets.long()
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocab_size or len(set(tokens.tolist())) < len(tokens):
        raise LayoutError(
            f"{file}: d2t leads to tokens {int(tokens.min())} to {int(tokens.max())}, and the model has {vocab_size}, "
            "each once: this head was trained on another base"
        )
    return len(tokens)


def _check_shapes(tensors: Mapping[str, Tensor], layer: LlamaConfig, states: int, vocabulary: int, file: Path) -> None:
    """Raise LayoutError naming the first tensors that are missing, unexpected or of another shape."""
    expected = dict(_shapes(layer, states, vocabulary))
    if _EMBEDDING not in tensors:  # the target's is read then
        del expected[_EMBEDDING]
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    no_numbers = [
        f"{name} holds values that are no numbers" for name, each in tensors.items() if not each.isfinite().all()
    ]
    if wrong := differences(found, expected, "an EAGLE-3 head", no_numbers):
        raise LayoutError(f"{file} does not fit this model: {wrong}")


def _shapes(layer: LlamaConfig, states: int, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = layer.hidden_size, layer.intermediate_size
    queries, keys = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    yield "fc.weight", (hidden, states * hidden)
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        yield f"{_LAYER}{name}.weight", (hidden,)
    for name, width in (("q", queries), ("k", keys), ("v", keys)):
        yield f"{_LAYER}self_attn.{name}_proj.weight", (width, 2 * hidden)
    yield f"{_LAYER}self_attn.o_proj.weight", (hidden, queries)
    yield f"{_LAYER}mlp.gate_proj.weight", (inner, hidden)
    yield f"{_LAYER}mlp.up_proj.weight", (inner, hidden)
    yield f"{_LAYER}mlp.down_proj.weight", (hidden, inner)
    yield "norm.weight", (hidden,)
    yield "lm_head.weight", (vocabulary, hidden)
    yield _EMBEDDING, (layer.vocab_size, hidden)
