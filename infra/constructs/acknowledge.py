"""Accepted findings of the template checks, each with its reason beside the construct that it is about."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def acknowledge(construct: IConstruct, finding: str, reason: str) -> None:
    """Accept `finding` (as the check prints it) on `construct` and everything inside it, for `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))
