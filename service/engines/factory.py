"""Makes the configured engine for the configured model: the one module that knows every engine.

It imports an engine only when it makes one: grpc, torch and the Neuron packages are not on every machine.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.engines.protocol import Engine, EngineUnavailableError
from service.engines.worker.messages import ModelSource
from service.settings.engines import EngineConfig
from service.weights.model_card import folder_version

_LOADERS = {"torch": "service.engines.torch_engine:load", "neuron": "service.engines.neuron.model:load"}


def model_source(config: EngineConfig) -> ModelSource:
    """Describe how a process loads this model, as its folder is now; both loaders take the whole configuration."""
    hosted = config.hosted_engine
    return ModelSource(
        _LOADERS[hosted],
        {"config": config},
        version=current_version(config),
        check=f"{__name__}:{current_version.__name__}",
        forkable=hosted == "torch",
        python=str(config.replica_python or ""),
    )


def current_version(config: EngineConfig, **_: object) -> str:
    """Return the version of the model as its folder is now; "" when it cannot be read."""
    return folder_version(config.model_dir, _compiled(config) if config.hosted_engine == "neuron" else config.dtype)


def _compiled(config: EngineConfig) -> str:
    """Return the compiled model's manifest; "" where there is none, which the replica then reports."""
    assert config.neuron.compiled_dir is not None, "the settings ask for it"
    manifest = config.neuron.compiled_dir / "manifest.json"
    return manifest.read_text(encoding="utf-8") if manifest.is_file() else ""


def source_from_json(config: Mapping[str, Any]) -> ModelSource:
    """Return the `model_source` of a configuration that `EngineConfig.as_json` wrote to a file."""
    return model_source(EngineConfig.model_validate(config))


def make_engine(config: EngineConfig, source: ModelSource, number: int) -> Engine:
    """Make engine `number` of a model, not yet started; a replica that decodes batches has one for each of its slots.

    Raises EngineUnavailableError when packages are missing.
    """
    if config.engine == "triton":
        return _triton_engine(config, source, number)
    if config.engine == "openai":
        from service.engines.openai.engine import OpenAiEngine

        return OpenAiEngine(config, number)
    from service.engines.worker.replica import ReplicaEngine

    if config.engine == "neuron":  # each replica takes its own NeuronCores, chosen by its number
        source = replace(source, arguments={**source.arguments, "number": number // config.batch_size})
    source = replace(source, slots=config.batch_size)
    return ReplicaEngine(source)


def _triton_engine(config: EngineConfig, source: ModelSource, number: int) -> Engine:
    try:
        from service.engines.triton.engine import TritonEngine
    except ImportError as error:
        raise EngineUnavailableError(
            f"PEAKPLAN_ENGINE=triton needs the extra `triton` (pip install -e '.[triton]'), and {error.name} is missing"
        ) from error
    return TritonEngine(
        config.triton.url,
        number,
        version=source.version,
        strategy=config.strategy,
    )
