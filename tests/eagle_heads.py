"""Random EAGLE-3 heads, and the files of them as others publish such heads."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from service.decoding.llama_config import LlamaConfig

Form = Literal["vllm", "pickled", "speculators"]
LAYER = "midlayer."


@dataclass(frozen=True)
class EagleHead:
    """A head: its layer's config, its tensors, after which layers it reads states, and the tokens that it drafts."""

    config: LlamaConfig
    weights: dict[str, Tensor]
    layers: tuple[int, ...]
    tokens: Tensor


def layer_of(target: LlamaConfig) -> LlamaConfig:
    return replace(target, num_layers=1, num_kv_heads=1, intermediate_size=40)


def random_head(
    seed: int, target: LlamaConfig, *, vocabulary: int = 0, layers: tuple[int, ...] = (1, 2, 3)
) -> EagleHead:
    """Return a head over `vocabulary` tokens of the target's, 0: all, in an order of their own."""
    config, generator = layer_of(target), torch.Generator().manual_seed(seed)
    hidden, inner, width = config.hidden_size, config.intermediate_size, config.head_dim
    vocabulary = vocabulary or target.vocab_size
    shapes = {
        "fc": (hidden, len(layers) * hidden),
        f"{LAYER}self_attn.q_proj": (config.num_heads * width, 2 * hidden),
        f"{LAYER}self_attn.k_proj": (config.num_kv_heads * width, 2 * hidden),
        f"{LAYER}self_attn.v_proj": (config.num_kv_heads * width, 2 * hidden),
        f"{LAYER}self_attn.o_proj": (hidden, config.num_heads * width),
        f"{LAYER}mlp.gate_proj": (inner, hidden),
        f"{LAYER}mlp.up_proj": (inner, hidden),
        f"{LAYER}mlp.down_proj": (hidden, inner),
        "lm_head": (vocabulary, hidden),
    }
    shapes |= {f"{LAYER}{name}": (hidden,) for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")}
    shapes["norm"] = (hidden,)
    weights = {
        f"{name}.weight": torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if len(shape) > 1 else 1)
        for name, shape in shapes.items()
    }
    tokens = torch.randperm(target.vocab_size, generator=generator)[:vocabulary].sort().values
    return EagleHead(config, weights, layers, tokens)


def write_eagle_head(folder: Path, head: EagleHead, form: Form = "vllm", **changes: Any) -> Path:
    """Write a head in one of its published forms; `changes` are to its config."""
    layer = head.config
    described = {
        "model_type": "llama", "hidden_size": layer.hidden_size, "intermediate_size": layer.intermediate_size,
        "num_hidden_layers": 1, "num_attention_heads": layer.num_heads, "num_key_value_heads": layer.num_kv_heads,
        "head_dim": layer.head_dim, "vocab_size": layer.vocab_size, "rms_norm_eps": layer.rms_norm_eps,
        "max_position_embeddings": layer.max_position_embeddings, "rope_theta": layer.rope_theta, "hidden_act": "silu",
    }  # fmt: skip
    own = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(head.tokens),
        "eagle_aux_hidden_state_layer_ids": list(head.layers),
        "norm_before_residual": False,
    }
    tensors = dict(head.weights)
    if len(head.tokens) < layer.vocab_size:
        tensors["d2t"] = head.tokens - torch.arange(len(head.tokens))
        tensors["t2d"] = torch.isin(torch.arange(layer.vocab_size), head.tokens)
    folder.mkdir(parents=True)
    if form == "speculators":
        tensors = {name.replace(LAYER, "layers.0."): tensor for name, tensor in tensors.items()}
        config = {"speculators_model_type": "eagle3", "transformer_layer_config": described, **own}
    else:
        config = described | own
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")
    if form == "pickled":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder
