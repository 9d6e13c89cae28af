"""Which engine answers and which model it runs, by configuration: the one place that knows every engine.

It imports what it makes only when it makes it: grpc, torch and the Neuron packages are not on every machine.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.engines.config import EngineConfig
from service.engines.protocol import Engine, EngineUnavailableError
from service.engines.version import folder_version
from service.engines.worker.messages import ModelSource

_LOADERS = {"torch": "service.engines.torch.engine:load", "neuron": "service.engines.neuron.model:load"}


def model_source(config: EngineConfig) -> ModelSource:
    """How a process gets this model, as its folder stands now: both loaders take the whole configuration."""
    hosted = config.hosted_engine
    return ModelSource(
        _LOADERS[hosted],
        {"config": config},
        version=folder_version(config.model_dir, _compiled(config) if hosted == "neuron" else config.dtype),
        forkable=hosted == "torch" and config.threads == 1,  # no thread outlives a fork
    )


def _compiled(config: EngineConfig) -> str:
    """The manifest of the compiled model; "" where there is none: the replica says what is wrong."""
    assert config.neuron.compiled_dir is not None, "the settings ask for it"
    manifest = config.neuron.compiled_dir / "manifest.json"
    return manifest.read_text(encoding="utf-8") if manifest.is_file() else ""


def as_json(config: EngineConfig) -> dict[str, Any]:
    """A configuration for a file, without its secrets; `source_from_json` reads it."""
    return config.model_dump(mode="json", exclude={"openai"})


def source_from_json(config: Mapping[str, Any]) -> ModelSource:
    """`model_source` for a process that has only what a file says."""
    return model_source(EngineConfig.model_validate(config))


def make_engine(config: EngineConfig, source: ModelSource, number: int) -> Engine:
    """Replica `number` of a model, not started yet. Raises EngineUnavailableError when its packages are missing."""
    if config.engine == "triton":
        return _triton_engine(config, source, number)
    if config.engine == "openai":
        from service.engines.openai.engine import OpenAiEngine

        return OpenAiEngine(config, number)
    from service.engines.worker.replica import ReplicaEngine

    if config.engine == "neuron":  # each replica takes NeuronCores of its own, by its number
        source = replace(source, arguments={**source.arguments, "number": number})
    return ReplicaEngine(source, threads=config.threads, grace_seconds=config.grace_seconds)


def _triton_engine(config: EngineConfig, source: ModelSource, number: int) -> Engine:
    try:
        from service.engines.triton.engine import TritonEngine
    except ImportError as error:
        raise EngineUnavailableError(
            f"PEAKPLAN_ENGINE=triton needs the packages of requirements-triton.txt, and {error.name} is missing"
        ) from error
    return TritonEngine(
        config.triton.url,
        number,
        version=source.version,
        strategy=config.strategy,
        grace_seconds=config.grace_seconds,
    )
