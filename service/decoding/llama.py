"""Forwards of a Llama-architecture model over static K/V caches, any tree of new positions in each.

It knows tokens and tensors, and nothing of grammars, heads or text. Each layer is about twenty torch operators: at
these sizes calling them costs as much as some of them compute.

A node's hidden state does not depend on what else is read with it, to the last bit where the kernels allow it (packed
products on a CPU): ties then cannot break the losslessness of speculation. Products of packed weights have this
property from two rows on; attention is written to have it: see `_attend`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear, LmHead, linear
from service.decoding.llama_config import LlamaConfig

# With fewer keys MKL sums their products in another order.
FEWEST_KEYS = 16
# Positions whose angles are tabled: more than the longest prompt and plan that the settings allow, and less than models
# that read 131,072 would fill memory with.
MOST_POSITIONS = 8192
# pi / 2 in three parts, the first two of 33 bits: whole numbers of up to 20 bits times them are exact in float64.
_HALF_PI = (float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a6p-34"), float.fromhex("0x1.3198a2e037073p-69"))


class ForwardStoppedError(Exception):
    """Raised by a forward that stopped between two layers. What it has written lies after the kept positions."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """Tells, when called, whether a generation should stop now.

    Compiled kernels, which call no Python, look at `deadline` (on the clock of `time.monotonic`) and at `socket`: a
    descriptor that has something to read, or whose other end is gone, once `cancelled` would return true; -1 for none.
    """

    cancelled: Callable[[], bool] = lambda: False
    deadline: float | None = None
    socket: int = -1

    def __call__(self) -> bool:
        return self.cancelled() or self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()


NEVER = Interruption()


class ForwardInput(NamedTuple):
    """The arguments of one forward: see `Llama.forward`."""

    tokens: Tensor
    positions: Tensor
    cache: KVCache
    mask: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Window:
    """What the `count` new nodes of one cache, padded to `rows`, read and write, layer by layer (`KVCache.window`).

    `bias` [heads per K/V head x rows, keys] is 0 where a row sees a key, else -inf.
    """

    count: int
    rows: int
    layers: list[tuple[Tensor, Tensor, Tensor]]
    bias: Tensor


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Linear  # [heads + 2 kv heads, head_dim] rows, in this order
    output: Linear
    gate_up: Linear  # [2 x intermediate] rows, the gate first
    down: Linear
    qkv_bias: Tensor | None  # [heads + 2 kv heads, head_dim] float32, as all that follows
    output_bias: Tensor | None  # [H]
    head_norms: Tensor | None  # [heads + kv heads, head_dim], of queries and keys
    rotates: bool


class Llama:
    """A Llama model, its weights fused and laid out for this machine; runs on the device of the given weights."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], dtype: torch.dtype) -> None:
        """Take `weights` under Hugging Face's parameter names. Raises KeyError for one that is missing."""
        self.config = config
        self.dtype = dtype
        self.precision = str(dtype).removeprefix("torch.")
        self.kernel = "torch"
        self.row_cost = 0.0
        self.is_row_independent = False  # so few rows are, but not on every processor, nor a prompt's: see `_attend`
        self._embedding = weights["model.embed_tokens.weight"].to(dtype)  # [V, H]
        self.device = self._embedding.device
        self._layers = [_load_layer(config, weights, index, dtype) for index in range(config.num_layers)]
        self._norm = weights["model.norm.weight"].to(dtype)
        self.lm_head = LmHead(self._embedding if config.tie_word_embeddings else weights["lm_head.weight"].to(dtype))
        self._rotary = rotary_table(config, self.device)
        self._interruption = NEVER
        self._least_length = torch.tensor((config.hidden_size * config.rms_norm_eps) ** 0.5, device=self.device)

    def new_cache(self, max_positions: int) -> KVCache:
        """Return an empty cache for `max_positions` tokens, prompt and tree nodes included; always float32."""
        positions = max(max_positions, FEWEST_KEYS)
        shape = (self.config.num_layers, 2, self.config.num_kv_heads, positions, self.config.head_dim)
        return KVCache(torch.zeros(shape, device=self.device))

    def stop_when(self, interruption: Interruption) -> None:
        self._interruption = interruption

    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Return the hidden states [N, H], after the final norm, of N new nodes.

        `tokens` and `positions` are [N] int64. `mask` [N, N] bool says which new nodes each node sees (itself
        included); the cached prefix is always visible; None is causal. Keys and values are written after the cached
        ones, and stay invisible to later calls until `cache.keep`. Raises ValueError when the cache is full.
        """
        return self.forward_batch([ForwardInput(tokens, positions, cache, mask)])[0]

    @torch.inference_mode()
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Tensor]:
        """Do several forwards over caches of their own; all their rows share each product of the layers."""
        windows = [self._window(each.cache, len(each.tokens), each.mask) for each in inputs]
        padding = [(0, window.rows - window.count) for window in windows]
        tokens = torch.cat([F.pad(each.tokens, pad) for each, pad in zip(inputs, padding, strict=True)])
        positions = torch.cat([F.pad(each.positions, pad) for each, pad in zip(inputs, padding, strict=True)])
        states = self._normed(self._run_layers(self._embedding.index_select(0, tokens), positions, windows))
        parts = states.split_with_sizes([window.rows for window in windows])
        return [part[: window.count] for part, window in zip(parts, windows, strict=True)]

    def _run_layers(self, hidden: Tensor, positions: Tensor, windows: Sequence[_Window]) -> Tensor:
        """Run the rows of several windows, one window's after another's, through the layers."""
        cosine, sine = self._rotation(positions)
        rows = [window.rows for window in windows]
        for index, layer in enumerate(self._layers):
            if self._interruption():
                raise ForwardStoppedError
            qkv = self._complete_heads(layer, layer.qkv(self._normalise(hidden)))
            query, fresh = self._rotate(qkv, (cosine, sine) if layer.rotates else None)
            attended = []
            for window, asks, writes in zip(
                windows, query.split_with_sizes(rows), fresh.split_with_sizes(rows), strict=True
            ):
                keys, values, new = window.layers[index]
                new.copy_(writes[: window.count].permute(1, 2, 0, 3))
                attended.append(self._attend(asks, keys, values, window.bias))
            hidden = layer.output.add_to(hidden, torch.cat(attended))
            if layer.output_bias is not None:
                hidden = (hidden + layer.output_bias).to(self.dtype)
            gate, up = layer.gate_up(self._normalise(hidden)).chunk(2, dim=1)
            hidden = layer.down.add_to(hidden, F.silu(gate).mul_(up))
        return hidden

    def _normed(self, hidden: Tensor) -> Tensor:
        return F.rms_norm(hidden, self._norm.shape, self._norm, self.config.rms_norm_eps)

    def linear(self, weight: Tensor) -> Linear:
        """Return a product with another weight [out, in], such as the heads', in that weight's dtype."""
        return linear(weight)

    def _normalise(self, hidden: Tensor) -> Tensor:
        """Compute RMSNorm [rows, H] without its weight, which is folded into the next product (see `_load_layer`).

        A row's root mean square is its length over the root of H, so x / rms(x) is x / |x| up to a constant; `hypot`
        adds the epsilon. This takes four operators where `rms_norm` takes ten, and it was the largest cost after the
        products.
        """
        length = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True, dtype=torch.float32)
        return hidden.div(length.hypot_(self._least_length)).to(self.dtype)

    def _complete_heads(self, layer: _Layer, qkv: Tensor) -> Tensor:
        """Return queries, keys and values [rows, heads + 2 kv heads, D] in float32, with the layer's bias and norms."""
        heads = self.config.num_heads + self.config.num_kv_heads
        qkv = qkv.float().view(-1, heads + self.config.num_kv_heads, self.config.head_dim)
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        if layer.head_norms is not None:
            normed = F.rms_norm(qkv[:, :heads], qkv.shape[-1:], None, self.config.rms_norm_eps) * layer.head_norms
            qkv = torch.cat((normed, qkv[:, heads:]), 1)
        return qkv

    def _rotate(self, qkv: Tensor, angles: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Return rotated queries [rows, heads, D], and rotated keys with values, [rows, 2, kv heads, D]."""
        heads, kv_heads = self.config.num_heads, self.config.num_kv_heads
        if angles is not None:
            cosine, sine = angles
            # All in one operation: the tables hold 1 and 0 for the values.
            qkv = torch.addcmul(qkv * cosine, qkv.roll(self.config.head_dim // 2, -1), sine)
        query, fresh = qkv.split_with_sizes((heads, 2 * kv_heads), 1)
        return query, fresh.view(-1, 2, kv_heads, self.config.head_dim)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """Compute the attention of all heads, [rows, heads x head_dim].

        The query heads that share a K/V head are stacked as rows: one product for each K/V head, and no key is
        repeated.

        This runs in float32, as no bfloat16 kernel is faster for so few rows. The softmax sums in float64, where the
        order of the keys, which rejected nodes between them change, is lost in rounding. Masked keys have weight 0,
        which adds nothing wherever they stand (up to 192 keys, where MKL starts to sum in blocks).
        """
        rows, heads, width = query.shape
        kv_heads = self.config.num_kv_heads
        stacked = query.view(rows, kv_heads, -1, width).permute(1, 2, 0, 3).reshape(kv_heads, -1, width)
        scores = torch.baddbmm(bias, stacked, keys, alpha=width**-0.5)
        attended = torch.bmm(scores.softmax(-1, dtype=torch.float64).float(), values)
        by_row = attended.view(heads, rows, width).transpose(0, 1)
        return by_row.to(self.dtype, memory_format=torch.contiguous_format).reshape(rows, heads * width)

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines, [rows, heads + 2 kv heads, head_dim] each, float32."""
        rotated = self.config.num_heads + self.config.num_kv_heads
        shape = (positions.shape[0], rotated + self.config.num_kv_heads, self.config.head_dim)
        table = self._rotary.index_select(0, positions)  # [rows, 2, head_dim]
        cosine = torch.ones(shape, device=self.device)
        sine = torch.zeros(shape, device=self.device)
        cosine[:, :rotated] = table[:, :1]
        sine[:, :rotated] = table[:, 1:]
        return cosine, sine

    def _window(self, cache: KVCache, count: int, mask: Tensor | None) -> _Window:
        """Return what `count` new nodes see of a cache. Raises ValueError where it is full.

        Padding rows cost nothing where they make the products cheaper. Their keys are never written.
        """
        cached = cache.length
        if cached + count > cache.capacity:
            raise ValueError(f"{count} nodes after {cached} positions overflow a cache of {cache.capacity}")
        rows = max(count, self._layers[0].qkv.cheapest_rows if self._layers else 0)
        keys = max(cached + count, FEWEST_KEYS)
        if mask is None:
            mask = torch.ones((count, count), dtype=torch.bool, device=self.device).tril()
        bias = torch.zeros((rows, keys), device=self.device)
        bias[:count, cached : cached + count].masked_fill_(mask.logical_not(), float("-inf"))
        bias[:, cached + count :] = float("-inf")
        shared = self.config.num_heads // self.config.num_kv_heads
        return _Window(count, rows, cache.window(count, keys), bias.repeat(shared, 1))


def _load_layer(config: LlamaConfig, weights: Mapping[str, Tensor], index: int, dtype: torch.dtype) -> _Layer:
    prefix, heads = f"model.layers.{index}.", (config.num_heads, config.num_kv_heads)

    def weight(name: str) -> Tensor:
        return weights[f"{prefix}{name}.weight"].float()

    def after_norm(norm: str, *names: str) -> Linear:
        """Fuse the products of one normalised input, with the norm's weight and the root of H multiplied in."""
        scale = weight(norm) * weight(norm).shape[0] ** 0.5
        return linear((torch.cat([weight(name) for name in names]) * scale).to(dtype))

    def bias(*names: str) -> Tensor:
        return torch.cat([weights[f"{prefix}self_attn.{name}.bias"].float() for name in names])

    def norms() -> Tensor:
        parts = zip(("q_norm", "k_norm"), heads, strict=True)
        return torch.cat([weight(f"self_attn.{name}").expand(count, -1) for name, count in parts])

    return _Layer(
        qkv=after_norm("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        output=linear(weight("self_attn.o_proj").to(dtype)),
        gate_up=after_norm("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj"),
        down=linear(weight("mlp.down_proj").to(dtype)),
        qkv_bias=bias("q_proj", "k_proj", "v_proj").view(-1, config.head_dim) if config.qkv_bias else None,
        output_bias=bias("o_proj") if config.output_bias else None,
        head_norms=norms() if config.qk_norm else None,
        rotates=index not in config.unrotated_layers,
    )


def rotary_table(config: LlamaConfig, device: torch.device) -> Tensor:
    """Return cosine and sine of each position's angles, [positions, 2, head_dim] float32 (RoFormer, arXiv 2104.09864).

    Llama pairs dimension i with i + head_dim / 2. Rolling a head by half its width brings each one's partner into
    place, so the sines of the first half carry the minus sign of the rotation.
    """
    positions = torch.arange(min(config.max_position_embeddings, MOST_POSITIONS), dtype=torch.float32)
    angles = torch.outer(positions, torch.tensor(config.rope_frequencies, dtype=torch.float32))
    cosine, sine = (table.float().to(device) for table in cosines_and_sines(angles.double()))
    return torch.stack((torch.cat((cosine, cosine), 1), torch.cat((-sine, sine), 1)), 1)


def cosines_and_sines(angles: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of float64 angles from 0 to 10^6, with the same bits on every processor.

    The error is about 10^-16. Only additions and multiplications are used: the cosine that torch and numpy call differs
    between processors.
    """
    quarters = (angles * (2 / math.pi)).round()
    rest = angles
    for part in _HALF_PI:  # Cody and Waite's reduction to [-pi / 4, pi / 4]
        rest = rest - quarters * part
    square = rest * rest
    cosine, sine = torch.ones_like(rest), torch.ones_like(rest)
    for degree in range(16, 0, -2):  # Taylor's series, the smallest term first
        cosine = 1 - cosine * square / (degree * (degree - 1))
        sine = 1 - sine * square / (degree * (degree + 1))
    sine = sine * rest
    turned = quarters.long() % 4
    swapped = turned % 2 == 1
    cosine, sine = torch.where(swapped, sine, cosine), torch.where(swapped, cosine, sine)
    return torch.where((turned == 1) | (turned == 2), -cosine, cosine), torch.where(turned >= 2, -sine, sine)
