"""Where notifications go: an encrypted topic with the on-call address subscribed, or a topic that the team has."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.constructs.network import removal_policy
from infra.fleet.settings import FleetSettings

_ALARMS = iam.ServicePrincipal("cloudwatch.amazonaws.com")


class OnCall(Construct):
    """The target of every notification of a fleet; `topic_arn` is the action of its alarms."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        if settings.on_call.startswith("arn:"):
            self.topic_arn = settings.on_call
            return
        only_ours = {"StringEquals": {"aws:SourceAccount": Stack.of(self).account}}
        # A key of our own: CloudWatch may not use the account's aws/sns key. Without a condition: its calls to KMS
        # carry no aws:SourceAccount, so one here would silence every alarm; whose alarms publish, the topic decides.
        key = kms.Key(
            self,
            "Key",
            description=f"Notifications of {settings.name}",
            enable_key_rotation=True,
            removal_policy=removal_policy(settings),
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[_ALARMS],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],  # in a key's policy: this key
            )
        )
        topic = sns.Topic(
            self,
            "Topic",
            topic_name=f"peakplan-{settings.name}-on-call",
            display_name=f"Peakplan {settings.name}",
            master_key=key,
            enforce_ssl=True,
        )
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[_ALARMS],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions=only_ours,
            )
        )
        topic.add_subscription(subscriptions.EmailSubscription(settings.on_call))
        self.topic_arn = topic.topic_arn
