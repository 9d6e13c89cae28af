"""Findings of the template checks that are meant, each with its reason beside the construct that it is about."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from constructs import IConstruct


def acknowledge(construct: IConstruct, finding: str, reason: str) -> None:
    """Let `finding` (as the check prints it) pass on `construct` and what is inside it, for `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))
