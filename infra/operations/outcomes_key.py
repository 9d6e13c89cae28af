"""The key that a fleet's hosts share, by which each knows the plans of all: made once, in Parameter Store.

CloudFormation makes no SecureString, and nobody needs to see this key, so a deploy makes it where it lacks.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from infra.fleet.settings import FleetSettings
from infra.fleet.shopper_events import key_parameter

_BYTES = 32


def make_key(settings: FleetSettings, ssm: Any) -> bool:
    """Make the key where the fleet keeps events and has none. Return whether it was made."""
    if not settings.shopper_events.enabled:
        return False
    try:
        ssm.put_parameter(
            Name=key_parameter(settings.name),
            Value=secrets.token_hex(_BYTES),
            Type="SecureString",
            Description=f"The key that the hosts of {settings.name} share for shoppers' events",
            Overwrite=False,
        )
    except ssm.exceptions.ParameterAlreadyExists:
        return False
    print(f"Made {key_parameter(settings.name)}, the key that hosts share for shoppers' events", flush=True)
    return True


def delete_key(settings: FleetSettings, ssm: Any) -> None:
    """Delete the key, without which no hash of a shopper can be made anew."""
    with suppress(ssm.exceptions.ParameterNotFound):
        ssm.delete_parameter(Name=key_parameter(settings.name))
