"""The one description of a model's architecture: Llama and what its relatives add to it or leave out.

`from_dict` reads it from any form of config.json that transformers has written: 4.x with `rope_theta` and
`rope_scaling` at the top, 5.x with `rope_parameters`. What is computed otherwise is refused by name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

DEFAULT_ROPE_THETA = 10_000.0
RopeKind = Literal["linear", "llama3"]

# What a config.json of each type means where it says nothing, in transformers 4 and 5 alike.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 4096, "num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
    "smollm3": {"num_key_value_heads": 4, "tie_word_embeddings": True},
}
_NULL_IS_AN_ANSWER = ("sliding_window", "num_key_value_heads")  # none, and as many as there are heads
_THETAS = {"smollm3": 2_000_000.0}
MODEL_TYPES = tuple(_DEFAULTS)
# Fields by which relatives compute otherwise, and the values that leave Llama's result as it is.
_ELSEWHERE: Mapping[str, tuple[Any, ...]] = {
    "mlp_bias": (False,),
    "partial_rotary_factor": (1,),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "embedding_multiplier": (1,),
    "attention_multiplier": (),
    "residual_multiplier": (1,),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "query_pre_attn_scalar": (),
    "clip_qkv": (),
    "num_local_experts": (0, 1),
    "num_experts": (0,),
    "attention_chunk_size": (),
}
_ATTENTIONS = ("full_attention", "sliding_attention")


@dataclass(frozen=True)
class RopeScaling:
    """Angles slower than RoFormer's: all by `factor`, or as Llama 3 has it, those of long waves only.

    Of `llama3`, waves longer than original_positions / low_freq_factor are slowed, shorter than original_positions /
    high_freq_factor are not, and those between in part.
    """

    kind: RopeKind
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_positions: int = 8192

    def slowed(self, frequency: float) -> float:
        """Return a frequency (radians a position) as it is scaled."""
        if self.kind == "linear":
            return frequency / self.factor
        turns = self.original_positions * frequency / (2 * math.pi)  # in the context that it was trained with
        if turns > self.high_freq_factor:
            return frequency
        if turns < self.low_freq_factor:
            return frequency / self.factor
        share = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (1 - share) * frequency / self.factor + share * frequency


@dataclass(frozen=True)
class LlamaConfig:
    """The architecture of a Llama or a relative, in Hugging Face's names without their prefixes.

    `sliding_window` is how many positions the narrowest layer attends to, None: all. `unrotated_layers` have no
    position in their attention (NoPE).
    """

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
    model_type: str = "llama"
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None
    unrotated_layers: tuple[int, ...] = ()

    @property
    def longest_sequence(self) -> int:
        """How many positions prompt, plan and draft may take: below it no window is ever felt."""
        return min(self.max_position_embeddings, self.sliding_window or self.max_position_embeddings)

    @property
    def rope_frequencies(self) -> list[float]:
        """Radians a position of each pair of a head's dimensions, [head_dim / 2]."""
        plain = [self.rope_theta ** -(index / self.head_dim) for index in range(0, self.head_dim, 2)]
        return [self.rope_scaling.slowed(each) for each in plain] if self.rope_scaling else plain

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> "LlamaConfig":
        """Read a Hugging Face config.json. Raises KeyError or ValueError, naming what is missing or unknown here."""
        kind = config.get("model_type") or MODEL_TYPES[0]
        if kind not in MODEL_TYPES:
            known = f"{', '.join(MODEL_TYPES[:-1])} and {MODEL_TYPES[-1]}"
            raise ValueError(f"model_type {kind!r} is not served; {known} are")
        given = {**_DEFAULTS[kind], **{name: value for name, value in config.items() if value is not None}}
        given |= {name: config[name] for name in _NULL_IS_AN_ANSWER if name in config}
        _refuse_unknown(given)
        heads, layers = given["num_attention_heads"], given["num_hidden_layers"]
        theta, scaling = _rope(given)
        biased = bool(given.get("attention_bias"))
        return cls(
            hidden_size=given["hidden_size"],
            intermediate_size=given["intermediate_size"],
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=given.get("num_key_value_heads") or heads,
            head_dim=given.get("head_dim") or given["hidden_size"] // heads,
            vocab_size=given["vocab_size"],
            rms_norm_eps=given["rms_norm_eps"],
            rope_theta=theta,
            max_position_embeddings=given["max_position_embeddings"],
            tie_word_embeddings=given.get("tie_word_embeddings", False),
            model_type=kind,
            qkv_bias=biased or kind == "qwen2",
            output_bias=biased and kind != "qwen2",
            qk_norm=kind == "qwen3",
            rope_scaling=scaling,
            sliding_window=_window(given, kind),
            unrotated_layers=_unrotated(given, layers) if kind == "smollm3" else (),
        )

    def rope_fields(self) -> dict[str, Any]:
        """Return the rotary embedding's fields of a config.json as transformers 4 and 5, and so NxDI, read it."""
        scaling = self.rope_scaling
        form: dict[str, Any] = {"rope_type": scaling.kind if scaling else "default"}
        if scaling:
            form["factor"] = scaling.factor
        if scaling and scaling.kind == "llama3":
            form |= {
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_positions,
            }
        return {
            "rope_theta": self.rope_theta,
            "rope_scaling": form if scaling else None,
            "rope_parameters": {"rope_theta": self.rope_theta, **form},
        }


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    """Raise ValueError for what this forward does not compute."""
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"this forward does not support the activation {config['hidden_act']!r}")
    for name, neutral in _ELSEWHERE.items():
        if name in config and config[name] not in neutral:
            raise ValueError(f"this forward does not support {name} ({config[name]!r})")
    if unknown := sorted(set(config.get("layer_types") or ()) - set(_ATTENTIONS)):
        raise ValueError(f"this forward does not support layers of type {', '.join(map(repr, unknown))}")
    if config["num_attention_heads"] % (config.get("num_key_value_heads") or config["num_attention_heads"]):
        raise ValueError(
            f"{config['num_attention_heads']} attention heads cannot share {config['num_key_value_heads']} of keys"
        )


def _rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """Return the base of the angles and their scaling. Raises ValueError where two forms disagree, or for others."""
    newer: Mapping[str, Any] = config.get("rope_parameters") or {}
    by_layer = {name: part for name, part in newer.items() if name in _ATTENTIONS and part}
    if by_layer:
        first, *others = by_layer.values()
        if any(other != first for other in others):
            raise ValueError("this forward does not support rotary embeddings that differ between layers")
        newer = first
    older: Mapping[str, Any] = config.get("rope_scaling") or {}
    named = {"rope_parameters.rope_theta": newer, "rope_scaling.rope_theta": older, "rope_theta": config}
    told = {name: float(part["rope_theta"]) for name, part in named.items() if part.get("rope_theta")}
    if len(set(told.values())) > 1:
        raise ValueError(" and ".join(f"{name} {theta:g}" for name, theta in told.items()) + " contradict each other")
    theta = next(iter(told.values()), _THETAS.get(config.get("model_type", ""), DEFAULT_ROPE_THETA))
    scalings = [_scaling(part, config) for part in (newer, older) if part]
    if len(scalings) > 1 and scalings[0] != scalings[1]:
        raise ValueError("rope_parameters and rope_scaling contradict each other")
    return theta, scalings[0] if scalings else None


def _scaling(rope: Mapping[str, Any], config: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", 1) != 1:
        raise ValueError(f"this forward does not support partial_rotary_factor ({rope['partial_rotary_factor']!r})")
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", float(rope["factor"]))
    if kind != "llama3":
        raise ValueError(
            f"this forward does not support a rotary embedding of type {kind!r} (default, linear and llama3 it does). "
            "Where its scaling is for texts longer than the model was trained with, as Qwen's yarn is, leave "
            "rope_scaling out of config.json"
        )
    return RopeScaling(
        "llama3",
        float(rope["factor"]),
        float(rope["low_freq_factor"]),
        float(rope["high_freq_factor"]),
        int(rope.get("original_max_position_embeddings") or config["max_position_embeddings"]),
    )


def _window(config: Mapping[str, Any], kind: str) -> int | None:
    """Return how many positions the narrowest layer sees; None where every layer sees all."""
    is_used = config.get("use_sliding_window", kind in ("llama", "mistral"))
    window: int | None = config.get("sliding_window")
    layer_types = config.get("layer_types")
    if layer_types is not None and "sliding_attention" not in layer_types and kind != "mistral":
        return None
    return window if is_used and window else None


def _unrotated(config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    interval = config.get("no_rope_layer_interval", 4)
    rotates = config.get("no_rope_layers") or [(index + 1) % interval for index in range(layers)]  # 0: it does not
    return tuple(index for index in range(layers) if not rotates[index])
