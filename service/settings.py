"""Every setting of the service, in one place: environment variables PEAKPLAN_..., and plain HOST and PORT."""

import os
from pathlib import Path
from typing import Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.engines.protocol import Strategy

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

    host: str = Field(default="127.0.0.1", min_length=1, validation_alias=AliasChoices("PEAKPLAN_HOST", "HOST"))
    port: int = Field(default=8080, ge=0, le=65535, validation_alias=AliasChoices("PEAKPLAN_PORT", "PORT"))
    model_dir: Path = _SOURCE_ROOT / "models" / "qp-smollm2-135m"
    cache_dir: Path = Field(default_factory=_default_cache_dir)
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    strategy: Strategy = "medusa"
    replicas: int = Field(default=0, ge=0, le=256, description="0: as many as the cores carry")
    threads_per_replica: int = Field(default=1, ge=1, le=64)
    oversubscribe: bool = Field(default=False, description="allow more model threads than cores; ruins the p99")
    max_prompt_tokens: int = Field(default=384, ge=64, le=4096)
    max_body_bytes: int = Field(default=16 * 1024, ge=1024, le=1024 * 1024)
    body_seconds: float = Field(default=10.0, gt=0, le=60, description="patience for a request's body")
    trace_deadline_ms: int = Field(default=5000, ge=100, le=30_000)
    proof_seconds: float = Field(default=2.0, gt=0, le=60, description="how long a real inference proves readiness")
    drain_seconds: float = Field(
        default=0.0, ge=0, le=300, description="serve on after SIGTERM, not ready, for the balancer"
    )
    shutdown_seconds: int = Field(default=10, ge=3, le=300, description="then in-flight requests get this long")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("host")
    @classmethod
    def _host_without_scheme(cls, host: str) -> str:
        if "/" in host or any(character.isspace() for character in host):
            raise ValueError("must be a host name or an address alone, like 127.0.0.1")
        return host

    @model_validator(mode="after")
    def _threads_fit_the_cores(self) -> Self:
        wanted, cores = self.replica_count * self.threads_per_replica, available_cores()
        if wanted > cores and not self.oversubscribe:
            raise ValueError(
                f"{self.replica_count} replicas of {self.threads_per_replica} threads want {wanted} cores and {cores} "
                "are here: the slowest answers would take seconds. Lower PEAKPLAN_REPLICAS or "
                "PEAKPLAN_THREADS_PER_REPLICA, or set PEAKPLAN_OVERSUBSCRIBE=1 if you mean it"
            )
        return self

    @property
    def replica_count(self) -> int:
        """Replicas to start."""
        return self.replicas or max(1, available_cores() // self.threads_per_replica)
