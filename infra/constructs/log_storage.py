"""Log groups with the settings' retention, and what becomes of data whose stack is deleted."""

from __future__ import annotations

from aws_cdk import Aws, Fn, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.acknowledge import LOGS_UNDER_A_KEY, skip_in_checkov
from infra.fleet.settings import FleetSettings


def removal_policy(settings: FleetSettings) -> RemovalPolicy:
    """Return the policy for data and logs whose stack is deleted.

    Retained data survives a deletion, but not a first creation that fails: there a resource with a fixed name would
    stand in the way of every retry (aws-cdk issue 16270).
    """
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if settings.deletion_protection else RemovalPolicy.DESTROY


def log_group(scope: Construct, id: str, settings: FleetSettings, name: str | None = None) -> logs.LogGroup:
    """Return a new log group with the settings' retention, under their key if they name one.

    A group whose name begins with `name` ends it with the beginning of its stack's own id: what a deleted stack has
    kept does not stand in the way of its successor.
    """
    key = settings.log_key
    group = logs.LogGroup(
        scope,
        id,
        log_group_name=f"{name}/{_stack_mark()}" if name else None,
        removal_policy=removal_policy(settings),
        encryption_key=kms.Key.from_key_arn(scope, f"{id}Key", key) if key else None,
    )
    made = group.node.default_child
    assert isinstance(made, logs.CfnLogGroup)
    made.retention_in_days = settings.retention_days  # CDK's own property knows names, not days
    if key is None:
        reason = "CloudWatch Logs encrypts with its own key; log_key in the fleet file names one of yours"
        skip_in_checkov(group, LOGS_UNDER_A_KEY, reason)
    return group


def _stack_mark() -> str:
    """Return the first eight digits of the stack's UUID, the third part of its id."""
    return Fn.select(0, Fn.split("-", Fn.select(2, Fn.split("/", Aws.STACK_ID))))
