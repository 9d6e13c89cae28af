"""The forward of `Llama` in int8, and the products beside it, by our own kernels (native/).

Weights are int8 with a scale for each output channel, activations int8 with one for each row and 64 inputs; all else is
float32. A node's hidden state is the same to the last bit whatever is read with it, so speculation is lossless without
a caveat.

The kernels take widths that are multiples of 64, and of 16 for heads: other weights are padded with zeros. What is
padded computes the same: a zero adds nothing to a product, and where a mean or a scale counts the width, the weights
beside it are multiplied by what the count is off. A model whose widths fit is left as it is, to the last bit.
"""

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear, LmHead
from service.decoding.llama import ForwardInput, ForwardStoppedError, Interruption, rotary_table
from service.decoding.llama_config import LlamaConfig
from service.decoding.native.library import AttentionParts, SequenceStruct, Shape

GROUP = 64  # inputs that share a scale, as in native/activations.h
LANES = 16
LAYER_WEIGHTS = (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
    "mlp.down_proj", "input_layernorm", "post_attention_layernorm",
)  # fmt: skip

_STRIP = 32  # outputs that the kernels multiply together, at most
# Cost of one more row over that of a forward of one row, from 4 rows on: where rows fill the multipliers, fewer of them
# are worth drafting. Measured on a Zen 5 core; from 0.06 to 0.2 the mean plan of a Zen 4 differs by 4%. neon's is an
# estimate from its instructions' throughput.
ROW_COSTS = {"avx512vnni": 0.1, "avxvnni": 0.2, "neon": 0.3, "avx2": 0.4}


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


class NativeLinear(Linear):
    """The product `x -> x @ weight.T` in int8, float32 in and out, for a weight [out, in] of any width."""

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        """Quantise and lay out the weight. Raises MemoryError."""
        self.dtype = torch.float32
        self._outputs, inputs = weight.shape
        self._inputs = above(inputs)
        full = pad_last(weight.float(), self._inputs)
        full = F.pad(full, (0, 0, 0, -self._outputs % _STRIP)).contiguous()
        self._library = library
        self._rows = full.shape[0]
        self._matrix = library.peakplan_matrix_create(self._rows, self._inputs, full.data_ptr())
        if not self._matrix:
            raise MemoryError(f"no memory for a weight of {self._outputs} by {inputs}")
        weakref.finalize(self, library.peakplan_matrix_destroy, self._matrix)

    def __call__(self, x: Tensor) -> Tensor:  # [rows, in] -> [rows, out]
        x = pad_last(x.float(), self._inputs).contiguous()
        out = torch.empty((x.shape[0], self._rows))
        if self._library.peakplan_matrix_multiply(self._matrix, x.data_ptr(), x.shape[0], out.data_ptr()):
            raise MemoryError(f"no memory for a product of {x.shape[0]} rows")
        return out[:, : self._outputs]

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        return residual + self(x)


class NativeLmHead(LmHead):
    """An LM head: some tokens' logits from bfloat16 weights, read where they lie, and whole rows in int8.

    A whole row is needed where a grammar leaves much open, and only finds the tokens worth a logit (`HiddenScores`).
    Few processors multiply bfloat16 fast: 4 rows of 49,152 tokens took torch 23 ms with AVX2, and take int8 2 ms.
    """

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        """Take `weight` [V, H]. Raises MemoryError."""
        super().__init__(pad_last(weight.bfloat16(), above(weight.shape[1])).contiguous())
        self._library = library
        # Made here and not when first wanted: replicas that are forked then share it.
        self._rows = NativeLinear(weight, library)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Return logits like `LmHead.logits`; whole rows [N, V] have int8's error of some percent."""
        if token_ids is None:
            return self._rows(hidden)
        return super().logits(self._padded(hidden), token_ids)

    def of_tokens(self, hidden: Tensor, token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.empty(token_ids.size, np.float32)
        token_ids = np.ascontiguousarray(token_ids)
        state = self._padded(hidden).float().contiguous()  # held until the call returns
        self._library.peakplan_scores(
            self._weight.data_ptr(),
            self._weight.shape[1],
            state.data_ptr(),
            token_ids.ctypes.data,
            token_ids.size,
            scores.ctypes.data,
        )
        return scores

    def _padded(self, hidden: Tensor) -> Tensor:
        """Return states [..., H] as wide as the weight's rows."""
        return pad_last(hidden, self._weight.shape[1])


class NativeLlama:
    """A Llama model in the library's layout; one thread, one forward at a time. See `Llama` for the contract."""

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor], library: ctypes.CDLL) -> None:
        """Take `weights` under Hugging Face's parameter names. Raises MemoryError, or KeyError for a missing one."""
        self.config = config
        self._widths = KernelWidths.of(config)
        padded = self._widths.padded
        self.precision = "int8"
        self.kernel: str = library.peakplan_target().decode()
        self.row_cost = ROW_COSTS.get(self.kernel, 0.0)
        self.is_row_independent = True
        self.device = torch.device("cpu")
        self._library = library
        shape = Shape(
            padded.hidden_size,
            padded.intermediate_size,
            padded.num_layers,
            padded.num_heads,
            padded.num_kv_heads,
            padded.head_dim,
            self._widths.epsilon,
        )
        self._model = library.peakplan_create(ctypes.byref(shape))
        if not self._model:
            raise MemoryError("no memory for the model's weights")
        weakref.finalize(self, library.peakplan_destroy, self._model)
        for index in range(config.num_layers):
            self._set_layer(index, weights)
        norm = self._widths.norm(weights["model.norm.weight"].float()).contiguous()
        library.peakplan_set_norm(self._model, norm.data_ptr())
        self._embedding = weights["model.embed_tokens.weight"].bfloat16()  # [V, H]
        output = self._embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.lm_head: LmHead = NativeLmHead(output, library)
        self._rotary = self._widths.rotary(rotary_table(config, self.device))

    def new_cache(self, max_positions: int) -> KVCache:
        """Return an empty cache for `max_positions` tokens, prompt and tree nodes included."""
        shape = (self.config.num_layers, 2, self.config.num_kv_heads, max_positions, self._widths.padded.head_dim)
        return KVCache(torch.zeros(shape))

    def stop_when(self, interruption: Interruption) -> None:
        self._library.peakplan_stop_when(self._model, interruption.socket, interruption.seconds_left)

    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Return float32 hidden states [N, H], after the final norm, of N new nodes; arguments as in `Llama`."""
        return self.forward_batch([ForwardInput(tokens, positions, cache, mask)])[0]

    @torch.inference_mode()
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Tensor]:
        """Read the weights once for the rows of all requests, whose states are those of forwards of their own."""
        counts = [each.tokens.shape[0] for each in inputs]
        masks = [_mask(each.mask, count) for each, count in zip(inputs, counts, strict=True)]
        sequences = (SequenceStruct * len(inputs))()
        for at, (each, count, mask) in enumerate(zip(inputs, counts, masks, strict=True)):
            cache = each.cache
            if cache.length + count > cache.capacity:
                raise ValueError(f"{count} nodes after {cache.length} positions overflow a cache of {cache.capacity}")
            sequences[at] = SequenceStruct(count, mask.data_ptr(), cache.data.data_ptr(), cache.capacity, cache.length)
        hidden = self._padded(
            F.embedding(torch.cat([each.tokens for each in inputs]), self._embedding).float()
        )  # overwritten
        rotary = self._rotary.index_select(0, torch.cat([each.positions for each in inputs]))  # [N, 2, head_dim]
        failed = self._library.peakplan_forward_batch(
            self._model, hidden.data_ptr(), rotary.data_ptr(), sequences, len(inputs)
        )
        if failed > 0:
            raise ForwardStoppedError
        if failed:
            raise MemoryError(f"no memory for a forward of {sum(counts)} nodes")
        return list(self._cut(hidden).split_with_sizes(counts))

    def linear(self, weight: Tensor) -> Linear:
        """Return a product with another weight [out, in], such as the heads', computed as this model's own are."""
        return NativeLinear(weight, self._library)

    def _padded(self, hidden: Tensor) -> Tensor:
        """Return hidden states [N, H] as wide as the kernels compute them."""
        return pad_last(hidden, self._widths.padded.hidden_size)

    def _cut(self, hidden: Tensor) -> Tensor:
        """Return the kernels' hidden states as [N, H] again."""
        width = self.config.hidden_size
        return hidden if hidden.shape[1] == width else hidden[:, :width].contiguous()

    def _set_layer(self, index: int, weights: Mapping[str, Tensor]) -> None:
        full = [weight.contiguous() for weight in self._widths.layer(weights, index)]
        pointers = (ctypes.c_void_p * len(full))(*(weight.data_ptr() for weight in full))
        parts = {name: part.contiguous() for name, part in self._widths.attention_parts(weights, index).items()}
        beyond = AttentionParts(
            **{name: part.data_ptr() for name, part in parts.items()},
            head_epsilon=self._widths.head_epsilon,
            rotates=index not in self.config.unrotated_layers,
        )
        if self._library.peakplan_set_layer(self._model, index, pointers) or self._library.peakplan_set_attention(
            self._model, index, ctypes.byref(beyond)
        ):
            raise MemoryError(f"no memory for layer {index}")


def _mask(mask: Tensor | None, count: int) -> Tensor:
    """Return what `count` new nodes see of each other, as the library reads it; None is causal."""
    return torch.ones((count, count), dtype=torch.bool).tril_() if mask is None else mask.contiguous()
