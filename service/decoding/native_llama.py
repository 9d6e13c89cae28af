"""The forward of `Llama` in int8, by our own kernels (native/).

Weights are int8 with a scale for each output channel, activations int8 with one for each row and 64 inputs; all else is
float32. A node's hidden state is the same to the last bit whatever is read with it, so speculation is lossless without
a caveat.
"""

import ctypes
import weakref
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from service.decoding.interruption import ForwardStoppedError, Interruption
from service.decoding.kernel_widths import KernelWidths, pad_last
from service.decoding.kv_cache import KVCache
from service.decoding.linear import Linear
from service.decoding.llama import ForwardInput, rotary_table
from service.decoding.llama_config import LlamaConfig
from service.decoding.lm_head import LmHead
from service.decoding.native.library import AttentionParts, SequenceStruct, Shape
from service.decoding.native_products import NativeLinear, NativeLmHead

# Cost of one more row over that of a forward of one row, from 4 rows on: where rows fill the multipliers, fewer of them
# are worth drafting. Measured on a Zen 5 core; from 0.06 to 0.2 the mean plan of a Zen 4 differs by 4%. neon's is an
# estimate from its instructions' throughput.
ROW_COSTS = {"avx512vnni": 0.1, "avxvnni": 0.2, "neon": 0.3, "avx2": 0.4}


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
        """See `CausalLM.stop_when`."""
        self._library.peakplan_stop_when(self._model, interruption.socket, interruption.seconds_left)

    @torch.inference_mode()
    def forward(self, tokens: Tensor, positions: Tensor, cache: KVCache, mask: Tensor | None = None) -> Tensor:
        """Return float32 hidden states [N, H], after the final norm, of N new nodes; arguments as in `Llama`."""
        count = tokens.shape[0]
        _refuse_overflow(cache, count)
        mask = _mask(mask, count)
        hidden = self._padded(self.embed(tokens))  # overwritten by the library
        rotary = self._rotary.index_select(0, positions)  # [N, 2, head_dim]
        failed = self._library.peakplan_forward(
            self._model,
            hidden.data_ptr(),
            count,
            rotary.data_ptr(),
            mask.data_ptr(),
            cache.data.data_ptr(),
            cache.capacity,
            cache.length,
        )
        _refuse_unfinished(failed, count)
        return self._cut(hidden)

    @torch.inference_mode()
    def forward_batch(self, inputs: Sequence[ForwardInput]) -> list[Tensor]:
        """Read the weights once for the rows of all requests, whose states are those of forwards of their own."""
        counts = [each.tokens.shape[0] for each in inputs]
        masks = [_mask(each.mask, count) for each, count in zip(inputs, counts, strict=True)]
        sequences = (SequenceStruct * len(inputs))()
        for at, (each, count, mask) in enumerate(zip(inputs, counts, masks, strict=True)):
            cache = each.cache
            _refuse_overflow(cache, count)
            sequences[at] = SequenceStruct(count, mask.data_ptr(), cache.data.data_ptr(), cache.capacity, cache.length)
        hidden = self._padded(self.embed(torch.cat([each.tokens for each in inputs])))  # overwritten by the library
        rotary = self._rotary.index_select(0, torch.cat([each.positions for each in inputs]))  # [N, 2, head_dim]
        failed = self._library.peakplan_forward_batch(
            self._model, hidden.data_ptr(), rotary.data_ptr(), sequences, len(inputs)
        )
        _refuse_unfinished(failed, sum(counts))
        return list(self._cut(hidden).split_with_sizes(counts))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the first layer's input, [N, H] float32."""
        return F.embedding(tokens, self._embedding).float()

    def linear(self, weight: Tensor) -> Linear:
        """Return a product with another weight [out, in], such as the heads', computed as this model's own are."""
        return NativeLinear(weight, self._library)

    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Return float32 logits: [N, V], or [N, M] of the M `token_ids` only (see `LmHead.logits`)."""
        return self.lm_head.logits(hidden, token_ids)

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


def _refuse_overflow(cache: KVCache, count: int) -> None:
    if cache.length + count > cache.capacity:
        raise ValueError(f"{count} nodes after {cache.length} positions overflow a cache of {cache.capacity}")


def _refuse_unfinished(failed: int, count: int) -> None:
    if failed > 0:
        raise ForwardStoppedError
    if failed:
        raise MemoryError(f"no memory for a forward of {count} nodes")
