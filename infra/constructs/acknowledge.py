"""Roles' permissions, and accepted findings of the template checks, each with its reason beside what it is about."""

from collections.abc import Mapping, Sequence

from aws_cdk import Acknowledgment, Aws, CfnElement, CfnResource, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
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


def printed(arn: str) -> str:
    for token, value in {"Region": Aws.REGION, "AccountId": Aws.ACCOUNT_ID, "Partition": Aws.PARTITION}.items():
        arn = arn.replace(value, f"<AWS::{token}>")
    return arn


def objects_of(bucket: s3.Bucket) -> str:
    made = bucket.node.default_child
    assert isinstance(made, CfnElement)
    return f"<{made.stack.get_logical_id(made)}.Arn>/*"


def accept_star(role: IConstruct, resource: str, reason: str) -> None:
    """Accept that a role may act on a resource with a star, as the check prints it."""
    acknowledge(role, f"AwsSolutions::AwsSolutions-IAM5[Resource::{resource}]", reason)


def allow(
    role: iam.IRole,
    sid: str,
    actions: Sequence[str],
    *resources: str,
    conditions: Mapping[str, object] | None = None,
    because: str = "",
) -> None:
    """Let a role do `actions` on `resources`; `because` is why each of these has a star."""
    role.add_to_principal_policy(
        iam.PolicyStatement(sid=sid, actions=list(actions), resources=list(resources), conditions=conditions)
    )
    for resource in resources if because else ():
        accept_star(role, printed(resource), because)
