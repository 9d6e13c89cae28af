"""Shoppers' events: what a host needs to keep them, and the delivery stream and bucket that they go on to."""

from aws_cdk import Aws, CfnOutput
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kinesisfirehose as firehose
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.acknowledge import accept_star, allow, objects_of
from infra.constructs.storage import log_group, private_bucket, removal_policy
from infra.fleet.settings import FleetSettings
from infra.fleet.shopper_events import (
    BUFFER_MEGABYTES,
    BUFFER_SECONDS,
    FILE_MEGABYTES,
    FILES,
    FOLDER,
    key_parameter,
    stream_name,
)

_EVENTS, _FAILED = "events/", "failed/"
_LOG_STREAM = "delivery"


def events_environment(settings: FleetSettings) -> dict[str, str]:
    if not settings.shopper_events.enabled:
        return {}
    environment = {
        "PEAKPLAN_OUTCOMES_DIR": FOLDER,
        "PEAKPLAN_OUTCOMES_FILE_MEGABYTES": str(FILE_MEGABYTES),
        "PEAKPLAN_OUTCOMES_FILES": str(FILES),
        "PEAKPLAN_OUTCOMES_KEY_PARAMETER": key_parameter(settings.name),
        "PEAKPLAN_REGION": settings.region,
    }
    if settings.shopper_events.bucket:
        environment["PEAKPLAN_OUTCOMES_FIREHOSE"] = _stream_arn(settings)
    if (experiment := settings.shopper_events.experiment) is not None:
        environment["PEAKPLAN_EXPERIMENT_NAME"] = experiment.name
        environment["PEAKPLAN_EXPERIMENT_ARMS"] = experiment.words
    return environment


def admit_to_events(role: iam.Role, settings: FleetSettings) -> None:
    """Let a host's role read the key and fill the stream, where the fleet has them.

    Who may read a SecureString through Systems Manager may decrypt it with AWS's own key (AWS KMS developer guide, How
    AWS Systems Manager Parameter Store uses AWS KMS).
    """
    if not settings.shopper_events.enabled:
        return
    key = f"arn:{Aws.PARTITION}:ssm:{Aws.REGION}:{Aws.ACCOUNT_ID}:parameter{key_parameter(settings.name)}"
    allow(role, "EventsKey", ["ssm:GetParameter"], key)
    if settings.shopper_events.bucket:
        allow(role, "Events", ["firehose:PutRecordBatch"], _stream_arn(settings))


def _stream_arn(settings: FleetSettings) -> str:
    place = f"{settings.region}:{Aws.ACCOUNT_ID}"
    return f"arn:{Aws.PARTITION}:firehose:{place}:deliverystream/{stream_name(settings.name)}"


class EventDelivery(Construct):
    """The stream, and its `bucket`: events as gzipped JSON lines under events/ and the day on which they came.

    It is deployed after the cells. Until it is there, events wait in their hosts' files.
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        self.bucket = private_bucket(self, "Events", settings, logs="AccessLogs", days=settings.shopper_events.days)
        group = log_group(self, "Log", settings)
        written = logs.LogStream(
            self, "LogStream", log_group=group, log_stream_name=_LOG_STREAM, removal_policy=removal_policy(settings)
        )
        role = self._role(settings, group)
        stream = firehose.CfnDeliveryStream
        self.stream = stream(
            self,
            "Stream",
            delivery_stream_name=stream_name(settings.name),
            delivery_stream_type="DirectPut",
            delivery_stream_encryption_configuration_input=stream.DeliveryStreamEncryptionConfigurationInputProperty(
                key_type="AWS_OWNED_CMK"
            ),
            extended_s3_destination_configuration=stream.ExtendedS3DestinationConfigurationProperty(
                bucket_arn=self.bucket.bucket_arn,
                role_arn=role.role_arn,
                buffering_hints=stream.BufferingHintsProperty(
                    interval_in_seconds=BUFFER_SECONDS, size_in_m_bs=BUFFER_MEGABYTES
                ),
                compression_format="GZIP",
                prefix=f"{_EVENTS}!{{timestamp:yyyy/MM/dd}}/",
                error_output_prefix=f"{_FAILED}!{{firehose:error-output-type}}/!{{timestamp:yyyy/MM/dd}}/",
                cloud_watch_logging_options=stream.CloudWatchLoggingOptionsProperty(
                    enabled=True, log_group_name=group.log_group_name, log_stream_name=written.log_stream_name
                ),
            ),
        )
        self.stream.node.add_dependency(role)
        CfnOutput(self, "Bucket", value=self.bucket.bucket_name, description="Shoppers' events, for peakplan value")

    def _role(self, settings: FleetSettings, group: logs.LogGroup) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "firehose.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
            ),
            description=f"Brings shoppers' events of {settings.name} to their bucket",
        )
        # Amazon Data Firehose developer guide, Grant Firehose access to an Amazon S3 destination.
        on_bucket = ("s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads")
        on_objects = ("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject")
        allow(role, "Bucket", on_bucket, self.bucket.bucket_arn)
        allow(role, "Objects", on_objects, self.bucket.arn_for_objects("*"))
        allow(role, "Log", ["logs:PutLogEvents"], group.log_group_arn)
        accept_star(
            role,
            objects_of(self.bucket),
            "Firehose names objects by their time (Amazon Data Firehose developer guide, Grant Firehose access to an "
            "Amazon S3 destination)",
        )
        return role
