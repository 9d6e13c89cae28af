"""Which engine answers and which model it runs, by name: the one place that knows every engine.

It imports what it makes only when it makes it: grpc, torch and the Neuron packages are not on every machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from service.engines.protocol import Engine, EngineUnavailableError, Strategy
from service.engines.torch.precision import Precision
from service.engines.version import folder_version
from service.engines.worker.messages import ModelSource

# torch    a process of ours for each replica, on this machine's CPU
# neuron   a process of ours for each replica, on its own NeuronCores: what `make compile` compiled of the model
# triton   a Triton server on this machine, which hosts the replicas: of one of the `HostedName`s
# openai   servers of OpenAI's completions, such as vLLM, that run the model folder's export
EngineName = Literal["torch", "neuron", "triton", "openai"]
HostedName = Literal["torch", "neuron"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """A model folder and how to run it."""

    model_dir: Path
    cache_dir: Path
    dtype: Precision
    threads: int
    strategy: Strategy
    max_prompt_tokens: int
    draft_model_dir: Path | None = None
    compiled_dir: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionServers:
    """Where the servers of completions are (addresses up to /v1), whose export they run, what else they are told."""

    urls: tuple[str, ...]
    choice: EngineConfig
    model: str
    key: str
    may_ask_for_grammars: bool


_choices = TypeAdapter(EngineConfig)


def model_source(hosted: HostedName, choice: EngineConfig) -> ModelSource:
    """How a process gets this model, as its folder stands now."""
    if hosted == "neuron":
        return _compiled_source(choice)
    return ModelSource(
        "service.engines.torch.engine:load",
        {
            "model_dir": choice.model_dir,
            "cache_dir": choice.cache_dir,
            "dtype": choice.dtype,
            "threads": choice.threads,
            "strategy": choice.strategy,
            "max_prompt_tokens": choice.max_prompt_tokens,
            # Left out where none is named: not every engine takes one.
            **({"draft_model_dir": choice.draft_model_dir} if choice.draft_model_dir else {}),
        },
        version=folder_version(choice.model_dir, choice.dtype),
        forkable=choice.threads == 1,  # no thread outlives a fork
    )


def _compiled_source(choice: EngineConfig) -> ModelSource:
    assert choice.compiled_dir is not None, "the settings ask for it"
    manifest = choice.compiled_dir / "manifest.json"
    compiled = manifest.read_text(encoding="utf-8") if manifest.is_file() else ""  # the replica says what is wrong
    return ModelSource(
        "service.engines.neuron.model:load",
        {
            "model_dir": choice.model_dir,
            "compiled_dir": choice.compiled_dir,
            "strategy": choice.strategy,
            "max_prompt_tokens": choice.max_prompt_tokens,
        },
        version=folder_version(choice.model_dir, compiled),
    )


def as_json(choice: EngineConfig) -> dict[str, Any]:
    """A choice for a file; `source_from_json` reads it."""
    plain: dict[str, Any] = _choices.dump_python(choice, mode="json")
    return plain


def source_from_json(hosted: HostedName, choice: Mapping[str, Any]) -> ModelSource:
    """`model_source` for a process that has only what a file says."""
    return model_source(hosted, _choices.validate_python(choice))


def make_engine(
    name: EngineName,
    source: ModelSource,
    number: int,
    *,
    threads: int,
    strategy: Strategy,
    grace_seconds: float,
    triton_url: str,
    completions: CompletionServers,
) -> Engine:
    """Replica `number` of a model, not started yet. Raises EngineUnavailableError when its packages are missing."""
    if name == "triton":
        try:
            from service.engines.triton.engine import TritonEngine
        except ImportError as error:
            raise EngineUnavailableError(
                f"PEAKPLAN_ENGINE=triton needs the packages of requirements-triton.txt, and {error.name} is missing"
            ) from error
        return TritonEngine(triton_url, number, version=source.version, strategy=strategy, grace_seconds=grace_seconds)
    if name == "openai":
        return _completions_engine(number, completions)
    from service.engines.worker.replica import ReplicaEngine

    if name == "neuron":  # each replica takes NeuronCores of its own, by its number
        source = replace(source, arguments={**source.arguments, "number": number})
    return ReplicaEngine(source, threads=threads, grace_seconds=grace_seconds)


def _completions_engine(number: int, servers: CompletionServers) -> Engine:
    """Replicas are spread over the servers; each server batches those that share it."""
    from service.engines.openai.engine import OpenAiEngine

    return OpenAiEngine(
        servers.urls[number % len(servers.urls)],
        model_dir=servers.choice.model_dir,
        cache_dir=servers.choice.cache_dir,
        strategy=servers.choice.strategy,
        max_prompt_tokens=servers.choice.max_prompt_tokens,
        model=servers.model,
        key=servers.key,
        may_ask_for_grammars=servers.may_ask_for_grammars,
    )
