"""Which of NxDI 0.8's own model classes computes an architecture, and what of ours none of them does.

Read in NxDI 0.8 (models/llama, models/qwen2, models/qwen3). `peakplan bench neuron-conformance` proves it on a CPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from service.decoding.llama_config import LlamaConfig

_MODELS = "neuronx_distributed_inference.models"


@dataclass(frozen=True, slots=True)
class NxdiClass:
    """A class of NxDI's by the module below its models and its name."""

    module: str
    name: str

    def load(self) -> Any:
        return getattr(import_module(f"{_MODELS}.{self.module}"), self.name)


_LLAMA = NxdiClass("llama.modeling_llama", "NeuronLlamaForCausalLM")
# Mistral is Llama to NxDI, too; SmolLM3 it has not, and is Llama but for the layers that have no position.
_CLASSES = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "smollm3": _LLAMA,
    "qwen2": NxdiClass("qwen2.modeling_qwen2", "NeuronQwen2ForCausalLM"),
    "qwen3": NxdiClass("qwen3.modeling_qwen3", "NeuronQwen3ForCausalLM"),
}


def nxdi_class(model_type: str) -> NxdiClass:
    """Return the class for a model_type that `LlamaConfig` knows."""
    return _CLASSES[model_type]


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
