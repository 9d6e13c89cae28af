"""The emulated account's clock, which a test sets by a parameter: what has passed, and what is still to come."""

from datetime import UTC, datetime
from typing import Any

from moto.ssm.models import ssm_backends

NOW = "/emulator/now"  # an ISO 8601 time; the machine's own clock where it is not there


def now(account: str, region: str) -> datetime:
    """The time in the account. Asked inside the server alone."""
    told = ssm_backends[account][region].get_parameter(NOW)
    return datetime.fromisoformat(told.value) if told else datetime.now(UTC)


def is_set(account: str, region: str) -> bool:
    """Whether a test has taken the clock into its hands. Asked inside the server alone."""
    return ssm_backends[account][region].get_parameter(NOW) is not None


def set_clock(ssm: Any, time: datetime) -> None:
    """Move the account's clock, from a test."""
    ssm.put_parameter(Name=NOW, Value=time.isoformat(), Type="String", Overwrite=True)
