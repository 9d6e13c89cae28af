"""The targets of notifications, and what a fleet's spending tells them: a budget and the detection of unusual cost.

Budget and monitor see a bill by the tag that every resource has, once the account that pays has activated it for cost
allocation (docs/fleet.md). An account may be refused either, so they have a stack of their own. Not run in AWS.
"""

import json
from dataclasses import dataclass

from aws_cdk import Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_ce as ce
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.constructs.storage import removal_policy
from infra.fleet.cost import spending
from infra.fleet.parts import TAG
from infra.fleet.settings import FleetSettings

# Of AWS Budgets and Cost Anomaly Detection, which publish to the topic (Cost Management user guide).
PUBLISHERS = ("budgets.amazonaws.com", "costalerts.amazonaws.com")


class SpendingAlarms(Construct):
    """A monthly budget of one fleet, and an anomaly monitor where the fleet file asks for one."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, topic: str) -> None:
        super().__init__(scope, id)
        limits, name = spending(settings), f"peakplan-{settings.name}"
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=name,
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=limits.month, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{TAG}${settings.name}"]},
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=100,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=topic)],
                )
                for kind in ("ACTUAL", "FORECASTED")
            ],
        )
        if settings.cost_anomalies:
            self._watch(settings, name, limits.surprise, topic)

    def _watch(self, settings: FleetSettings, name: str, surprise: int, topic: str) -> None:
        usual = {"Tags": {"Key": TAG, "Values": [settings.name], "MatchOptions": ["EQUALS"]}}
        monitor = ce.CfnAnomalyMonitor(
            self, "Monitor", monitor_name=name, monitor_type="CUSTOM", monitor_specification=json.dumps(usual)
        )
        impact = {
            "Key": "ANOMALY_TOTAL_IMPACT_ABSOLUTE",
            "MatchOptions": ["GREATER_THAN_OR_EQUAL"],
            "Values": [str(surprise)],
        }
        ce.CfnAnomalySubscription(
            self,
            "Anomalies",
            subscription_name=name,
            frequency="IMMEDIATE",  # the only one that a topic may have
            monitor_arn_list=[monitor.attr_monitor_arn],
            subscribers=[ce.CfnAnomalySubscription.SubscriberProperty(type="SNS", address=topic)],
            threshold_expression=json.dumps({"Dimensions": impact}),
        )


_ALARMS = iam.ServicePrincipal("cloudwatch.amazonaws.com")
_SPENDING = tuple(iam.ServicePrincipal(name) for name in PUBLISHERS)


@dataclass(frozen=True)
class OnCallTopics:
    page: str
    ticket: str


def topic_name(settings: FleetSettings, name: str) -> str:
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
