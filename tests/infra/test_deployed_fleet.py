"""A deployed fleet reads back as a user relies on it: policies, alarms, schedules, balancers, names.

Against moto: this proves the command line, assets, order, references and parameters. It does not prove permissions,
quotas, instance refresh or scaling itself; those want a real account.
"""

from typing import Any

import pytest

from infra.fleet.replacement import stops
from rehearsal.cloudwatch import compute
from tests.infra.deployment import Deployment
from tests.infra.moto_server import ACCOUNT


def test_groups_follow_the_changed_law(standing_fleet: Deployment) -> None:
    groups = standing_fleet.groups()
    assert set(groups) == set(standing_fleet.laws())
    for name, law in standing_fleet.laws().items():
        assert (groups[name]["MinSize"], groups[name]["MaxSize"]) == (law.minimum, law.maximum)
        assert len(groups[name]["TargetGroupARNs"]) == 1
        assert len(set(groups[name]["AvailabilityZones"])) == 3


def test_policies_are_the_law_s(standing_fleet: Deployment) -> None:
    for name, law in standing_fleet.laws().items():
        found = standing_fleet.client("autoscaling").describe_policies(AutoScalingGroupName=name)["ScalingPolicies"]
        by_type: dict[str, list[Any]] = {}
        for policy in found:
            by_type.setdefault(policy["PolicyType"], []).append(policy)

        (tracking,) = by_type["TargetTrackingScaling"]
        configuration = tracking["TargetTrackingConfiguration"]
        stat = configuration["CustomizedMetricSpecification"]["Metrics"][0]["MetricStat"]
        assert (configuration["TargetValue"], configuration["DisableScaleIn"]) == (law.tracking.target, True)
        assert (stat["Metric"]["MetricName"], stat["Period"]) == ("OfferedWork", 10)
        adjustments = [each["StepAdjustments"] for each in by_type["StepScaling"]]
        added = sorted(tuple(step["ScalingAdjustment"] for step in steps) for steps in adjustments)
        assert added == sorted(tuple(step.percent for step in policy.steps) for policy in law.steps)
        (removal,) = by_type["SimpleScaling"]
        assert removal["ScalingAdjustment"] == -law.removal.percent
        assert removal["Cooldown"] == law.removal.cooldown_seconds


def test_scaling_alarms_fire_their_policies(standing_fleet: Deployment) -> None:
    alarms = standing_fleet.client("cloudwatch").describe_alarms(AlarmNamePrefix="peakplan-dev-cell-1-inf2-scale-")
    found = {alarm["AlarmName"].partition("-scale-")[2]: alarm for alarm in alarms["MetricAlarms"]}
    law = standing_fleet.laws()["peakplan-dev-cell-1-inf2"]
    lines = {policy.name: policy.threshold for policy in law.steps}
    ends_refreshes = {stop.name for stop in stops(law)}

    assert (
        set(found)
        == {*lines, "removal", *ends_refreshes}
        >= {"surge-1", "surge-5", "pressed", "latency", "queue", "by-rule"}
    )
    assert {name: found[name]["Threshold"] for name in lines} == pytest.approx(lines)
    assert found["removal"]["EvaluationPeriods"] == law.removal.calm_periods
    for name, alarm in found.items():
        if name in ends_refreshes:
            assert (alarm["AlarmActions"], alarm["DatapointsToAlarm"]) == ([], 3), "minutes of harm, not ten seconds"
        else:
            assert ":scalingPolicy:" in alarm["AlarmActions"][0]


def test_what_stands_in_grows_by_what_is_asked_of_the_others(standing_fleet: Deployment) -> None:
    """Its alarm reads the cell's work less its own: what the other groups are asked, whichever of them has hosts."""
    watching = standing_fleet.client("cloudwatch")
    name = "peakplan-dev-cell-1-cpu-scale-stand-in"
    (alarm,) = watching.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    assert ":scalingPolicy:" in alarm["AlarmActions"][0]
    stats = {query["Id"]: query["MetricStat"]["Metric"] for query in alarm["Metrics"] if "MetricStat" in query}
    read = {id: {each["Name"]: each["Value"] for each in metric["Dimensions"]} for id, metric in stats.items()}
    cell = {"Fleet": "dev", "Cell": "cell-1"}
    own = cell | {"Group": "cpu"}
    assert read == {
        "cell_offered": cell, "cell_replica_seconds": cell, "offered": own, "replica_seconds": own,
    }  # fmt: skip
    (expression,) = [query["Expression"] for query in alarm["Metrics"] if "Expression" in query]
    asked = {"cell_offered": 95.0, "offered": 5.0, "cell_replica_seconds": 520.0, "replica_seconds": 420.0}
    assert compute(expression, asked) == 0.9
    others = watching.describe_alarms(AlarmNamePrefix="peakplan-dev-cell-1-inf2-scale-stand-in")["MetricAlarms"]
    assert others == []
    (told,) = watching.describe_alarms(AlarmNames=["peakplan-dev-cell-1-stand-in"])["MetricAlarms"]
    (metric,) = [query["MetricStat"]["Metric"] for query in told["Metrics"] if "MetricStat" in query]
    assert {each["Name"]: each["Value"] for each in metric["Dimensions"]} == own


def test_an_event_s_capacity_is_scheduled(standing_fleet: Deployment) -> None:
    law = standing_fleet.laws()["peakplan-dev-cell-1-inf2"]
    actions = standing_fleet.client("autoscaling").describe_scheduled_actions(
        AutoScalingGroupName="peakplan-dev-cell-1-inf2"
    )
    scheduled = {action["StartTime"]: action["MinSize"] for action in actions["ScheduledUpdateGroupActions"]}
    assert scheduled == {floor.at: floor.minimum for floor in law.schedule}
    assert len(scheduled) == 2


def test_instances_are_warm_and_wait_to_be_proven_ready(standing_fleet: Deployment) -> None:
    scaling = standing_fleet.client("autoscaling")
    for name, law in standing_fleet.laws().items():
        described = scaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        hooks = {hook["LifecycleHookName"]: hook for hook in described}
        assert hooks["prove-ready"]["DefaultResult"] == "ABANDON"
        assert hooks["drain"]["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
        pool = scaling.describe_warm_pool(AutoScalingGroupName=name)["WarmPoolConfiguration"]
        assert (pool["MinSize"], pool["PoolState"]) == (0, "Stopped")
        assert pool["MaxGroupPreparedCapacity"] == law.warm_pool.prepared


def _targets_of(balancing: Any, balancer: dict[str, Any]) -> list[dict[str, Any]]:
    """The balancer's target groups: moto keeps those of the creation that failed."""
    found: list[dict[str, Any]] = balancing.describe_target_groups(LoadBalancerArn=balancer["LoadBalancerArn"])[
        "TargetGroups"
    ]
    return found


def test_the_load_balancer_speaks_tls_to_named_networks_alone(standing_fleet: Deployment) -> None:
    balancing, network = standing_fleet.client("elbv2"), standing_fleet.client("ec2")
    found = balancing.describe_load_balancers()["LoadBalancers"]
    balancer, _ = [each for each in found if each["Type"] == "application"]  # one a cell
    listeners = balancing.describe_listeners(LoadBalancerArn=balancer["LoadBalancerArn"])["Listeners"]
    (listener,) = [each for each in listeners if each["Port"] == 443]
    (targets,) = [each for each in _targets_of(balancing, balancer) if each["Port"] == 8080]
    attributes = balancing.describe_target_group_attributes(TargetGroupArn=targets["TargetGroupArn"])["Attributes"]
    groups = network.describe_security_groups(GroupIds=balancer["SecurityGroups"])["SecurityGroups"]
    sources = [source["CidrIp"] for rule in groups[0]["IpPermissions"] for source in rule["IpRanges"]]

    assert balancer["Scheme"] == "internal"
    assert (listener["Protocol"], listener["Port"]) == ("HTTPS", 443)
    assert "TLS13-1-3" in listener["SslPolicy"]
    assert targets["HealthCheckPath"] == "/readyz"
    assert {"Key": "load_balancing.algorithm.type", "Value": "least_outstanding_requests"} in attributes
    assert sources == [str(cidr) for caller in standing_fleet.settings.callers for cidr in caller.cidrs]


def test_callers_have_names_over_the_cells(standing_fleet: Deployment) -> None:
    names = standing_fleet.client("route53")
    (zone,) = names.list_hosted_zones()["HostedZones"]
    records = names.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]
    weighted = {record["Name"].rstrip("."): record for record in records if "Weight" in record}
    assert set(weighted) == {"plan.planner.internal", "assistant.plan.planner.internal"}
    assert "cell-1.plan.planner.internal" in {record["Name"].rstrip(".") for record in records}
    assert all(record["AliasTarget"]["EvaluateTargetHealth"] for record in weighted.values())


def test_callers_of_this_account_reach_the_cell_by_privatelink(standing_fleet: Deployment) -> None:
    network = standing_fleet.client("ec2")
    service, _ = network.describe_vpc_endpoint_service_configurations()["ServiceConfigurations"]  # one a cell
    found = standing_fleet.client("elbv2").describe_load_balancers(LoadBalancerArns=service["NetworkLoadBalancerArns"])
    may = network.describe_vpc_endpoint_service_permissions(ServiceId=service["ServiceId"])["AllowedPrincipals"]
    assert [each["Type"] for each in found["LoadBalancers"]] == ["network"]
    assert [each["Principal"] for each in may] == [f"arn:aws:iam::{ACCOUNT}:root"]


def test_the_cell_behind_privatelink_passes_its_health_checks(standing_fleet: Deployment) -> None:
    """Without a healthy target a network load balancer fails open: it would never take a cell out."""
    balancing = standing_fleet.client("elbv2")
    fronts = [each for each in balancing.describe_load_balancers()["LoadBalancers"] if each["Type"] == "network"]
    assert len(fronts) == standing_fleet.settings.cells
    for balancer in fronts:
        (front,) = _targets_of(balancing, balancer)
        found = balancing.describe_target_health(TargetGroupArn=front["TargetGroupArn"])["TargetHealthDescriptions"]
        assert [each["TargetHealth"]["State"] for each in found] == ["healthy"]


def test_people_are_told(standing_fleet: Deployment) -> None:
    watching = standing_fleet.client("cloudwatch")
    pages = watching.describe_alarms(AlarmTypes=["CompositeAlarm"], AlarmNamePrefix="peakplan-dev-cell-1-page")
    assert len(pages["CompositeAlarms"]) == 1
    boards = {board["DashboardName"] for board in watching.list_dashboards()["DashboardEntries"]}
    assert {"peakplan-dev", "peakplan-dev-runbook-page", "peakplan-dev-runbook-saturation"} <= boards
