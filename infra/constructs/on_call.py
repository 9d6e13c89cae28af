"""The targets of notifications: encrypted topics with the on-call addresses subscribed, or the team's own topics."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.constructs.log_storage import removal_policy
from infra.constructs.spending import PUBLISHERS
from infra.fleet.settings import FleetSettings

_ALARMS = iam.ServicePrincipal("cloudwatch.amazonaws.com")
_SPENDING = tuple(iam.ServicePrincipal(name) for name in PUBLISHERS)


@dataclass(frozen=True)
class OnCallTopics:
    """The ARNs of the SNS topics: one for pages, one for tickets."""

    page: str
    ticket: str


def topic_name(settings: FleetSettings, name: str) -> str:
    """Return the name of a topic of ours: pages or tickets."""
    return f"peakplan-{settings.name}-{name}"


class OnCall(Construct):
    """The targets of every notification of a fleet; `topics` are the actions of its alarms."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        self._settings = settings
        self._key: kms.Key | None = None
        told = settings.on_call
        self.topics = OnCallTopics(
            page=self._topic("Pages", "pages", told.page),
            ticket=self._topic("Tickets", "tickets", told.ticket, *_SPENDING),
        )

    def _topic(self, id: str, name: str, address: str, *others: iam.IPrincipal) -> str:
        """Return the ARN of the team's own topic, or of a new one that writes to the address.

        Besides alarms, the services `others` may publish to a new one.
        """
        if address.startswith("arn:"):
            return address
        topic = sns.Topic(
            self,
            id,
            topic_name=topic_name(self._settings, name),
            display_name=f"Peakplan {self._settings.name} {name}",
            master_key=self._shared_key(),
            enforce_ssl=True,
        )
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[_ALARMS, *others],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
        by_https = address.startswith(
            "https://"
        )  # a pager confirms by itself; e-mail waits for a click, and ends by one
        kind = subscriptions.UrlSubscription if by_https else subscriptions.EmailSubscription
        topic.add_subscription(kind(address))
        return topic.topic_arn

    def _shared_key(self) -> kms.Key:
        """Return a customer-managed key, because CloudWatch may not use the account's aws/sns key.

        The key policy has no condition: CloudWatch's calls to KMS carry no aws:SourceAccount, so one would mute every
        alarm. The topic's policy decides whose alarms may publish.
        """
        if self._key is None:
            key = self._key = kms.Key(
                self,
                "Key",
                description=f"Notifications of {self._settings.name}",
                enable_key_rotation=True,
                removal_policy=removal_policy(self._settings),
            )
            key.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[_ALARMS, *_SPENDING],
                    actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                    resources=["*"],  # in a key policy this means the key itself
                )
            )
        return self._key
