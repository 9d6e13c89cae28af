"""A fleet's budget is that of a month with its dearest event, and a ticket tells when it will not do."""

import json
from typing import Any

import pytest

from infra.fleet.cost import HOURS_A_MONTH, Prices, bills
from infra.fleet.spending import spending
from tests.infra.fleet.fleets import dev_fleet
from tests.infra.synthesis import changed_fleet, templates

SALE = {"name": "sale", "start": "2030-07-13T07:00:00Z", "end": "2030-07-14T07:00:00Z", "multiplier": 2}
SMALL = {"name": "small", "start": "2030-08-13T07:00:00Z", "end": "2030-08-13T08:00:00Z", "multiplier": 1.5}


def test_a_month_has_its_dearest_event_and_a_fifth_above() -> None:
    settings = dev_fleet({"events": [SALE, SMALL], "groups.0.maximum": 8})
    ordinary, sale, _ = (bill.hourly for bill in bills(settings, Prices.from_json()))
    expected = 1.2 * (ordinary * HOURS_A_MONTH + 24 * (sale - ordinary))
    assert spending(settings).month == pytest.approx(expected, abs=1)
    assert spending(settings).surprise == pytest.approx(ordinary * HOURS_A_MONTH / 60, abs=1)


def test_the_fleet_files_own_budget_comes_first() -> None:
    assert spending(dev_fleet({"monthly_budget": 1234})).month == 1234


def of_kind(stack: str, kind: str, found: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    resources = (found or templates("dev"))[stack]["Resources"]
    return [each["Properties"] for each in resources.values() if each["Type"] == kind]


def test_budget_and_anomalies_look_at_the_tag_that_every_resource_has_and_tell_tickets() -> None:
    asked = changed_fleet({"cost_anomalies": True})
    assert of_kind("Spending", "AWS::CE::AnomalyMonitor") == [], "a member account would be refused it"
    (budget,) = of_kind("Spending", "AWS::Budgets::Budget", asked)
    (monitor,) = of_kind("Spending", "AWS::CE::AnomalyMonitor", asked)
    (subscription,) = of_kind("Spending", "AWS::CE::AnomalySubscription", asked)
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:peakplan:fleet$dev"]}
    assert json.loads(monitor["MonitorSpecification"])["Tags"]["Key"] == "peakplan:fleet"
    tags = of_kind("Cell-1", "AWS::ElasticLoadBalancingV2::LoadBalancer")[0]["Tags"]
    assert {"Key": "peakplan:fleet", "Value": "dev"} in tags
    told = [each["Subscribers"][0]["Address"] for each in budget["NotificationsWithSubscribers"]]
    topic = subscription["Subscribers"][0]["Address"]
    assert told == [topic, topic]
    (named,) = [each for each in of_kind("Observability", "AWS::SNS::Topic") if each["TopicName"].endswith("tickets")]
    assert json.dumps(topic).endswith(f':{named["TopicName"]}"]]}}')
    policies = of_kind("Observability", "AWS::SNS::TopicPolicy")
    (of_topic,) = [each for each in policies if "Tickets" in json.dumps(each["Topics"])]
    publishers = [
        statement["Principal"].get("Service") for statement in of_topic["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    ]  # fmt: skip
    assert sorted(publishers[0]) == ["budgets.amazonaws.com", "cloudwatch.amazonaws.com", "costalerts.amazonaws.com"]


def test_images_end_by_the_tag_that_the_pipeline_gives_them() -> None:
    (pipeline,) = of_kind("Image", "AWS::ImageBuilder::ImagePipeline")
    (policy,) = of_kind("Image", "AWS::ImageBuilder::LifecyclePolicy")
    assert policy["ResourceSelection"]["TagMap"] == pipeline["ImageTags"] == {"peakplan:fleet": "dev"}
    (detail,) = policy["PolicyDetails"]
    assert (detail["Filter"]["RetainAtLeast"], detail["Filter"]["Type"]) == (5, "AGE")
    assert detail["ExclusionRules"]["Amis"]["LastLaunched"] == {"Unit": "MONTHS", "Value": 3}


@pytest.mark.parametrize("stack", ["Cell-1", "Rollout"])
def test_a_log_group_that_a_deleted_stack_kept_is_in_nobodys_way(stack: str) -> None:
    """Its name ends with a part of its own stack's id, which the next stack does not have."""
    for group in of_kind(stack, "AWS::Logs::LogGroup"):
        assert "AWS::StackId" in json.dumps(group["LogGroupName"])
