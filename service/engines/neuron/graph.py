"""What our graph computes in NxDI's place: hidden states of every row, and no product with the vocabulary.

NxDI's Medusa graph multiplies its rows by the LM head and by a copy of it for each head, 283 MB a step where the layers
of our model are 212, and returns the best ten tokens of each. Here it returns the states themselves (15 KB of 13 rows):
the host multiplies what the grammar allows (`forward.py`). So the graph has neither LM head nor heads, and a batch
needs no more than a mask of its own for each sequence, which NxDI's takes from the first. Nor does it move keys and
values in its cache, which the loop never asks for: a gather and a scatter of the whole cache a layer are left out. Read
in NxDI 0.8 (`_medusa_forward` in models/model_base.py, `NeuronLlamaModel` in models/llama/modeling_llama.py,
modules/kvcache/kv_cache_manager.py).

NxDI's plain graph of `speculation_length` rows is changed in one thing alone: where it would multiply states by the LM
head, it returns them. It is there for the case that Neuron's compiler takes it and not the other. Not run on hardware.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

LM_HEAD = "lm_head.weight"


def hidden_states(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    seq_ids: Tensor,
    sampling_params: Tensor,
    adapter_ids: Tensor | None = None,
    _accepted_indices: Tensor | None = None,
    _current_length: Tensor | None = None,
    medusa_mask: Tensor | None = None,
    scatter_index: Tensor | None = None,
) -> list[Tensor]:
    """Return the states of a tree's rows [B, L, H], or of a prompt's last one [B, 1, H], and the updated cache.

    It replaces `NeuronBaseModel._medusa_forward`, with the same arguments.
    """
    del sampling_params
    is_prompt = input_ids.shape[-1] != model.medusa_speculation_length
    assert is_prompt or medusa_mask is not None, "a tree has a mask"
    states, cache = model.get_model_output(
        input_ids=input_ids,
        attention_mask=model.create_attn_mask(attention_mask, is_prompt, False),
        position_ids=position_ids,
        active_mask=None if is_prompt or medusa_mask is None else medusa_mask[:, None].bool(),
        adapter_ids=adapter_ids,
        update_cache=True,
        is_for_context_encoding=is_prompt,
        seq_ids=seq_ids,
        scatter_index=scatter_index,
    )
    if is_prompt:
        last = position_ids.max(dim=1, keepdim=True).indices[..., None]
        states = states.gather(1, last.expand(-1, 1, states.shape[-1]))
    return [states, *cache]


def _as_it_lies(manager: Any, get_cache: Callable[..., Any], **named: Any) -> Any:
    """Return a cache manager's keys and values unmoved."""
    moves, manager.is_medusa = manager.is_medusa, False
    try:
        return get_cache(**named)
    finally:
        manager.is_medusa = moves


def _rows(config: Any) -> int:
    rows: int = config.medusa_speculation_length or config.speculation_length
    return rows


def planner_class(stock: Any, unrotated_layers: Sequence[int] = (), *, weight_layout: bool = False) -> Any:
    """Return a causal language model class of NxDI's with our graph; `unrotated_layers` have no position (NoPE).

    The same for every architecture: what they have in common is NxDI's base class, whose Medusa method is replaced.
    With `weight_layout` the compiler chooses the weights' layout for the step, which stock NxDI has it do for the plain
    graph and not for Medusa's.
    """
    stock_model: Any = stock._model_cls

    class PlannerModel(stock_model):  # type: ignore[misc]
        _medusa_forward = hidden_states

        def init_model(self, config: Any) -> None:
            neuron = config.neuron_config
            heads, neuron.num_medusa_heads = neuron.num_medusa_heads, 0  # made, they must share the vocabulary evenly
            super().init_model(config)
            neuron.num_medusa_heads = heads
            self.medusa_speculation_length = neuron.medusa_speculation_length  # Llama's alone sets it
            self.lm_head = nn.Identity()
            for index in unrotated_layers:
                self.layers[index].self_attn.rotary_emb = None

        def init_inference_optimization(self, config: Any) -> None:
            super().init_inference_optimization(config)
            self.kv_mgr.get_cache = partial(_as_it_lies, self.kv_mgr, self.kv_mgr.get_cache)

    class Planner(stock):  # type: ignore[misc]
        _model_cls = PlannerModel

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            if not hasattr(self, "context_encoding_model"):  # NxDI asks it where its models run
                self.context_encoding_model = self.get_generation_model()

        @staticmethod
        def convert_hf_to_neuron_state_dict(state_dict: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
            state_dict.pop(LM_HEAD, None)
            converted: dict[str, Tensor] = stock.convert_hf_to_neuron_state_dict(state_dict, config)
            return converted

        @staticmethod
        def update_state_dict_for_tied_weights(state_dict: dict[str, Tensor]) -> None:
            """Add no LM head."""

        def enable_context_encoding(self, **named: Any) -> None:
            """Compile prompts' graph where prompts are longer than a step, and of one sequence (forward.py)."""
            config = self.neuron_config
            if config.batch_size == 1 and config.max_context_length > _rows(config):
                super().enable_context_encoding(**named)

        def enable_medusa_speculation(self) -> None:
            super().enable_medusa_speculation()
            if weight_layout:
                self.medusa_speculation_model.priority_model_idx = 0

        def enable_speculation(self, **named: Any) -> None:
            super().enable_speculation(**named | {"enable_wlt_optimization": weight_layout})

        def get_compiler_args(self) -> None:
            """Leave the compiler's arguments to NxDI's wrapper: those of some models of its own name no target."""

        def _is_prefill(self, position_ids: Tensor) -> bool:
            """Tell prompts from trees by their length: a short prompt is a tree that begins at position 0."""
            return position_ids.shape[-1] != _rows(self.neuron_config)

    return Planner
