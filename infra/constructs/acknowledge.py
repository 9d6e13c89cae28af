"""Accepted findings of the template checks, each with its reason beside the construct that it is about."""

from __future__ import annotations

from aws_cdk import Acknowledgment, CfnResource, Validations
from constructs import IConstruct

# checkov's names of what our templates do not do, each on purpose somewhere (`peakplan fleet checkov`).
ACCESS_LOGS_OF_BUCKETS = "CKV_AWS_18"
AUTH_TOKENS_OF_CACHES = "CKV_AWS_31"
ACCESS_LOGS_OF_BALANCERS = "CKV_AWS_91"
WRITES_WITHOUT_RESOURCE = "CKV_AWS_111"
MANUAL_ACCEPTANCE = "CKV_AWS_123"
LOGS_UNDER_A_KEY = "CKV_AWS_158"


def acknowledge(construct: IConstruct, finding: str, reason: str) -> None:
    """Accept `finding` (as the check prints it) on `construct` and everything inside it, for `reason`."""
    Validations.of(construct).acknowledge(Acknowledgment(id=finding, reason=reason))


def skip_in_checkov(construct: IConstruct, check: str, reason: str) -> None:
    """Accept what checkov's `check` finds on the construct's own resource, for `reason`, which checkov prints."""
    # Not every construct names its default child.
    resource = next(each for each in construct.node.find_all() if isinstance(each, CfnResource))
    skips = [*(resource.get_metadata("checkov") or {}).get("skip", []), {"id": check, "comment": reason}]
    resource.add_metadata("checkov", {"skip": skips})
