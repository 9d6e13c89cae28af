"""Log groups and private buckets, and whether data outlives its stack."""

from aws_cdk import Aws, Duration, Fn, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.acknowledge import ACCESS_LOGS_OF_BUCKETS, LOGS_UNDER_A_KEY, acknowledge, skip_in_checkov
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
    mark = Fn.select(0, Fn.split("-", Fn.select(2, Fn.split("/", Aws.STACK_ID))))  # the first part of its UUID
    group = logs.LogGroup(
        scope,
        id,
        log_group_name=f"{name}/{mark}" if name else None,
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


def private_bucket(
    scope: Construct, id: str, settings: FleetSettings, *, logs: str, days: int | None, former_days: int = 1
) -> s3.Bucket:
    """Return a new bucket, whose access is logged in another one with the id `logs`.

    Objects are deleted after `days`, or never, and versions that were overwritten or deleted after `former_days` more.
    """
    return _bucket(scope, id, settings, days, former_days, access_log_bucket(scope, logs, settings))


def access_log_bucket(scope: Construct, id: str, settings: FleetSettings) -> s3.Bucket:
    bucket = _bucket(scope, id, settings, settings.retention_days, 1, None)
    reason = "It holds access logs; a log of its own would fill itself"
    acknowledge(bucket, "AwsSolutions::AwsSolutions-S1", reason)
    skip_in_checkov(bucket, ACCESS_LOGS_OF_BUCKETS, reason)
    return bucket


def _bucket(
    scope: Construct, id: str, settings: FleetSettings, days: int | None, former_days: int, logs: s3.Bucket | None
) -> s3.Bucket:
    return s3.Bucket(
        scope,
        id,
        server_access_logs_bucket=logs,
        encryption=s3.BucketEncryption.S3_MANAGED,  # the only encryption that load balancers can write to
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        versioned=True,
        lifecycle_rules=[
            s3.LifecycleRule(
                expiration=None if days is None else Duration.days(days),
                noncurrent_version_expiration=Duration.days(former_days),
                abort_incomplete_multipart_upload_after=Duration.days(1),
            )
        ],
        removal_policy=removal_policy(settings),
    )
