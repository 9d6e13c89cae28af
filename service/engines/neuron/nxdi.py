"""The only file that imports NxDI: which of its classes computes a model, our graph in it, compiling and loading.

NxDI's Medusa graph multiplies its rows by the LM head and by a copy of it for each head, 283 MB a step where the layers
of our model are 212, and returns the best ten tokens of each. Ours returns the states themselves (15 KB of 13 rows):
the host multiplies what the grammar allows (`forward.py`). So the graph has neither LM head nor heads, and a batch
needs no more than a mask of its own for each sequence, which NxDI's takes from the first. Nor does it move keys and
values in its cache, which the loop never asks for: a gather and a scatter of the whole cache a layer are left out.

NxDI's plain graph of `speculation_length` rows is changed in one thing alone: where it would multiply states by the LM
head, it returns them. It is there for the case that Neuron's compiler takes it and not the other.

Read in NxDI 0.8 (models/llama, models/qwen2, models/qwen3; `_medusa_forward` in models/model_base.py,
modules/kvcache/kv_cache_manager.py). `peakplan bench neuron-conformance` proves it on a CPU; not run on hardware.
NxDI's import alone costs seconds and needs its packages, so it happens inside the functions.
"""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from torch import Tensor, nn

from service.decoding.llama_config import LlamaConfig
from service.engines.neuron.configuration import WEIGHT_LAYOUT
from service.engines.neuron.forward import CompiledModel

_LLAMA = "llama.modeling_llama:NeuronLlamaForCausalLM"
# Mistral is Llama to NxDI, too; SmolLM3 it has not, and is Llama but for the layers that have no position.
_CLASSES = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "smollm3": _LLAMA,
    "qwen2": "qwen2.modeling_qwen2:NeuronQwen2ForCausalLM",
    "qwen3": "qwen3.modeling_qwen3:NeuronQwen3ForCausalLM",
}

LM_HEAD = "lm_head.weight"
_CONFIG = "neuron_config.json"
_PACKAGE = "neuronx_distributed_inference"


def nxdi_class(model_type: str) -> Any:
    """Return NxDI's class for a model_type that `LlamaConfig` knows."""
    return resolve_name(f"{_PACKAGE}.models.{_CLASSES[model_type]}")


def architecture_problems(config: LlamaConfig, sequence_length: int, *, int8: bool = False) -> Iterator[str]:
    """Yield what NxDI would compute otherwise, silently, than the checkpoint says."""
    kind, scaling = config.model_type, config.rope_scaling
    if scaling is not None and (kind not in ("llama", "mistral") or scaling.kind != "llama3"):
        yield f"the rotary embedding of type {scaling.kind!r} of a {kind} is not in NxDI 0.8: serve it on processors"
    if kind == "qwen2" and config.num_heads * config.head_dim != config.hidden_size:
        taken = config.hidden_size // config.num_heads
        yield f"NxDI 0.8 takes a qwen2's heads for {taken} wide, not {config.head_dim}: serve it on processors"
    if kind == "qwen3" and config.qkv_bias:
        yield "NxDI 0.8 leaves out the attention bias of a qwen3: serve it on processors"
    if int8 and (config.qkv_bias or config.output_bias):
        yield f"NxD 2.28 cannot shard the attention bias of a {kind} whose weights are int8: leave out --int8"
    if sequence_length > config.longest_sequence:
        yield (
            f"sequence_length {sequence_length} is more than the {config.longest_sequence} positions that the model "
            "attends to: lower it"
        )


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


def _model_class(stock_model: Any, unrotated_layers: Sequence[int]) -> Any:
    """Return NxDI's model with our graph, without an LM head."""

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

    return PlannerModel


def planner_class(stock: Any, unrotated_layers: Sequence[int] = (), *, weight_layout: bool = False) -> Any:
    """Return a causal language model class of NxDI's with our graph; `unrotated_layers` have no position (NoPE).

    The same for every architecture: what they have in common is NxDI's base class, whose Medusa method is replaced.
    With `weight_layout` the compiler chooses the weights' layout for the step, which stock NxDI has it do for the plain
    graph and not for Medusa's.
    """

    class Planner(stock):  # type: ignore[misc]
        _model_cls = _model_class(stock._model_cls, unrotated_layers)

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


class Driver(Protocol):
    """Compiling and loading with NxDI; tests replace it with their own."""

    def compile(self, checkpoint: Path, output: Path, arguments: Mapping[str, Any]) -> None:
        """Compile a Hugging Face checkpoint with its heads into `output`, which takes minutes."""
        ...

    def load(self, compiled: Path) -> CompiledModel:
        """Load the output of `compile` onto the NeuronCores that this process sees."""
        ...


class Nxdi:
    """The driver for the installed neuronx-distributed-inference."""

    def compile(self, checkpoint: Path, output: Path, arguments: Mapping[str, Any]) -> None:
        model = self.model(checkpoint.absolute(), arguments)
        # The choice of a layout writes its graph into the current folder.
        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            model.compile(f"{output.absolute()}/")

    def model(self, checkpoint: Path, arguments: Mapping[str, Any], *, stock: bool = False) -> Any:
        """Return NxDI's model of a checkpoint, neither compiled nor loaded, with our graph or, `stock`, its own."""
        configuration = import_module(f"{_PACKAGE}.models.config")
        llama = import_module(f"{_PACKAGE}.models.llama.modeling_llama")
        adapter = import_module(f"{_PACKAGE}.utils.hf_adapter")
        llama.NeuronLlamaAttention.get_rope = rope_in_float32(llama)
        own = {name: value for name, value in arguments.items() if name != WEIGHT_LAYOUT}
        if "on_device_sampling_config" in own:
            own["on_device_sampling_config"] = configuration.OnDeviceSamplingConfig(**own["on_device_sampling_config"])
        if arguments.get("quantized"):
            own["quantized_checkpoints_path"] = str(checkpoint)  # whose weights already are (`quantise_checkpoint`)
        described = LlamaConfig.from_dict(json.loads((checkpoint / "config.json").read_text(encoding="utf-8")))
        its_class = nxdi_class(described.model_type)
        neuron = its_class.get_neuron_config_cls()(**own)
        config = its_class.get_config_cls()(neuron, load_config=adapter.load_pretrained_config(str(checkpoint)))
        if not stock:
            layout = bool(arguments.get(WEIGHT_LAYOUT))
            its_class = planner_class(its_class, described.unrotated_layers, weight_layout=layout)
        return its_class(str(checkpoint), config)

    def load(self, compiled: Path) -> CompiledModel:
        """Load what `compile` wrote; its configuration says which of NxDI's models it is."""
        written = json.loads((compiled / _CONFIG).read_text(encoding="utf-8"))
        unrotated = [index for index, rotates in enumerate(written.get("no_rope_layers") or ()) if not rotates]
        model = planner_class(nxdi_class(written["model_type"]), unrotated)(f"{compiled}/")
        model.load(f"{compiled}/")
        ready: CompiledModel = model
        return ready


NXDI = Nxdi()


def rope_in_float32(llama: Any) -> Callable[[Any, Any], Any]:
    """Return `NeuronLlamaAttention.get_rope` with NxDI's own rotary embedding for Medusa models, too.

    For those alone NxDI takes Hugging Face's, whose frequencies are a buffer that loading casts to bfloat16: 0.6 rad
    off at position 400. Its own computes them in float32 when it is first called, after the cast (tests/conformance).
    """
    now = llama.NeuronLlamaAttention.get_rope
    stock = getattr(now, "stock", now)

    def get_rope(self: Any, config: Any) -> Any:
        if not config.neuron_config.is_medusa or getattr(config, "rope_scaling", None):
            return stock(self, config)
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        longest, base = config.max_position_embeddings, config.rope_theta
        return llama.RotaryEmbedding(width, max_position_embeddings=longest, base=base)

    get_rope.stock = stock  # type: ignore[attr-defined]
    return get_rope
