"""Which engine runs which model, and how: one configuration that settings build and every engine receives whole."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from service.settings.choices import (
    MAX_PROMPT_TOKENS,
    EngineName,
    HostedName,
    KernelChoice,
    Precision,
    Strategy,
)

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class NeuronSettings(BaseModel):
    """Inferentia and Trainium."""

    model_config = _FROZEN

    compiled_dir: Path | None = Field(default=None, description="the output folder of `peakplan compile`")
    tensor_parallel: int = Field(
        default=1, ge=1, le=32, description="NeuronCores per replica, as compiled; a chip has 2"
    )


class TritonSettings(BaseModel):
    """The Triton server."""

    model_config = _FROZEN

    url: str = Field(default="127.0.0.1:8001", description="the server's gRPC endpoint, host:port")
    hosts: HostedName = Field(default="torch", description="the engine that each Triton replica runs")
    home: Path | None = Field(
        default=None, description="the tritonserver; `peakplan tools install triton` installs one here"
    )
    folder: Path | None = Field(
        default=None, description="where its model repository is written; by default in the cache folder"
    )

    @field_validator("url")
    @classmethod
    def _without_scheme(cls, url: str) -> str:
        host, _, port = url.rpartition(":")
        if not host or "/" in url or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ValueError("must be host:port, like 127.0.0.1:8001, without a scheme")
        return url


class OpenAiSettings(BaseModel):
    """Servers with OpenAI's completions interface, such as vLLM."""

    model_config = _FROZEN

    url: str = Field(
        default="http://127.0.0.1:8000/v1",
        description="servers, comma-separated; replicas are spread over them",
    )
    model: str = Field(default="", description="the model's name there; required if there are several")
    key: SecretStr = Field(default=SecretStr(""), description="sent as a bearer token")
    grammar: Literal["auto", "off"] = Field(
        default="auto", description="auto: retries keep to the grammar where the server supports it"
    )

    @field_validator("url")
    @classmethod
    def _over_http(cls, urls: str) -> str:
        if not all(url.strip().startswith(("http://", "https://")) for url in urls.split(",")):
            raise ValueError("must be http:// or https:// addresses up to /v1, separated by commas")
        return urls

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(url.strip() for url in self.url.split(","))


class EngineConfig(BaseModel):
    """A model folder, the engine that runs it, and its options. Settings make paths absolute.

    A replica decodes `batch_size` requests together, and keeps up to `prefix_cache_bytes` of the prompts that it has
    read. Only where `kinds` of a shop are named does a kind head read, which takes a third of a millisecond.
    `replica_python` runs replicas where the model's libraries are not this interpreter's.
    """

    model_config = _FROZEN

    model_dir: Path
    cache_dir: Path
    engine: EngineName = "torch"
    dtype: Precision = "auto"
    strategy: Strategy = "medusa"
    max_prompt_tokens: int = MAX_PROMPT_TOKENS
    kernel: KernelChoice = "auto"
    replica_python: Path | None = None
    batch_size: int = 1
    prefix_cache_bytes: int = 0
    kinds: bool = False
    neuron: NeuronSettings = NeuronSettings()
    triton: TritonSettings = TritonSettings()
    openai: OpenAiSettings = OpenAiSettings()

    @property
    def hosted_engine(self) -> HostedName:
        """The engine that runs the model, in our own process or inside Triton."""
        if self.engine == "openai":  # the model's folder is still named, but nothing here loads its weights
            return "torch"
        return self.triton.hosts if self.engine == "triton" else self.engine

    def as_json(self) -> dict[str, Any]:
        """Return the configuration for a file, without its secrets; `source_from_json` of the factory reads it."""
        return self.model_dump(mode="json", exclude={"openai"})
