"""The groups of settings that belong to no engine: queue, cache, callers, HTTP, outcomes, experiment."""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from service.settings.choices import HANG_SECONDS, CallerSource, Order

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MOST_ARMS = 8
NO_SHOP = "none"  # instead of a folder: an arm of a service with a shop folder that has none
ROUTED = frozenset({"routing-off", "routing-overload", "routing-always"})  # arms that choose who plans

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class ExperimentSettings(BaseModel):
    """An experiment over plans (docs/value.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(default="", description="its name, which is also its salt; empty: none")
    arms: str = Field(
        default="",
        description="arms and their shares: control=50,rules=50",
    )

    serves: str = Field(
        default="",
        description="this host's arms, comma-separated; empty: all",
    )

    shops: str = Field(
        default="",
        description="shop folders of arms, or none: newer=shops/newer,without=none",
    )

    @field_validator("arms")
    @classmethod
    def _arms_can_be_read(cls, arms: str) -> str:
        found = _shares(arms)
        if len(found) > _MOST_ARMS or (arms and not sum(found.values())):
            raise ValueError(f"name at most {_MOST_ARMS} arms, and give one of them a share")
        return arms

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if bool(self.name) != bool(self.arms) or (self.name and not _NAME.fullmatch(self.name)):
            raise ValueError(
                "PEAKPLAN_EXPERIMENT_NAME (letters, digits and . _ -) and PEAKPLAN_EXPERIMENT_ARMS go together"
            )
        if unknown := self.served - set(self.shares):
            raise ValueError(
                f"PEAKPLAN_EXPERIMENT_SERVES names {', '.join(sorted(unknown))}, which PEAKPLAN_EXPERIMENT_ARMS has not"
            )
        if no_arms := _folders(self.shops).keys() - set(self.shares):
            raise ValueError(
                f"PEAKPLAN_EXPERIMENT_SHOPS names {', '.join(sorted(no_arms))}, which PEAKPLAN_EXPERIMENT_ARMS has not"
            )
        return self

    @property
    def shop_dirs(self) -> dict[str, Path | None]:
        """The shop folder of each arm of this host that has one of its own; None for an arm that is to have none."""
        folders = _folders(self.shops)
        return {arm: folder for arm, folder in folders.items() if not self.served or arm in self.served}

    @property
    def served(self) -> frozenset[str]:
        """The arms that this host serves; none is all of them."""
        return frozenset(filter(None, map(str.strip, self.serves.split(","))))

    @property
    def routes_by_worth(self) -> bool:
        """Whether this host serves an arm for which replicas have to take first what is worth most."""
        return not (ROUTED - {"routing-off"}).isdisjoint(self.served or self.shares)

    @property
    def shares(self) -> dict[str, int]:
        return _shares(self.arms)


def _shares(arms: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in filter(None, map(str.strip, arms.split(","))):
        name, _, share = item.partition("=")
        if not _NAME.fullmatch(name) or not re.fullmatch(r"[0-9]{1,6}", share) or name in found:
            raise ValueError(f"{item!r} must be name=share, the share a whole number, and no name twice")
        found[name] = int(share)
    return found


def _folders(shops: str) -> dict[str, Path | None]:
    found: dict[str, Path | None] = {}
    for item in filter(None, map(str.strip, shops.split(","))):
        name, _, folder = item.partition("=")
        if not folder or name in found:
            raise ValueError(f"PEAKPLAN_EXPERIMENT_SHOPS: {item!r} must be arm=folder or arm=none, and no arm twice")
        found[name] = None if folder == NO_SHOP else Path(folder)
    return found


class QueueSettings(BaseModel):
    """Queueing, admission and replacing replicas."""

    model_config = _FROZEN

    order: Order = Field(default="adaptive", description="which waiting request goes first")
    hang_seconds: float = Field(
        default=HANG_SECONDS,
        gt=0,
        le=60,
        description="a generation longer than this, and 8 times the usual, counts as hung",
    )
    min_replicas: int = Field(default=1, ge=1, le=256, description="with fewer replicas up, not ready")
    lost_replica_seconds: float = Field(
        default=0,
        ge=0,
        le=86400,
        description="with a replica down for longer, not ready; 0: never",
    )
    backlog_ms: int = Field(
        default=100, ge=10, le=2000, description="the gateway's own backlog above which it answers 503"
    )


class CacheSettings(BaseModel):
    """The plan cache (docs/decisions/0011)."""

    model_config = _FROZEN

    entries: int = Field(
        default=20_000, ge=0, le=10_000_000, description="plans in the in-process cache; 0 turns it off"
    )
    seconds: float = Field(default=900.0, gt=0, le=86_400, description="how long a plan is cached")
    url: SecretStr | None = Field(default=None, description="redis://... of a cache that hosts share")
    key: SecretStr = Field(
        default=SecretStr(""),
        description="signs shared entries: only hosts with the key can write plans",
    )
    wait_ms: float = Field(default=5.0, gt=0, le=100, description="longest wait for the shared cache")
    iam_user: str = Field(default="", description="the ElastiCache user of the instance role, instead of a password")
    iam_cache: str = Field(default="", description="that cache's ElastiCache replication group")
    iam_region: str = Field(default="", description="that cache's region")

    @field_validator("url")
    @classmethod
    def _of_redis(cls, url: SecretStr | None) -> SecretStr | None:
        known = ("redis://", "rediss://", "unix://")
        if url is not None and not url.get_secret_value().startswith(known):
            raise ValueError(f"must start with one of {' '.join(known)}")  # without the URL: it may hold a password
        return url

    @model_validator(mode="after")
    def _iam_is_whole(self) -> Self:
        given = [bool(value) for value in (self.iam_user, self.iam_cache, self.iam_region)]
        encrypted = self.url is not None and self.url.get_secret_value().startswith("rediss://")
        if any(given) and not (all(given) and encrypted):
            raise ValueError(
                "PEAKPLAN_CACHE_IAM_USER, PEAKPLAN_CACHE_IAM_CACHE and PEAKPLAN_CACHE_IAM_REGION go together, with a "
                "PEAKPLAN_CACHE_URL of rediss://: ElastiCache takes a role's token over TLS alone"
            )
        return self


class AuthSettings(BaseModel):
    """API keys and rate limits."""

    model_config = _FROZEN

    api_keys: SecretStr = Field(default=SecretStr(""), description="lines of `name, SHA-256 of a key, its rate`")
    api_keys_file: Path | None = Field(
        default=None, description="a file of lines of PEAKPLAN_API_KEYS, reloaded when it changes"
    )
    control_token: SecretStr = Field(
        default=SecretStr(""), description="allows POST /drain and /reload from this host; empty: signals only"
    )
    rate: float = Field(default=0.0, ge=0, le=1e6, description="a caller's requests per second; 0: unlimited")
    caller_from: CallerSource = Field(
        default="connection",
        description="who calls, without API keys: connection, its address; behind a load balancer that alone can reach "
        "this host: forwarded, the address it adds, or certificate or token, which it verified",
    )
    caller_claim: str = Field(
        default="sub", min_length=1, max_length=100, description="the token's claim that names the caller"
    )
    caller_rates: str = Field(default="", description="name=rate, comma-separated")
    caller_networks: str = Field(default="", description="name=network, comma-separated")

    @model_validator(mode="after")
    def _one_tells_who_calls(self) -> Self:
        has_keys = bool(self.api_keys.get_secret_value().strip()) or self.api_keys_file is not None
        if has_keys and self.caller_from != "connection":
            raise ValueError(
                f"PEAKPLAN_CALLER_FROM={self.caller_from} and PEAKPLAN_API_KEYS both tell who calls: choose one"
            )
        return self

    @field_validator("caller_rates")
    @classmethod
    def _rates_can_be_read(cls, rates: str) -> str:
        for name, rate in _pairs(rates):
            if not re.fullmatch(r"\d+(\.\d+)?", rate) or not 0 < float(rate) <= 1e6:
                raise ValueError(f"{name}={rate}: write a rate above 0, in requests per second")
        return rates

    @field_validator("caller_networks")
    @classmethod
    def _networks_can_be_read(cls, networks: str) -> str:
        for _, network in _pairs(networks):
            ipaddress.ip_network(network)
        return networks

    @property
    def rates(self) -> dict[str, float]:
        return {name: float(rate) for name, rate in _pairs(self.caller_rates)}

    @property
    def networks(self) -> list[tuple[str, ipaddress.IPv4Network | ipaddress.IPv6Network]]:
        """Callers' networks, each with its caller."""
        return [(name, ipaddress.ip_network(network)) for name, network in _pairs(self.caller_networks)]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of `name=value,name=value`. Raises ValueError for an item that is none."""
    for item in filter(None, map(str.strip, text.split(","))):
        name, separator, value = map(str.strip, item.partition("="))
        if not (name and separator and value):
            raise ValueError(f"{item!r} must be name=value")
        yield name, value


class HttpSettings(BaseModel):
    """Limits on requests and connections."""

    model_config = _FROZEN

    max_header_bytes: int = Field(
        default=16 * 1024, ge=1024, le=256 * 1024, description="largest request headers; more gets a 431"
    )
    header_timeout_seconds: float = Field(default=10.0, gt=0, le=120, description="time limit for receiving headers")
    max_body_bytes: int = Field(
        default=16 * 1024, ge=1024, le=1024 * 1024, description="largest request body; more gets a 413"
    )
    body_timeout_seconds: float = Field(default=10.0, gt=0, le=60, description="time limit for receiving a body")
    cors_origins: str = Field(
        default="", description="web origins that may call (https://shop.example), comma-separated; *: any"
    )
    allowed_hosts: str = Field(
        default="",
        description="host names of requests, comma-separated; empty: loopback's on a loopback address, else any",
    )
    max_memory_mb: int = Field(
        default=1024,
        ge=128,
        le=1_000_000,
        description="the gateway's memory, without replicas, above which it answers 503",
    )
    max_connections: int = Field(
        default=4096, ge=16, le=100_000, description="open connections; above, the longest-idle is closed"
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
        return [host for item in self.allowed_hosts.split(",") if (host := item.strip())]

    @property
    def allowed_origins(self) -> list[str]:
        return [origin for item in self.cors_origins.split(",") if (origin := item.strip())]


class OutcomeSettings(BaseModel):
    """Logs of plans, their outcomes (docs/own-data.md) and events (docs/value.md)."""

    model_config = _FROZEN

    dir: Path | None = Field(default=None, description="the folder; empty: nothing is logged")
    text: bool = Field(default=False, description="log shoppers' words too; training needs them")
    file_megabytes: int = Field(default=64, ge=1, le=4096, description="size at which a new file starts")
    files: int = Field(default=16, ge=1, le=1000, description="full files to keep of each kind")
    key: SecretStr = Field(
        default=SecretStr(""), description="a shared key: hosts accept outcomes of each other's plans"
    )
    spill_dir: Path | None = Field(
        default=None, description="a folder on another disk for events that the first refuses"
    )
    postgres: SecretStr | None = Field(
        default=None, description="postgresql://... that gets every event from the files"
    )
    firehose: str = Field(
        default="",
        pattern=r"^(arn:aws[a-z-]*:firehose:[a-z0-9-]+:\d{12}:deliverystream/[A-Za-z0-9_.-]{1,64})?$",
        description="the ARN of an Amazon Data Firehose stream that gets every event and plan",
    )
    actions: str = Field(
        default="",
        description="the shop's own actions, comma-separated; buy_now=purchase is kept as purchase",
    )
    salt_days: int = Field(default=28, ge=1, le=366, description="how long a shopper keeps the same hash in events")

    @field_validator("actions")
    @classmethod
    def _actions_can_be_read(cls, actions: str) -> str:
        _own_actions(actions)
        return actions

    @property
    def own_actions(self) -> dict[str, str]:
        """The shop's own actions, each with the name that it is kept by."""
        return _own_actions(self.actions)

    @model_validator(mode="after")
    def _outcomes_go_somewhere(self) -> Self:
        if self.firehose and self.postgres is not None:
            raise ValueError("choose PEAKPLAN_OUTCOMES_POSTGRES or PEAKPLAN_OUTCOMES_FIREHOSE: events go to one place")
        needs = {"POSTGRES": self.postgres, "FIREHOSE": self.firehose, "SPILL_DIR": self.spill_dir, "TEXT": self.text}
        for name, value in needs.items():
            if value and self.dir is None:
                raise ValueError(f"PEAKPLAN_OUTCOMES_{name} needs PEAKPLAN_OUTCOMES_DIR, the folder to log to")
        return self


def _own_actions(actions: str) -> dict[str, str]:
    found = {}
    for item in filter(None, map(str.strip, actions.split(","))):
        name, means, kept = item.partition("=")
        if not re.fullmatch(r"[!-~]{1,100}", name) or (means and not re.fullmatch(r"[a-z_]{1,100}", kept)):
            raise ValueError(f"{item!r} must be a name of visible ASCII characters, or name=purchase")
        found[name] = kept or name
    return found
