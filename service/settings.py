"""Every setting of the service, in one place: environment variables PEAKPLAN_..., and plain HOST and PORT."""

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.engines.choice import CompletionServers, EngineName, HostedName, ModelChoice
from service.engines.precision import Precision
from service.engines.protocol import Strategy
from service.gateway.line import Order
from service.gateway.pool import ADMISSION_QUANTILE, HANG_SECONDS

_SOURCE_ROOT = Path(__file__).parents[1]
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores(quota: Path = _CGROUP_QUOTA) -> int:
    """Cores that this process may use: its CPU affinity, cut to its container's quota (cgroup v2), at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text(encoding="ascii").split()
        return max(1, min(cores, int(limit) // int(period)))
    except (OSError, ValueError):  # no cgroup v2 here, or "max": no quota
        return cores


def _default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peakplan"


class Settings(BaseSettings):
    """What can be set, with defaults that suit a laptop. Values that would hurt are refused with the reason."""

    model_config = SettingsConfigDict(env_prefix="PEAKPLAN_", frozen=True, populate_by_name=True)

    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        validation_alias=AliasChoices("PEAKPLAN_HOST", "HOST"),
        description="where to listen",
    )
    port: int = Field(
        default=8080, ge=0, le=65535, validation_alias=AliasChoices("PEAKPLAN_PORT", "PORT"), description="0: any"
    )
    engine: EngineName = Field(default="torch", description="where the model runs: see service/engines/choice.py")
    model_dir: Path = Field(default=_SOURCE_ROOT / "models" / "qp-smollm2-135m", description="the model to serve")
    cache_dir: Path = Field(
        default_factory=_default_cache_dir, description="keeps the base weights and the compiled kernels"
    )
    compiled_dir: Path | None = Field(
        default=None, description="what `make compile` wrote of the model, for the engine neuron"
    )
    dtype: Precision = Field(default="auto", description="auto: the fastest that this machine has")
    strategy: Strategy = Field(default="medusa", description="how to decode; the plans are the same")
    draft_model_dir: Path | None = Field(
        default=None, description="a smaller model that drafts for the strategy draft, instead of the first layers"
    )
    replicas: int = Field(default=0, ge=0, le=256, description="0: as many as the cores carry")
    threads_per_replica: int = Field(
        default=1, ge=1, le=64, description="for torch's kernels; ours use one (docs/decisions/0004)"
    )
    oversubscribe: bool = Field(default=False, description="allow more model threads than cores; ruins the p99")
    max_prompt_tokens: int = Field(default=384, ge=64, le=4096, description="longer prompts are planned by rule")
    max_body_bytes: int = Field(default=16 * 1024, ge=1024, le=1024 * 1024, description="more is a 413")
    body_seconds: float = Field(default=10.0, gt=0, le=60, description="patience for a request's body")
    trace_deadline_ms: int = Field(default=5000, ge=100, le=30_000, description="of the page's traces")
    proof_seconds: float = Field(default=2.0, gt=0, le=60, description="how long a real inference proves readiness")
    drain_seconds: float = Field(
        default=0.0, ge=0, le=300, description="serve on after SIGTERM, not ready, for the balancer"
    )
    shutdown_seconds: int = Field(default=10, ge=3, le=300, description="then in-flight requests get this long")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="least that is logged")
    log_text: bool = Field(default=False, description="let shoppers' words into the log; for debugging alone")

    # The gateway
    order: Order = Field(default="adaptive", description="who of those that wait goes first")
    admission_quantile: float = Field(
        default=ADMISSION_QUANTILE,
        gt=0,
        lt=1,
        description="wait only while this share of generations would still end in time",
    )
    hang_seconds: float = Field(
        default=HANG_SECONDS,
        gt=0,
        le=60,
        description="what lasts longer, and 8 times longer than generations do, is a hang",
    )
    grace_seconds: float = Field(default=1.0, gt=0, le=60, description="for a cancelled replica to be free again")
    min_replicas: int = Field(default=1, ge=1, le=256, description="with fewer up the service is not ready")
    backlog_ms: int = Field(default=100, ge=10, le=2000, description="work of the gateway itself; beyond it is 503")

    # Triton (service/engines/triton)
    triton_url: str = Field(default="127.0.0.1:8001", description="host:port of the Triton server's gRPC")
    triton_hosts: HostedName = Field(default="torch", description="the engine that each of its replicas runs")
    triton_home: Path | None = Field(default=None, description="holds tritonserver; `make triton` puts one here")
    triton_folder: Path | None = Field(
        default=None, description="where its model repository is written; a folder of the cache folder if not set"
    )
    triton_metrics_port: int = Field(default=0, ge=0, le=65535, description="its own metrics; 0: none")
    cores_per_chip: int = Field(default=2, ge=1, le=16, description="NeuronCores of one replica; inf2 and trn1 have 2")

    # Servers of OpenAI's completions, such as vLLM (service/engines/openai)
    openai_url: str = Field(
        default="http://127.0.0.1:8000/v1", description="addresses, comma-separated; replicas are spread over them"
    )
    openai_model: str = Field(default="", description="its name there; needed where a server has several")
    openai_key: SecretStr = Field(default=SecretStr(""), description="sent as a bearer token")
    openai_grammar: Literal["auto", "off"] = Field(
        default="auto", description="auto: second tries are held to the grammar by a server that can"
    )

    # The plan cache
    cache_entries: int = Field(default=20_000, ge=0, le=10_000_000, description="0 remembers nothing")
    cache_seconds: float = Field(default=900.0, gt=0, le=86_400, description="how long a plan is remembered")
    cache_url: SecretStr | None = Field(default=None, description="redis://... of a second level that hosts share")
    cache_wait_ms: float = Field(default=5.0, gt=0, le=100, description="what the second level may cost a request")

    # Access
    tokens: SecretStr = Field(default=SecretStr(""), description="lines of: name, SHA-256 of a token, its rate")
    tokens_file: Path | None = Field(default=None, description="the same in a file, read again when it changes")
    rate: float = Field(default=0.0, ge=0, le=1e6, description="requests a second a caller may send; 0: any number")
    max_head_bytes: int = Field(default=16 * 1024, ge=1024, le=256 * 1024, description="more is a 431")
    head_seconds: float = Field(default=10.0, gt=0, le=120, description="patience for a request's head")

    # Telemetry
    fleet: str = Field(default="", max_length=100, description="names the fleet, and turns on metrics on stdout")
    cell: str = Field(default="cell-1", min_length=1, max_length=100, description="dimension of every metric")
    group: str = Field(default="", max_length=100, description="chip family of the Auto Scaling group")
    release: str = Field(default="", max_length=200, description="what the host was started from; dimension of metrics")
    slo_ms: int = Field(default=300, ge=10, le=10_000, description="later answers count against the SLO")
    otlp_endpoint: str = Field(
        default="",
        validation_alias=AliasChoices("PEAKPLAN_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="an OpenTelemetry collector's HTTP address, http://host:4318; traces go there",
    )

    @field_validator("host")
    @classmethod
    def _host_without_scheme(cls, host: str) -> str:
        if "/" in host or any(character.isspace() for character in host):
            raise ValueError("must be a host name or an address alone, like 127.0.0.1")
        return host

    @field_validator("triton_url")
    @classmethod
    def _triton_without_scheme(cls, url: str) -> str:
        host, _, port = url.rpartition(":")
        if not host or "/" in url or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ValueError("must be host:port, like 127.0.0.1:8001, without a scheme")
        return url

    @field_validator("openai_url")
    @classmethod
    def _servers_over_http(cls, urls: str) -> str:
        if not all(url.strip().startswith(("http://", "https://")) for url in urls.split(",")):
            raise ValueError("must be http:// or https:// addresses up to /v1, separated by commas")
        return urls

    @field_validator("cache_url")
    @classmethod
    def _cache_url_of_redis(cls, url: SecretStr | None) -> SecretStr | None:
        known = ("redis://", "rediss://", "unix://")
        if url is not None and not url.get_secret_value().startswith(known):
            raise ValueError(f"must start with one of {' '.join(known)}")  # without the URL: it may hold a password
        return url

    @field_validator("otlp_endpoint")
    @classmethod
    def _endpoint_over_http(cls, endpoint: str) -> str:
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ValueError("must be an http:// or https:// address")
        return endpoint.rstrip("/")

    @model_validator(mode="after")
    def _threads_fit_the_cores(self) -> Self:
        wanted, cores = self.replica_count * self.threads_per_replica, available_cores()
        if self.engine != "openai" and self.hosted_engine == "torch" and wanted > cores and not self.oversubscribe:
            raise ValueError(
                f"{self.replica_count} replicas of {self.threads_per_replica} threads want {wanted} cores and {cores} "
                "are here: the slowest answers would take seconds. Lower PEAKPLAN_REPLICAS or "
                "PEAKPLAN_THREADS_PER_REPLICA, or set PEAKPLAN_OVERSUBSCRIBE=1 if you mean it"
            )
        return self

    @model_validator(mode="after")
    def _readiness_can_be_reached(self) -> Self:
        if self.min_replicas > self.replica_count:
            raise ValueError(f"PEAKPLAN_MIN_REPLICAS={self.min_replicas}, but only {self.replica_count} are to run")
        return self

    @model_validator(mode="after")
    def _says_how_the_server_decodes(self) -> Self:
        if self.engine == "openai" and "strategy" not in self.model_fields_set:
            raise ValueError(
                "PEAKPLAN_ENGINE=openai needs PEAKPLAN_STRATEGY too: no server tells how it decodes, and every plan "
                "does. draft where it speculates with a draft model or EAGLE, medusa with Medusa heads, else "
                "autoregressive"
            )
        return self

    @model_validator(mode="after")
    def _neuron_has_artifacts_and_chips(self) -> Self:
        if self.hosted_engine != "neuron":
            return self
        missing = [] if self.compiled_dir else ["PEAKPLAN_COMPILED_DIR (what `make compile` wrote)"]
        missing += [] if self.replicas else ["PEAKPLAN_REPLICAS (one a chip; CPU cores say nothing of it)"]
        if missing:
            raise ValueError(f"the engine neuron needs {' and '.join(missing)}")
        return self

    @property
    def hosted_engine(self) -> HostedName:
        """The engine that runs the model, here or inside Triton."""
        if self.engine == "openai":  # the model's folder is named all the same; nothing here loads its weights
            return "torch"
        return self.triton_hosts if self.engine == "triton" else self.engine

    @property
    def completion_servers(self) -> CompletionServers:
        """The servers of PEAKPLAN_ENGINE=openai."""
        return CompletionServers(
            urls=tuple(url.strip() for url in self.openai_url.split(",")),
            choice=self.model_choice,
            model=self.openai_model,
            key=self.openai_key.get_secret_value(),
            may_ask_for_grammars=self.openai_grammar == "auto",
        )

    @property
    def model_choice(self) -> ModelChoice:
        """The model and how to run it."""
        return ModelChoice(
            model_dir=self.model_dir.absolute(),
            cache_dir=self.cache_dir.absolute(),
            dtype=self.dtype,
            threads=self.threads_per_replica,
            strategy=self.strategy,
            max_prompt_tokens=self.max_prompt_tokens,
            draft_model_dir=self.draft_model_dir and self.draft_model_dir.absolute(),
            compiled_dir=self.compiled_dir and self.compiled_dir.absolute(),
        )

    @property
    def replica_count(self) -> int:
        """Replicas to start."""
        return self.replicas or max(1, available_cores() // self.threads_per_replica)


def problems_of(error: ValidationError) -> str:
    """What is wrong with the settings, in words on one line."""
    return "; ".join(
        " ".join([*map(str, item["loc"]), item["msg"].removeprefix("Value error, ")]) for item in error.errors()
    )
