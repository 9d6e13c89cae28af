"""Private buckets: encrypted, versioned, closed to the public and to plain HTTP, with an end to what they hold."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.constructs.acknowledge import ACCESS_LOGS_OF_BUCKETS, acknowledge, skip_in_checkov
from infra.constructs.log_storage import removal_policy
from infra.fleet.settings import FleetSettings


def private_bucket(
    scope: Construct, id: str, settings: FleetSettings, *, logs: str, days: int | None, former_days: int = 1
) -> s3.Bucket:
    """Return a new bucket, whose access is logged in another one with the id `logs`.

    Objects are deleted after `days`, or never, and versions that were overwritten or deleted after `former_days` more.
    """
    return _bucket(scope, id, settings, days, former_days, access_log_bucket(scope, logs, settings))


def access_log_bucket(scope: Construct, id: str, settings: FleetSettings) -> s3.Bucket:
    """Return a new bucket for access logs, of a load balancer or of another bucket."""
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
