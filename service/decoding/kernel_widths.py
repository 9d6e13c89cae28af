"""Weights laid out for kernels whose widths are multiples of 64 and whose heads are multiples of 16: padded with zeros.

What is padded computes the same: a zero adds nothing to a product, and where a mean or a scale counts the width, the
weights beside it are multiplied by what the count is off. A model whose widths fit is left as it is, to the last bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from service.decoding.llama_config import LlamaConfig

GROUP = 64  # inputs that share a scale, as in native/activations.h
LANES = 16
LAYER_WEIGHTS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
    "mlp.down_proj", "input_layernorm", "post_attention_layernorm",
)  # fmt: skip


def above(width: int, multiple: int = GROUP) -> int:
    """Return the least multiple that is no less than `width`."""
    return -(-width // multiple) * multiple


def pad_last(tensor: Tensor, width: int) -> Tensor:
    """Return a tensor [..., W] as [..., width]; the tensor itself where it is as wide."""
    return tensor if tensor.shape[-1] == width else F.pad(tensor, (0, width - tensor.shape[-1]))


@dataclass(frozen=True)
class KernelWidths:
    """A model's architecture as it is, and as the kernels compute it."""

    own: LlamaConfig
    padded: LlamaConfig

    @classmethod
    def of(cls, config: LlamaConfig) -> "KernelWidths":
        """Choose the narrowest heads that fit: all of them together are a multiple of 64 wide, too."""
        head_dim = above(config.head_dim, LANES)
        while config.num_heads * head_dim % GROUP:
            head_dim += LANES
        hidden, inner = above(config.hidden_size), above(config.intermediate_size)
        return cls(config, replace(config, hidden_size=hidden, intermediate_size=inner, head_dim=head_dim))

    @property
    def epsilon(self) -> float:
        """What the norms of hidden states add to a mean over the padded width."""
        return self.own.rms_norm_eps * self._hidden_share

    @property
    def head_epsilon(self) -> float:
        """The same for the norms of heads."""
        return self.own.rms_norm_eps * self._head_share

    @property
    def _hidden_share(self) -> float:
        return self.own.hidden_size / self.padded.hidden_size

    @property
    def _head_share(self) -> float:
        return self.own.head_dim / self.padded.head_dim

    def layer(self, weights: Mapping[str, Tensor], index: int) -> list[Tensor]:
        """Return the float32 weights of a layer in the order of LAYER_WEIGHTS."""
        query, key, value, output, gate, up, down, before, after = (
            weights[f"model.layers.{index}.{name}.weight"].float() for name in LAYER_WEIGHTS
        )
        hidden, inner = self.padded.hidden_size, self.padded.intermediate_size
        return [
            *(pad_last(each, hidden) for each in (self._queries(query), self._heads(key), self._heads(value))),
            pad_last(self._heads(output.T), hidden).T,
            *(pad_last(pad_last(each, hidden).T, inner).T for each in (gate, up)),
            pad_last(pad_last(down, inner).T, hidden).T,
            self.norm(before),
            self.norm(after),
        ]

    def attention_parts(self, weights: Mapping[str, Tensor], index: int) -> dict[str, Tensor]:
        """Return what a layer's attention has beyond Llama's, by the names of `AttentionParts`, in float32."""
        prefix = f"model.layers.{index}.self_attn."
        parts: dict[str, Tensor] = {}
        if self.own.qkv_bias:
            query, key, value = (weights[f"{prefix}{name}_proj.bias"].float()[:, None] for name in "qkv")
            parts["qkv_bias"] = torch.cat([self._queries(query), self._heads(key), self._heads(value)])[:, 0]
        if self.own.output_bias:
            parts["output_bias"] = pad_last(weights[f"{prefix}o_proj.bias"].float(), self.padded.hidden_size)
        if self.own.qk_norm:
            query, key = (self._heads(weights[f"{prefix}{name}_norm.weight"].float()[:, None])[:, 0] for name in "qk")
            parts |= {"query_norm": query, "key_norm": key * self._head_share**0.5}  # a query's two factors are one
        return parts

    def norm(self, weight: Tensor) -> Tensor:
        """Return the weight [H] of a norm of hidden states as [padded H]."""
        if self._hidden_share == 1:
            return weight
        return pad_last(weight * self._hidden_share**0.5, self.padded.hidden_size)

    def rotary(self, table: Tensor) -> Tensor:
        """Return cosines and sines [positions, 2, head_dim] for padded heads."""
        by_head = self._heads(table.flatten(0, 1).T).T
        return by_head.reshape(-1, 2, self.padded.head_dim)

    def _queries(self, rows: Tensor) -> Tensor:
        """Return the rows of queries padded; their scores are divided by the root of the padded width."""
        scale = 1.0 if self.own.qk_norm else self._head_share**-0.5
        return self._heads(rows if scale == 1 else rows * scale)

    def _heads(self, rows: Tensor) -> Tensor:
        """Return rows [any number of heads x head_dim, W] with each half of a head, which rotates by pairs, padded."""
        if self._head_share == 1:
            return rows
        half, more = self.own.head_dim // 2, (self.padded.head_dim - self.own.head_dim) // 2
        return F.pad(rows.reshape(-1, half, rows.shape[1]), (0, 0, 0, more)).flatten(0, 1)
