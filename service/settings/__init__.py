"""Every setting of the service, in one place: environment variables PEAKPLAN_..., and plain HOST and PORT.

docs/settings.md is written from here (`python -m rehearsal.tools.readme`). Fields without a group are those that
most people set; service/environment.py derives the variable names of groups.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from service.environment import FlatEnvironment, Named, Prefix
from service.settings.choices import (
    DEADLINE_MS,
    MAX_PROMPT_TOKENS,
    PREFIX_CACHE_BYTES,
    SHIPPED_MODEL,
    EngineName,
    HostedName,
    KernelChoice,
    Precision,
    Routing,
    Strategy,
)
from service.settings.engines import EngineConfig, NeuronSettings, OpenAiSettings, TritonSettings
from service.settings.groups import (
    AuthSettings,
    CacheSettings,
    ExperimentSettings,
    HttpSettings,
    OutcomeSettings,
    QueueSettings,
)

_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores(quota: Path = _CGROUP_QUOTA) -> int:
    """Return the cores that this process may use: its CPU affinity, limited by its cgroup v2 quota, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text(encoding="ascii").split()
        return max(1, min(cores, int(limit) // int(period)))
    except (OSError, ValueError):  # no cgroup v2 here, or "max", which is no quota
        return cores


def _default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peakplan"


class Settings(BaseSettings):
    """All settings, with defaults that suit a laptop. Harmful values are refused with the reason."""

    model_config = SettingsConfigDict(frozen=True)

    host: Annotated[str, Named(("PEAKPLAN_HOST", "HOST"))] = Field(
        default="127.0.0.1", min_length=1, description="the address to listen on"
    )
    port: Annotated[int, Named(("PEAKPLAN_PORT", "PORT"))] = Field(
        default=8080, ge=0, le=65535, description="the port to listen on; 0: any free one"
    )
    engine: EngineName = Field(default="torch", description="torch, neuron, triton or openai")
    model_dir: Path = Field(default=SHIPPED_MODEL, description="the model to serve")
    cache_dir: Path = Field(default_factory=_default_cache_dir, description="where the base weights are cached")
    dtype: Precision = Field(default="auto", description="auto: the fastest here")
    kernel: KernelChoice = Field(
        default="auto",
        description="avx512vnni, avxvnni, avx2, neon or torch; auto: the fastest here",
    )
    routing: Routing = Field(
        default="overload",
        description="off: first come, first served; overload: past capacity the reader answers what it is surest of; "
        "always: also where replicas are free, within reader.json's bound",
    )
    strategy: Strategy = Field(default="medusa", description="how to decode; the plans are identical")
    replica_python: Path | None = Field(default=None, description="Python of the replicas, if not the gateway's")
    replicas: int = Field(default=0, ge=0, le=256, description="0: as many as the cores can run")
    batch_size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="requests in one forward: more plans, each later (docs/speed.md)",
    )
    prefix_cache_bytes: int = Field(
        default=PREFIX_CACHE_BYTES,
        ge=0,
        le=2**36,
        description="memory of each replica for prompts read; 0: none (docs/speed.md)",
    )
    oversubscribe: bool = Field(default=False, description="allow more replicas than cores; p99 rises")
    max_prompt_tokens: int = Field(
        default=MAX_PROMPT_TOKENS, ge=64, le=4096, description="longer prompts are planned by the reader"
    )
    deadline_ms: int = Field(default=DEADLINE_MS, ge=10, le=2000, description="deadline of requests without one")
    trace_deadline_ms: int = Field(default=5000, ge=100, le=30_000, description="deadline of the web page's traces")
    readiness_ttl_seconds: float = Field(
        default=2.0, gt=0, le=60, description="how long one inference proves readiness"
    )
    drain_seconds: float = Field(
        default=0.0,
        ge=0,
        le=300,
        description="after SIGTERM, how long to serve while not ready",
    )
    shutdown_seconds: int = Field(default=10, ge=3, le=300, description="then, how long requests in flight may take")
    shop_dir: Path | None = Field(
        default=None,
        description="a folder that `peakplan shop learn` wrote (docs/shop.md)",
    )
    shop_url: SecretStr | None = Field(
        default=None,
        description="postgresql://... with the mapping's table, searched instead of products.sqlite",
    )
    sample_shop: bool = Field(
        default=True,
        description="the page and /answer search the shop folder's products, or without a folder a sample catalogue",
    )
    sample_shop_url: SecretStr | None = Field(
        default=None,
        description="postgresql://... of a sample catalogue for all hosts, instead of SQLite on each",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level that is logged"
    )

    queue: QueueSettings = QueueSettings()
    cache: Annotated[CacheSettings, Prefix("CACHE_")] = CacheSettings()
    auth: AuthSettings = AuthSettings()
    http: HttpSettings = HttpSettings()
    outcomes: Annotated[OutcomeSettings, Prefix("OUTCOMES_")] = OutcomeSettings()
    experiment: Annotated[ExperimentSettings, Prefix("EXPERIMENT_")] = ExperimentSettings()
    triton: Annotated[TritonSettings, Prefix("TRITON_")] = TritonSettings()
    openai: Annotated[OpenAiSettings, Prefix("OPENAI_")] = OpenAiSettings()
    neuron: NeuronSettings = NeuronSettings()

    # Telemetry
    fleet: str = Field(default="", max_length=100, description="the fleet's name; turns on metrics on stdout")
    cell: str = Field(default="cell-1", min_length=1, max_length=100, description="the cell's name, in every metric")
    group: str = Field(default="", max_length=100, description="the chip family of the Auto Scaling group")
    release: str = Field(default="", max_length=200, description="the host's release, in metrics")
    slo_ms: int = Field(default=300, ge=10, le=10_000, description="answers slower than this count against the SLO")
    otlp_endpoint: Annotated[str, Named(("PEAKPLAN_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"))] = Field(
        default="",
        description="an OpenTelemetry collector for traces, such as http://host:4318",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del env_settings, dotenv_settings, file_secret_settings  # the environment's place is taken by flat names
        return init_settings, FlatEnvironment(settings_cls)

    @field_validator("host")
    @classmethod
    def _host_without_scheme(cls, host: str) -> str:
        if "/" in host or any(character.isspace() for character in host):
            raise ValueError("must be a host name or an address alone, like 127.0.0.1")
        return host

    @field_validator("otlp_endpoint")
    @classmethod
    def _endpoint_over_http(cls, endpoint: str) -> str:
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ValueError("must be an http:// or https:// address")
        return endpoint.rstrip("/")

    @model_validator(mode="after")
    def _threads_fit_the_cores(self) -> Self:
        wanted, cores = self.replica_count, available_cores()
        if self.engine != "openai" and self.hosted_engine == "torch" and wanted > cores and not self.oversubscribe:
            raise ValueError(
                f"{wanted} replicas want as many cores and {cores} are here: the slowest answers would take seconds. "
                "Lower PEAKPLAN_REPLICAS, or set PEAKPLAN_OVERSUBSCRIBE=1 if you mean it"
            )
        return self

    @model_validator(mode="after")
    def _exposures_are_kept(self) -> Self:
        if self.experiment.name and self.outcomes.dir is None:
            raise ValueError("PEAKPLAN_EXPERIMENT_NAME needs PEAKPLAN_OUTCOMES_DIR, which keeps who got what")
        return self

    @model_validator(mode="after")
    def _readiness_can_be_reached(self) -> Self:
        if self.queue.min_replicas > self.replica_count:
            raise ValueError(
                f"PEAKPLAN_MIN_REPLICAS={self.queue.min_replicas}, but only {self.replica_count} are to run"
            )
        return self

    @model_validator(mode="after")
    def _says_how_the_server_decodes(self) -> Self:
        if self.engine == "openai" and "strategy" not in self.model_fields_set:
            raise ValueError(
                "PEAKPLAN_ENGINE=openai needs PEAKPLAN_STRATEGY too: no server tells how it decodes, and every plan "
                "does. draft where it speculates with a draft model or EAGLE, medusa with Medusa heads, else "
                "autoregressive"
            )
        if self.engine != "openai" and self.strategy == "draft":
            raise ValueError(
                "PEAKPLAN_STRATEGY=draft says how a completions server decodes: it needs PEAKPLAN_ENGINE=openai. Other "
                "engines draft with Medusa heads (medusa), or not at all (autoregressive)"
            )
        return self

    @model_validator(mode="after")
    def _neuron_has_artifacts_and_chips(self) -> Self:
        if self.hosted_engine != "neuron":
            return self
        missing = [] if self.neuron.compiled_dir else ["PEAKPLAN_COMPILED_DIR (what `peakplan compile` wrote)"]
        missing += [] if self.replicas else ["PEAKPLAN_REPLICAS (one a NeuronCore; CPU cores say nothing of it)"]
        if missing:
            raise ValueError(f"the engine neuron needs {' and '.join(missing)}")
        return self

    @model_validator(mode="after")
    def _batches_only_in_processes_of_ours(self) -> Self:
        if self.batch_size > 1 and self.engine not in ("torch", "neuron"):
            raise ValueError(
                f"PEAKPLAN_BATCH_SIZE={self.batch_size} needs PEAKPLAN_ENGINE=torch or neuron: another server batches "
                "by itself. There raise PEAKPLAN_REPLICAS"
            )
        return self

    @property
    def hosted_engine(self) -> HostedName:
        """The engine that runs the model, here or inside Triton."""
        return self.engine_config.hosted_engine

    @property
    def engine_config(self) -> EngineConfig:
        shared = EngineConfig.model_fields.keys() & Settings.model_fields.keys()
        own: dict[str, Any] = {name: getattr(self, name) for name in shared}
        own["model_dir"], own["cache_dir"] = self.model_dir.absolute(), self.cache_dir.absolute()
        own["replica_python"] = self.replica_python and self.replica_python.absolute()
        own["kinds"] = self.shop_dir is not None or any(self.experiment.shop_dirs.values())
        compiled = self.neuron.compiled_dir
        own["neuron"] = self.neuron.model_copy(update={"compiled_dir": compiled and compiled.absolute()})
        return EngineConfig(**own)

    @property
    def replica_count(self) -> int:
        return self.replicas or available_cores()
