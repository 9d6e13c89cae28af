"""A load test as `make event-load` wrote it down: what it sends, and the network that its workers stand in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.fleet.event_load import EventLoad, EventLoadError
from infra.fleet.settings import FleetSettings


@dataclass(frozen=True)
class CallerNetwork:
    """Where the workers stand: a network whose callers the fleet admits, and that resolves the fleet's names.

    `authority` is a file that verifies the fleet where no public list has its authority. `identity` is the name of a
    secret in AWS Secrets Manager: by the fleet's authentication a client certificate with its key (PEM), or a token.
    """

    vpc_id: str
    subnet_ids: tuple[str, ...]
    authority: str = ""
    identity: str = ""

    def __post_init__(self) -> None:
        if not self.vpc_id.startswith("vpc-") or not self.subnet_ids:
            raise EventLoadError(
                "say where the workers stand: VPC=vpc-... SUBNETS=subnet-...,subnet-... of a caller's network, from "
                "which the fleet's names are resolved and its load balancers reached"
            )
        if any(not subnet.startswith("subnet-") for subnet in self.subnet_ids):
            raise EventLoadError(f"SUBNETS={','.join(self.subnet_ids)}: each must be subnet-...")
        if self.authority and not Path(self.authority).is_file():
            raise EventLoadError(f"AUTHORITY={self.authority}: no such file")


def check_identity(settings: FleetSettings, network: CallerNetwork) -> None:
    """Raise EventLoadError where the fleet verifies its callers and the workers would come as nobody."""
    method = settings.load_balancer.authentication.method
    wanted = {"mtls": "a client certificate and its key (PEM)", "jwt": "a token"}.get(method)
    if wanted and not network.identity:
        raise EventLoadError(
            f"{settings.name} verifies its callers by {method}: store {wanted} of a caller that is the load's own as a "
            "secret in AWS Secrets Manager, and name it: IDENTITY=..."
        )


def write(path: Path, load: EventLoad, network: CallerNetwork) -> None:
    """Write the load, without the fleet's own settings."""
    found = {name: getattr(load, name) for name in ("multiplier", "share", "minutes", "fresh", "caller", "curve")}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"load": found, "network": asdict(network)}, indent=1) + "\n", encoding="utf-8")


def read(path: Path, settings: FleetSettings) -> tuple[EventLoad, CallerNetwork]:
    """Return what `write` wrote. Raises EventLoadError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        load = EventLoad(settings, **{**found["load"], "curve": tuple(found["load"]["curve"])})
        network = CallerNetwork(**{**found["network"], "subnet_ids": tuple(found["network"]["subnet_ids"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EventLoadError(f"{path}: {error}; `make event-load FLEET={settings.name}` writes it") from error
    check_identity(settings, network)
    return load, network
