"""Runs the real NxDI source on a CPU, with stand-ins for its Neuron packages, to test it without the hardware.

    PEAKPLAN_NXDI_SOURCE    checkouts of aws-neuron/neuronx-distributed-inference (tag or commit of SDK 2.28) and
                            aws-neuron/neuronx-distributed, with the path separator between them

NxDI runs its models as plain torch modules in its own CPU mode, where torch_neuronx and the compiler are only imported.
`on_xla` moves such a model to torch-xla's CPU device, whose graphs are what Neuron's compiler takes. torch and
torch-xla 2.9 are those of SDK 2.28, and transformers 4.57 is what NxDI is made for: an environment of its own
(`peakplan bench neuron-conformance`).
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import pkgutil
import re
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from service.engines.neuron.nxdi import Nxdi

SOURCE_VARIABLE = "PEAKPLAN_NXDI_SOURCE"
TRANSFORMERS = "4.57."
PACKAGE = "neuronx_distributed_inference"
_OTHER = "neuronx_distributed"
_STAND_INS = ("torch_neuronx", "neuronxcc", "libneuronxla", "nki", "nkilib", "blobfile", "islpy")
COUNTED = ("dot", "gather", "scatter", "sort", "all-reduce")
_OPERATION = re.compile(r" ([a-z-]+)\(")
_MAKE = "run `peakplan bench neuron-conformance <checkouts>`, which makes an environment for it"


def source_folders() -> list[Path]:
    """Return the `src` folders that the variable names; [] where it is not set. Raises FileNotFoundError."""
    named = os.environ.get(SOURCE_VARIABLE, "")
    folders = [Path(part) / "src" if (Path(part) / "src").is_dir() else Path(part) for part in named.split(os.pathsep)]
    if not named:
        return []
    for package in (PACKAGE, _OTHER):
        if not any((folder / package).is_dir() for folder in folders):
            raise FileNotFoundError(f"{SOURCE_VARIABLE}={named} holds no {package}")
    return folders


def why_not() -> str:
    """Return why the real NxDI cannot run here and what to do; empty where it can."""
    if not os.environ.get(SOURCE_VARIABLE):
        return f"{SOURCE_VARIABLE} names no NxDI source: {_MAKE}"
    try:
        source_folders()
        found = metadata.version("transformers")
    except (FileNotFoundError, metadata.PackageNotFoundError) as error:
        return f"{error}: {_MAKE}"
    if not found.startswith(TRANSFORMERS):
        return f"NxDI needs transformers {TRANSFORMERS}x, and {found} is here: {_MAKE}"
    return ""


def has_xla() -> bool:
    """Tell whether torch-xla is installed; without it NxDI runs as plain torch alone."""
    return any(name.name == "torch_xla" for name in pkgutil.iter_modules())


def import_nxdi() -> str:
    """Make NxDI importable in its CPU mode and return its version; once per process."""
    os.environ |= {"NXD_CPU_MODE": "1", "PJRT_DEVICE": "CPU"}
    if not any(isinstance(finder, _StandIns) for finder in sys.meta_path):
        if has_xla():  # before the stand-ins, one of which it would take for a device's library
            importlib.import_module("torch_xla")
        sys.path[:0] = [str(folder) for folder in source_folders()]
        sys.meta_path.insert(0, _StandIns())
        vars(torch.classes)["neuron"] = Anything  # registered by the device's runtime
        with mock.patch("torch.jit.script", _unscripted), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NxDI itself gives dozens
            for module in ("models.llama.modeling_llama", "utils.hf_adapter"):
                importlib.import_module(f"{PACKAGE}.{module}")
    version: str = importlib.import_module(f"{PACKAGE}._version").__version__
    return version


def _unscripted(function: Any, *arguments: Any, **named: Any) -> Any:
    """Return the function unchanged: TorchScript cannot compile stand-ins, and is not needed in CPU mode."""
    del arguments, named
    return function


class _AnythingMeta(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def __getitem__(cls, item: Any) -> Any:
        return cls


class Anything(metaclass=_AnythingMeta):
    """A class, base class, decorator or value, as an import needs it; never computed with."""

    def __init__(self, *_arguments: Any, **_named: Any) -> None:
        pass

    def __call__(self, *_arguments: Any, **_named: Any) -> Any:
        return Anything

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import finder for any module below the Neuron packages' names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        package = fullname.partition(".")[0]
        if package not in _STAND_INS and (package != "torch_xla" or has_xla()):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_REAL.get(module.__name__, {}))


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


_REAL: Mapping[str, Mapping[str, Any]] = {
    "torch_neuronx.utils": {"get_platform_target": lambda: "trn1"},
    "torch_neuronx.utils.utils": {"get_platform_target": lambda: "trn1"},
}


def cpu_model(checkpoint: Path, arguments: Mapping[str, Any], *, stock: bool = False) -> Any:
    """Load NxDI's Llama, in float32 on the CPU, with our graph or, `stock`, its own. Nothing is traced or compiled.

    In its CPU mode one module serves prompts and trees, so that both must be as long as the cache. A rank of a
    process group that the caller made loads its own shard.
    """
    _one_process_group()
    length, ranks = arguments["seq_len"], torch.distributed.get_world_size()
    own = {"on_cpu": True, "torch_dtype": "float32", "tp_degree": ranks, "save_sharded_checkpoint": False}
    own |= {"max_context_length": length, "max_length": length, "context_encoding_buckets": [length]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Nxdi().model(checkpoint, {**arguments, **own}, stock=stock)
        if arguments.get("quantized"):
            model.models[0].model_cls = partial(_quantised, model.models[0].model_cls)
        step = model.get_generation_model()
        model.neuron_config.speculation_length = _Rows(model.neuron_config.speculation_length)
        model.to_cpu()
    # CPU mode alone needs this, and the release does not have it: it copies the cache to a model of this name.
    model.token_generation_model = step
    model._get_captured_tensors_offset = lambda: 0
    return model


class _Rows(int):
    """A number of rows that NxDI's CPU mode takes, which refuses any above 0 although its plain graph runs there."""

    def __gt__(self, other: object) -> bool:
        return False


def _quantised(model_class: Any, config: Any) -> Any:
    """Return a model with NxD's quantised layers, as NxDI makes one for a device (`load_module` in model_wrapper.py).

    Its CPU mode alone leaves that out.
    """
    described = importlib.import_module(f"{_OTHER}.quantization.quantization_config")
    quantize = importlib.import_module(f"{_OTHER}.quantization.quantize")
    scheme = described.get_default_per_channel_custom_qconfig_dict()
    scheme["quantized_dtype"] = described.QuantizedDtype.get_dtype(config.neuron_config.quantization_dtype)
    return quantize.convert(model_class(config), q_config=scheme, inplace=True)


class OnXla(torch.nn.Module):
    """An NxDI module on torch-xla's device: each call is one graph, traced as Neuron's compiler would get it."""

    def __init__(self, module: torch.nn.Module, counts: dict[str, int]) -> None:
        super().__init__()
        self._device = importlib.import_module("torch_xla").device()
        self.module = module.to(self._device)
        self.kv_mgr = module.kv_mgr
        self._counts = counts

    @torch.inference_mode(mode=False)  # whose tensors torch-xla cannot slice
    @torch.no_grad()
    def forward(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        xla = importlib.import_module("torch_xla")
        outputs = self.module(*(argument.to(self._device) for argument in arguments))
        graph = xla._XLAC._get_xla_tensors_hlo(list(outputs))
        self._counts.clear()
        self._counts |= Counter(found for found in _OPERATION.findall(graph) if found in COUNTED)
        xla.sync()
        return [outputs[0].cpu(), *outputs[1:]]


def on_xla(model: Any) -> dict[str, int]:
    """Move a `cpu_model` to torch-xla; return where each call leaves its graph's numbers of `COUNTED` operations."""
    counts: dict[str, int] = {}
    module = OnXla(model.models[0].model, counts)
    for wrapper in model.models:
        wrapper.model = module
    return counts


def _one_process_group() -> None:
    state = importlib.import_module(f"{_OTHER}.parallel_layers.parallel_state")
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())  # type: ignore[attr-defined]
    if state.model_parallel_is_initialized():
        state.destroy_model_parallel()


def stock_generate(model: Any, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
    """Return NxDI's own Medusa loop's tokens for a prompt, with the least changes that let it run on a CPU.

    These are a global that its release forgot to define, and the gather of hidden states out of bounds, which raises on
    a CPU.
    """
    adapters = importlib.import_module(f"{PACKAGE}.utils.hf_adapter")
    adapter = adapters.HuggingFaceGenerationAdapter(model)
    model.neuron_config.max_new_tokens = max_new_tokens

    def forward(**inputs: Any) -> Any:
        inputs.pop("tensor_capture_hook", None)
        return model.forward(**inputs)

    adapter.forward = forward
    ids = torch.tensor([prompt])
    with (
        mock.patch.object(adapters, "tensor_capture_hook", None, create=True),
        mock.patch.object(torch, "gather", _bounded_gather),
        torch.inference_mode(),
    ):
        model.reset()
        decoded = adapter._medusa_assisted_decoding(ids, None, None, 0, -1, attention_mask=torch.ones_like(ids))
    tokens: list[int] = decoded[0, len(prompt) :].tolist()
    return tokens[:max_new_tokens]


_gather = torch.gather


def _bounded_gather(input: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    out_of_bounds = dim == 1 and index.shape == input.shape and int(index.max()) >= input.shape[1]
    return input if out_of_bounds else _gather(input, dim, index)
