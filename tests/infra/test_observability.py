"""The alarms of the observability stack as CloudFormation gets them."""

import json
import re
from typing import Any

import aws_cdk
import pytest
from aws_cdk.assertions import Template
from cdk_nag import AwsSolutionsChecks

from infra.fleet.alarm_kinds import Severity
from infra.fleet.alarms import cell_alarms
from infra.fleet.metrics import metrics
from infra.stacks import ObservabilityStack
from tests.infra.moto_server import MotoServer
from tests.infra.observability import TOLD, alarms, fleet, names, of_type, resources, stack, template


def test_every_cell_has_every_alarm_under_a_name_that_says_which() -> None:
    wanted = {f"peakplan-prime-day-{cell.cell}-{alarm.key}" for cell in names() for alarm in cell_alarms(fleet())}

    assert set(alarms()) == wanted


def test_every_notification_says_what_it_means_and_links_its_runbook() -> None:
    for name, alarm in alarms().items():
        assert re.search(
            r"^\[(page|ticket|part)\] .+ Runbook: https://\S+/dashboard/peakplan-prime-day-runbook-[a-z0-9-]+$",
            alarm["AlarmDescription"],
        ), name


def test_every_runbook_that_a_notification_links_is_a_page() -> None:
    boards = {each["DashboardName"]: each["DashboardBody"] for each in of_type("CloudWatch::Dashboard")}
    linked = {alarm["AlarmDescription"].rpartition("/")[2] for alarm in alarms().values()}
    assert linked <= set(boards)
    for name in linked:
        (widget,) = json.loads(boards[name])["widgets"]
        assert "## Mitigation" in widget["properties"]["markdown"]
        assert not re.search(r"\]\([a-z-]+\.md\)", widget["properties"]["markdown"]), "links lead to pages too"


def test_a_team_that_reads_runbooks_elsewhere_is_sent_there() -> None:
    settings = fleet().model_copy(update={"runbooks": "https://wiki.example.com/planner"})
    app = aws_cdk.App(analytics_reporting=False)
    found = Template.from_stack(ObservabilityStack(app, "Observability", settings=settings, cells=names())).to_json()
    described = [each["Properties"].get("AlarmDescription", "") for each in found["Resources"].values()]
    assert any(text.endswith("Runbook: https://wiki.example.com/planner/p99.md") for text in described)
    boards = [each for each in found["Resources"].values() if each["Type"] == "AWS::CloudWatch::Dashboard"]
    assert len(boards) == 1 + len(names()), "one of the fleet, and one of each cell"


def test_pages_and_tickets_notify_and_parts_and_pages_inputs_do_not() -> None:
    by_key = {alarm.key: alarm for alarm in cell_alarms(fleet())}
    for name, alarm in alarms().items():
        definition = by_key[name.removeprefix("peakplan-prime-day-cell-1-").removeprefix("peakplan-prime-day-cell-2-")]
        notifies = definition.severity is Severity.TICKET or definition.key == "page"
        assert bool(alarm.get("AlarmActions")) is notifies, name
        assert bool(alarm.get("OKActions")) is notifies, name
        if notifies:
            assert topic_of(alarm["AlarmActions"][0]) == ("pages" if definition.key == "page" else "tickets"), name


def topic_of(action: Any) -> str:
    """What the topic behind an action is for."""
    return str(resources()[action["Ref"]]["Properties"]["TopicName"].rpartition("-")[2])


def test_a_deploy_holds_the_page_back_through_the_quiet_alarm() -> None:
    found = resources()
    for cell in ("cell-1", "cell-2"):
        page = alarms()[f"peakplan-prime-day-{cell}-page"]
        suppressor = page["ActionsSuppressor"]["Fn::GetAtt"][0]
        assert found[suppressor]["Properties"]["AlarmName"] == f"peakplan-prime-day-{cell}-quiet"
        assert page["ActionsSuppressorWaitPeriod"] == page["ActionsSuppressorExtensionPeriod"] == 60


def test_a_composite_alarm_waits_for_the_alarms_it_names() -> None:
    names_of = {logical: found["Properties"].get("AlarmName") for logical, found in resources().items()}
    for found in resources().values():
        if found["Type"] == "AWS::CloudWatch::CompositeAlarm":
            named = set(re.findall(r'ALARM\("([^"]+)"\)', found["Properties"]["AlarmRule"]))
            assert named <= {names_of[logical] for logical in found["DependsOn"]}


def published(name: str) -> tuple[str, str]:
    return metrics().namespace(name), metrics().published_name(name)


def test_alarm_metrics_are_those_of_the_data_file_with_all_their_dimensions() -> None:
    for alarm in of_type("CloudWatch::Alarm"):
        returned = [query for query in alarm["Metrics"] if query["ReturnData"]]
        assert len(returned) == 1, alarm["AlarmName"]
        for query in alarm["Metrics"]:
            if "MetricStat" in query:
                metric = query["MetricStat"]["Metric"]
                dimensions = tuple(dimension["Name"] for dimension in metric["Dimensions"])
                known = next(
                    name for name in metrics().metrics if published(name) == (metric["Namespace"], metric["MetricName"])
                )
                metrics().metric(known, dimensions)


def test_topics_are_encrypted_with_a_rotated_key_that_alarms_may_use() -> None:
    topics, (key,) = of_type("SNS::Topic"), of_type("KMS::Key")
    statements = key["KeyPolicy"]["Statement"]
    services = [each["Principal"].get("Service") for each in statements]
    alarms_may = [each for each in services if each and "cloudwatch.amazonaws.com" in each]

    assert len(topics) == 2
    assert all("KmsMasterKeyId" in topic for topic in topics)
    assert key["EnableKeyRotation"] is True
    assert [sorted(each) for each in alarms_may] == [
        ["budgets.amazonaws.com", "cloudwatch.amazonaws.com", "costalerts.amazonaws.com"]
    ]
    assert tuple(each["Endpoint"] for each in of_type("SNS::Subscription")) == TOLD


def test_a_team_with_a_topic_of_its_own_gets_no_other() -> None:
    theirs = "arn:aws:sns:us-east-1:123456789012:pager"
    found = resources(theirs, theirs)

    assert not [each for each in found.values() if each["Type"].startswith("AWS::SNS")]
    told = [each["Properties"]["AlarmActions"] for each in found.values() if each["Properties"].get("AlarmActions")]
    assert told
    assert all(actions == [theirs] for actions in told)


def test_cdk_nag_finds_nothing() -> None:
    assert [each.rule_name for each in AwsSolutionsChecks(stack()).validate_scope(stack()).violations] == []


@pytest.mark.slow
def test_every_alarm_reads_back_after_a_deploy(moto_server: MotoServer) -> None:
    whole = template()
    certificate = fleet().load_balancer.certificate_parameter
    moto_server.client("ssm").put_parameter(Name=certificate, Value="arn:aws:acm:::certificate/1", Type="String")
    asked = {name: each for name, each in whole["Parameters"].items() if each["Default"] == certificate}
    moto_server.client("cloudformation").create_stack(
        StackName="observability-alone",
        TemplateBody=json.dumps({"Parameters": asked, "Resources": whole["Resources"]}),
    )
    cloudwatch = moto_server.client("cloudwatch")
    pages = cloudwatch.get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm", "CompositeAlarm"])
    found = {
        alarm["AlarmName"]: alarm for page in pages for kind in page if kind.endswith("Alarms") for alarm in page[kind]
    }
    page = found["peakplan-prime-day-cell-2-page"]

    assert set(found) >= set(alarms())
    assert page["ActionsSuppressor"] == found["peakplan-prime-day-cell-2-quiet"]["AlarmArn"]
    assert found["peakplan-prime-day-cell-1-p99"]["Metrics"][0]["MetricStat"]["Stat"] == "p99"
    body = json.loads(cloudwatch.get_dashboard(DashboardName="peakplan-prime-day")["DashboardBody"])
    assert any(page["AlarmArn"] in widget["properties"].get("alarms", []) for widget in body["widgets"])
