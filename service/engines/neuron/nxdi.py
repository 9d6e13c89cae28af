"""The only file that imports NxDI: compile a checkpoint, load what was compiled. Not run on hardware.

NxDI's import alone costs seconds and needs its packages, so it happens inside the functions.
"""

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from service.decoding.llama_config import LlamaConfig
from service.engines.neuron.architectures import nxdi_class
from service.engines.neuron.configuration import WEIGHT_LAYOUT
from service.engines.neuron.forward import CompiledModel
from service.engines.neuron.graph import planner_class

_CONFIG = "neuron_config.json"
_PACKAGE = "neuronx_distributed_inference"


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
            own["quantized_checkpoints_path"] = str(checkpoint)  # whose weights already are (`quantising.py`)
        described = LlamaConfig.from_dict(json.loads((checkpoint / "config.json").read_text(encoding="utf-8")))
        its_class = nxdi_class(described.model_type).load()
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
        model = planner_class(nxdi_class(written["model_type"]).load(), unrotated)(f"{compiled}/")
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
