"""The shape of a Llama-architecture model, as its config.json tells it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_ROPE_THETA = 10_000.0


@dataclass(frozen=True)
class LlamaConfig:
    """The shape of a Llama model, in Hugging Face's names without their prefixes."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "LlamaConfig":
        """Read a Hugging Face config.json. Raises ValueError for features that this forward does not support."""
        _refuse_unsupported(config)
        rope: Mapping[str, Any] = config.get("rope_parameters") or {}
        heads = config["num_attention_heads"]
        return cls(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            rms_norm_eps=config["rms_norm_eps"],
            rope_theta=config.get("rope_theta") or rope.get("rope_theta") or DEFAULT_ROPE_THETA,
            max_position_embeddings=config["max_position_embeddings"],
            tie_word_embeddings=config.get("tie_word_embeddings", False),
        )


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
    rope: Mapping[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    checks = {
        f"rotary embedding of type {kind!r}": kind != "default",
        f"activation {config.get('hidden_act')!r}": config.get("hidden_act", "silu") != "silu",
        "a bias in attention": bool(config.get("attention_bias")),
        "a bias in the MLP": bool(config.get("mlp_bias")),
    }
    for feature, is_present in checks.items():
        if is_present:
            raise ValueError(f"this Llama forward does not support {feature}")
