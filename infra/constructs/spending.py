"""The fleet's budget and the detection of unusual cost, told where tickets are told.

Both see a bill by the tag that every resource has, once the account that pays has activated it for cost allocation
(docs/fleet.md). An account may be refused either, so nothing else is in their stack. Not run in AWS.
"""

from __future__ import annotations

import json

from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_ce as ce
from constructs import Construct

from infra.fleet.parts import TAG
from infra.fleet.settings import FleetSettings
from infra.fleet.spending import spending

_Subscriber = budgets.CfnBudget.SubscriberProperty
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
            notifications_with_subscribers=[_notification(kind, topic) for kind in ("ACTUAL", "FORECASTED")],
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


def _notification(kind: str, topic: str) -> budgets.CfnBudget.NotificationWithSubscribersProperty:
    return budgets.CfnBudget.NotificationWithSubscribersProperty(
        notification=budgets.CfnBudget.NotificationProperty(
            notification_type=kind, comparison_operator="GREATER_THAN", threshold=100, threshold_type="PERCENTAGE"
        ),
        subscribers=[_Subscriber(subscription_type="SNS", address=topic)],
    )
