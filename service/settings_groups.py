"""The groups of service/settings.py that belong to no engine: queue, cache, callers, HTTP, outcomes."""

import re
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from service.engines.config import GRACE_SECONDS
from service.gateway.pool import ADMISSION_QUANTILE, HANG_SECONDS
from service.gateway.request_queue import Order

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class QueueSettings(BaseModel):
    """Waiting, refusing and replacing replicas (service/gateway)."""

    model_config = _FROZEN

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
    grace_seconds: float = Field(
        default=GRACE_SECONDS, gt=0, le=60, description="for a cancelled replica to be free again"
    )
    min_replicas: int = Field(default=1, ge=1, le=256, description="with fewer up the service is not ready")
    backlog_ms: int = Field(default=100, ge=10, le=2000, description="work of the gateway itself; beyond it is 503")


class CacheSettings(BaseModel):
    """The plan cache, in process and shared (docs/decisions/0011)."""

    model_config = _FROZEN

    entries: int = Field(default=20_000, ge=0, le=10_000_000, description="0 remembers nothing")
    seconds: float = Field(default=900.0, gt=0, le=86_400, description="how long a plan is remembered")
    url: SecretStr | None = Field(default=None, description="redis://... of a second level that hosts share")
    key: SecretStr = Field(
        default=SecretStr(""), description="signs its entries: only hosts that know it can put plans there"
    )
    wait_ms: float = Field(default=5.0, gt=0, le=100, description="what the second level may cost a request")

    @field_validator("url")
    @classmethod
    def _of_redis(cls, url: SecretStr | None) -> SecretStr | None:
        known = ("redis://", "rediss://", "unix://")
        if url is not None and not url.get_secret_value().startswith(known):
            raise ValueError(f"must start with one of {' '.join(known)}")  # without the URL: it may hold a password
        return url


class AuthSettings(BaseModel):
    """Who may ask, and how often."""

    model_config = _FROZEN

    api_keys: SecretStr = Field(default=SecretStr(""), description="lines of: name, SHA-256 of a key, its rate")
    api_keys_file: Path | None = Field(
        default=None, description="a file of lines `name, SHA-256 of a key, its rate`, read again when it changes"
    )
    control_token: SecretStr = Field(
        default=SecretStr(""), description="for POST /drain and /reload from this host; empty: signals alone"
    )
    rate: float = Field(default=0.0, ge=0, le=1e6, description="requests a second a caller may send; 0: any number")


class HttpSettings(BaseModel):
    """What one request may be and take on its way in."""

    model_config = _FROZEN

    max_header_bytes: int = Field(default=16 * 1024, ge=1024, le=256 * 1024, description="more is a 431")
    header_timeout_seconds: float = Field(default=10.0, gt=0, le=120, description="for a request's headers")
    max_body_bytes: int = Field(default=16 * 1024, ge=1024, le=1024 * 1024, description="more is a 413")
    body_timeout_seconds: float = Field(default=10.0, gt=0, le=60, description="for a request's body")
    cors_origins: str = Field(
        default="", description="web pages that may ask: https://shop.example, separated by commas; * is any"
    )
    allowed_hosts: str = Field(
        default="",
        description="names that requests may give the host, separated by commas; empty: on a loopback address those of "
        "loopback, else any",
    )
    max_memory_mb: int = Field(
        default=1024, ge=128, le=1_000_000, description="of the gateway, without replicas; beyond it is 503"
    )
    max_connections: int = Field(
        default=4096, ge=16, le=100_000, description="open at once; then the one idle longest makes room"
    )

    @field_validator("cors_origins")
    @classmethod
    def _origins_as_browsers_send_them(cls, origins: str) -> str:
        for origin in filter(None, map(str.strip, origins.split(","))):
            if origin != "*" and not re.fullmatch(r"https?://[^/\s*?#@]+", origin):
                raise ValueError(f"{origin!r} must be a scheme and a host, like https://shop.example, and no more")
        return origins

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_are_names(cls, hosts: str) -> str:
        for host in filter(None, map(str.strip, hosts.split(","))):
            if not re.fullmatch(r"[\w.-]+|[0-9a-fA-F:.]+", host):
                raise ValueError(f"{host!r} must be a name or an address alone, like shop.example, without a port")
        return hosts

    @property
    def host_names(self) -> list[str]:
        """The allowed hosts as a list."""
        return [host for item in self.allowed_hosts.split(",") if (host := item.strip())]

    @property
    def allowed_origins(self) -> list[str]:
        """The origins as a list."""
        return [origin for item in self.cors_origins.split(",") if (origin := item.strip())]


class OutcomeSettings(BaseModel):
    """Plans and what came of them, kept as rows to train on (docs/own-data.md)."""

    model_config = _FROZEN

    dir: Path | None = Field(default=None, description="a folder for them; without one nothing is kept")
    text: bool = Field(default=False, description="keep the shoppers' words too; training needs them")
    file_megabytes: int = Field(default=64, ge=1, le=4096, description="then another file begins")
    files: int = Field(default=16, ge=1, le=1000, description="so many full ones of plans are kept, and of outcomes")
    key: SecretStr = Field(
        default=SecretStr(""), description="that hosts share, so that each takes outcomes of the others' plans"
    )

    @model_validator(mode="after")
    def _text_goes_somewhere(self) -> Self:
        if self.text and self.dir is None:
            raise ValueError("PEAKPLAN_OUTCOMES_TEXT needs PEAKPLAN_OUTCOMES_DIR, the folder that keeps the words")
        return self
