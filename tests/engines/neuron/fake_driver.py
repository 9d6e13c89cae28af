"""A stand-in for NxDI's compiler and device, and what compiles and loads a model folder with it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from service.engines.neuron.compilation import compile_model
from service.engines.neuron.configuration import CompileSettings, forward_shape
from service.engines.neuron.manifest import FILE, Manifest
from service.engines.neuron.model import NeuronModel, load
from service.settings.engines import EngineConfig, NeuronSettings
from tests.engines.neuron.fake_compiled import FakeCompiled
from tests.tiny_model import HIDDEN

PACKAGES = {"neuronx-cc": "2.23.6484", "neuronx-distributed-inference": "0.8.16251"}
SETTINGS = CompileSettings(
    chip="inf2", tensor_parallel=1, max_prompt_tokens=40, max_new_tokens=512, sequence_length=640, dtype="float32"
)
ANY_TEXT = r"start: /(.|\n){8,24}/"


@dataclass
class FakeDriver:
    """A driver that writes the files that NxDI would write, and counts its calls."""

    compiled: list[Mapping[str, Any]] = field(default_factory=list)
    loaded: int = 0

    def compile(self, checkpoint: Path, output: Path, arguments: Mapping[str, Any]) -> None:
        assert torch.load(checkpoint / "medusa_heads.pt", weights_only=True) == {}  # the host multiplies them
        self.compiled.append(arguments)
        (output / "weights").mkdir()
        (output / "model.pt").write_bytes(b"graph")
        (output / "weights" / "tp0_sharded_checkpoint.safetensors").write_bytes(b"weights")

    def load(self, compiled: Path) -> FakeCompiled:
        self.loaded += 1
        arguments = json.loads((compiled / FILE).read_text(encoding="utf-8"))["arguments"]
        return FakeCompiled(forward_shape(arguments), vocab_size=1000, seed=5, width=HIDDEN)


def compiled(model_dir: Path, folder: Path, driver: FakeDriver | None = None, **changes: Any) -> Manifest:
    settings = SETTINGS.model_copy(update=changes)
    return compile_model(model_dir, folder.parent, folder, settings, PACKAGES, driver or FakeDriver())


def loaded(model_dir: Path, folder: Path, driver: FakeDriver | None = None, **changes: Any) -> NeuronModel:
    number = changes.pop("number", None)
    config = EngineConfig(
        model_dir=model_dir,
        cache_dir=folder,
        engine="neuron",
        neuron=NeuronSettings(compiled_dir=folder),
        **({"max_prompt_tokens": 40} | changes),
    )
    return load(config, number, driver=driver or FakeDriver(), packages=lambda: PACKAGES)
