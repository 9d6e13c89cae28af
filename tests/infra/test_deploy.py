"""The dev fleet deploys as `make deploy` does it, reads back as a user relies on it, changes, goes back and goes.

The unmodified CDK CLI creates the stacks; the state machine that the fleet deploys changes them, interpreted by moto.
This proves the command line, assets, order, references and parameters. It does not prove permissions, quotas, instance
refresh or scaling itself; those want a real account.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.alarm_kinds import MetricAlarm, Severity
from infra.fleet.alarms import alarm_name, cell_alarms
from infra.fleet.replacement import stops
from infra.fleet.settings import FleetSettings
from rehearsal.cloudwatch import compute
from tests.infra.deployment import CDK, LARGER, TWO_CELLS, Deployment, bake, deploy, prepare, run_line, synthesise
from tests.infra.fleet.fleets import dev_with
from tests.infra.moto_server import ACCOUNT, MotoServer

pytestmark = pytest.mark.skipif(not CDK.exists(), reason="the CDK CLI is not installed: npm ci")


@pytest.fixture(scope="module")
def account(moto_server: MotoServer) -> MotoServer:
    """An account as the guide prepares it: bootstrapped, with a certificate and machine images in its parameters."""
    prepare(moto_server)
    return moto_server


@pytest.fixture(scope="module")
def releases(account: MotoServer) -> list[str]:
    """Three machine images; the second is made after the first deploy, and the third after the second."""
    return [bake(account, "0000aaaa")]


@dataclass(frozen=True)
class Fleet:
    """A fleet's file, and what a deploy of it synthesises; each is deployed twice."""

    file: Path
    assembly: Path

    @classmethod
    def of(cls, account: MotoServer, folder: Path, changes: dict[str, Any]) -> "Fleet":
        """The dev fleet with changes and deletion protection."""
        file = folder / "fleet.yaml"
        file.write_text(yaml.safe_dump(dev_with(changes | {"deletion_protection": True})), encoding="utf-8")
        return cls(file, synthesise(account, str(file), folder / "assembly"))

    def deploy(self, account: MotoServer) -> subprocess.CompletedProcess[str]:
        return deploy(account, str(self.file), assembly=self.assembly)


@pytest.fixture(scope="module")
def protected(account: MotoServer, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The fleet with two cells and processors that stand in."""
    return Fleet.of(account, tmp_path_factory.mktemp("protected"), TWO_CELLS)


@pytest.fixture(scope="module")
def failed(account: MotoServer, releases: list[str], protected: Fleet) -> subprocess.CompletedProcess[str]:
    """A first deploy that fails because of an obstacle, which is then removed."""
    assert len(releases) == 1
    ec2, name = account.client("ec2"), "peakplan-dev-cell-1-inf2"
    ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"InstanceType": "t3.micro"})
    done = protected.deploy(account)
    ec2.delete_launch_template(LaunchTemplateName=name)
    return done


@pytest.fixture(scope="module")
def first(
    account: MotoServer, failed: subprocess.CompletedProcess[str], protected: Fleet
) -> subprocess.CompletedProcess[str]:
    """The first deploy of the dev fleet that succeeds."""
    assert failed.returncode != 0
    (stack,) = account.client("cloudformation").describe_stacks(StackName="peakplan-dev-cell-1")["Stacks"]
    why = f"its balancers are protected, so it cannot be rolled back: {failed.stdout}{failed.stderr}"
    assert stack["StackStatus"] == "ROLLBACK_FAILED", why
    return protected.deploy(account)


@pytest.fixture(scope="module")
def changed(account: MotoServer, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The same under another law."""
    return Fleet.of(account, tmp_path_factory.mktemp("changed"), LARGER)


@pytest.fixture(scope="module")
def deployed(
    account: MotoServer,
    releases: list[str],
    first: subprocess.CompletedProcess[str],
    protected: Fleet,
    changed: Fleet,
) -> Deployment:
    """The fleet, deployed first under one law, then under another."""
    assert first.returncode == 0, first.stdout + first.stderr
    before = Deployment(account, FleetSettings.from_yaml(protected.file))
    for name, group in before.groups().items():
        assert (group["MinSize"], group["MaxSize"]) == (before.laws()[name].minimum, before.laws()[name].maximum)
    releases.append(bake(account, "0000bbbb"))
    again = changed.deploy(account)
    assert again.returncode == 0, again.stdout + again.stderr
    return Deployment(account, FleetSettings.from_yaml(changed.file))


@pytest.fixture(scope="module", autouse=True)
def gone_at_the_end(deployed: Deployment, changed: Fleet) -> Iterator[None]:
    """After every other test the fleet is destroyed by its command, and nothing is left but what that names."""
    yield
    command = (sys.executable, "-m", "infra.operations.teardown", str(changed.file))
    refused = run_line(deployed.server, *command, "--name", "prime-day")
    assert (refused.returncode, "nothing was deleted" in refused.stderr) == (2, True)
    assert deployed.groups() != {}
    done = run_line(deployed.server, *command, "--name", "dev")
    assert done.returncode == 0, done.stdout + done.stderr
    stacks = deployed.client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in stacks] == ["CDKToolkit"]
    assert deployed.groups() == {}
    assert deployed.client("elbv2").describe_load_balancers()["LoadBalancers"] == []
    kept = done.stdout.partition("Kept, and yours to delete:")[2].split()
    groups = {group["logGroupName"] for group in deployed.client("logs").describe_log_groups()["logGroups"]}
    assert groups <= set(kept)
    left = deployed.client("ssm").describe_parameters()["Parameters"]
    ours = ("/peakplan/dev/d", "/peakplan/dev/rollout/")
    assert not [each["Name"] for each in left if each["Name"].startswith(ours)], "neither state, lock nor marks"


def images(deployed: Deployment) -> set[str]:
    """The images of the newest versions of the cell's launch templates."""
    found = deployed.client("ec2").describe_launch_template_versions(
        LaunchTemplateName="peakplan-dev-cell-1-inf2", Versions=["$Latest"]
    )["LaunchTemplateVersions"]
    return {each["LaunchTemplateData"]["ImageId"] for each in found}


def test_a_fleet_goes_from_under_the_cells_to_over_them(
    first: subprocess.CompletedProcess[str], deployed: Deployment
) -> None:
    assert "its creation failed (ROLLBACK_FAILED); it is made anew" in first.stdout
    said = [line for line in first.stdout.splitlines() if line.startswith(("Deploying ", "Creating "))]
    creating = ["Creating cell-1", "Creating cell-2", "Creating Edge", "Creating Observability", "Creating Spending"]
    assert said == ["Deploying Network, Image, Rollout", *creating]
    assert "cell-1 has it" in first.stdout
    stacks = deployed.client("cloudformation").describe_stacks()["Stacks"]
    assert {stack["StackStatus"] for stack in stacks} == {"CREATE_COMPLETE", "UPDATE_COMPLETE"}


def test_the_deploy_s_marker_is_what_holds_the_cell_s_page_back(deployed: Deployment) -> None:
    watching = deployed.client("cloudwatch")
    found = watching.describe_alarms(AlarmTypes=["CompositeAlarm"], AlarmNamePrefix="peakplan-dev-cell-1-")
    composites = {alarm["AlarmName"]: alarm for alarm in found["CompositeAlarms"]}
    quiet = composites[alarm_name("dev", "cell-1", "quiet")]
    assert composites[alarm_name("dev", "cell-1", "page")]["ActionsSuppressor"] == quiet["AlarmArn"]
    assert f'ALARM("{alarm_name("dev", "cell-1", "deploying")}")' in quiet["AlarmRule"]

    (deploying,) = watching.describe_alarms(AlarmNames=[alarm_name("dev", "cell-1", "deploying")])["MetricAlarms"]
    (metric,) = [each["MetricStat"]["Metric"] for each in deploying["Metrics"] if "MetricStat" in each]
    now = datetime.now(UTC)
    marks = watching.get_metric_statistics(
        **metric,
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(minutes=5),
        Period=60,
        Statistics=["Maximum"],
    )["Datapoints"]

    assert {mark["Maximum"] for mark in marks} == {1.0}


@pytest.fixture(scope="module")
def running(deployed: Deployment) -> set[str]:
    """The images of the fleet as deployed, before the tests below change it."""
    return images(deployed)


@pytest.fixture(scope="module")
def stopped(
    deployed: Deployment, running: set[str], releases: list[str], changed: Fleet
) -> subprocess.CompletedProcess[str]:
    """A deploy of a third release during which the cell's alarm is on, and which goes back by itself.

    The tests may come in any order, what befalls the fleet may not.
    """
    assert running
    releases.append(bake(deployed.server, "0000cccc"))
    watching, alarm = deployed.client("cloudwatch"), alarm_name("dev", "cell-1", "deploy-health")
    watching.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="a test", StateReasonData="{}")
    done = changed.deploy(deployed.server)
    watching.set_alarm_state(AlarmName=alarm, StateValue="OK", StateReason="a test", StateReasonData="{}")
    return done


def test_hosts_run_the_release_of_the_last_deploy(running: set[str], releases: list[str]) -> None:
    assert running == {releases[1]}


def test_a_hurt_cell_stops_the_deploy_and_a_rollback_brings_the_release_before(
    deployed: Deployment, releases: list[str], changed: Fleet, stopped: subprocess.CompletedProcess[str]
) -> None:
    assert stopped.returncode == 1, stopped.stdout + stopped.stderr
    alarm = alarm_name("dev", "cell-1", "deploy-health")
    assert alarm in stopped.stderr
    assert "fired, so no further cell is deployed" in stopped.stderr
    assert "Stopped at cell-1" in stopped.stderr
    done = run_line(deployed.server, sys.executable, "-m", "infra.operations.rollback", str(changed.file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert images(deployed) == {releases[0]}
    refused = changed.deploy(deployed.server)
    assert refused.returncode == 3
    assert "bake another image" in refused.stderr


def test_groups_follow_the_changed_law_with_warm_instances_that_wait_to_be_proven_ready(deployed: Deployment) -> None:
    groups = deployed.groups()
    assert set(groups) == set(deployed.laws())
    for name, law in deployed.laws().items():
        assert (groups[name]["MinSize"], groups[name]["MaxSize"]) == (law.minimum, law.maximum)
        assert len(groups[name]["TargetGroupARNs"]) == 1
        assert len(set(groups[name]["AvailabilityZones"])) == 3
        described = deployed.client("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
        hooks = {hook["LifecycleHookName"]: hook for hook in described}
        assert hooks["prove-ready"]["DefaultResult"] == "ABANDON"
        assert hooks["drain"]["LifecycleTransition"] == "autoscaling:EC2_INSTANCE_TERMINATING"
        pool = deployed.client("autoscaling").describe_warm_pool(AutoScalingGroupName=name)["WarmPoolConfiguration"]
        assert (pool["MinSize"], pool["PoolState"]) == (0, "Stopped")
        assert pool["MaxGroupPreparedCapacity"] == law.warm_pool.prepared


def test_policies_are_the_law_s(deployed: Deployment) -> None:
    for name, law in deployed.laws().items():
        found = deployed.client("autoscaling").describe_policies(AutoScalingGroupName=name)["ScalingPolicies"]
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


def test_scaling_alarms_fire_their_policies(deployed: Deployment) -> None:
    alarms = deployed.client("cloudwatch").describe_alarms(AlarmNamePrefix="peakplan-dev-cell-1-inf2-scale-")
    found = {alarm["AlarmName"].partition("-scale-")[2]: alarm for alarm in alarms["MetricAlarms"]}
    law = deployed.laws()["peakplan-dev-cell-1-inf2"]
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


def test_what_stands_in_grows_by_what_is_asked_of_the_others(deployed: Deployment) -> None:
    """Its alarm reads the work of all other groups: the cell's work minus the group's own."""
    watching = deployed.client("cloudwatch")
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


def test_an_event_s_capacity_is_scheduled(deployed: Deployment) -> None:
    law = deployed.laws()["peakplan-dev-cell-1-inf2"]
    actions = deployed.client("autoscaling").describe_scheduled_actions(AutoScalingGroupName="peakplan-dev-cell-1-inf2")
    scheduled = {action["StartTime"]: action["MinSize"] for action in actions["ScheduledUpdateGroupActions"]}
    assert scheduled == {floor.at: floor.minimum for floor in law.schedule}
    assert len(scheduled) == 2


def _targets_of(balancing: Any, balancer: dict[str, Any]) -> Any:
    """The balancer's target groups: moto keeps those of the creation that failed."""
    return balancing.describe_target_groups(LoadBalancerArn=balancer["LoadBalancerArn"])["TargetGroups"]


def test_the_load_balancer_speaks_tls_to_named_networks_alone(deployed: Deployment) -> None:
    balancing, network = deployed.client("elbv2"), deployed.client("ec2")
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
    assert sources == [str(cidr) for caller in deployed.settings.callers for cidr in caller.cidrs]


def test_callers_have_names_over_the_cells(deployed: Deployment) -> None:
    names = deployed.client("route53")
    (zone,) = names.list_hosted_zones()["HostedZones"]
    records = names.list_resource_record_sets(HostedZoneId=zone["Id"])["ResourceRecordSets"]
    weighted = {record["Name"].rstrip("."): record for record in records if "Weight" in record}
    assert set(weighted) == {"plan.planner.internal", "assistant.plan.planner.internal"}
    assert "cell-1.plan.planner.internal" in {record["Name"].rstrip(".") for record in records}
    assert all(record["AliasTarget"]["EvaluateTargetHealth"] for record in weighted.values())


def test_callers_of_this_account_reach_the_cell_by_privatelink_and_it_passes_its_health_checks(
    deployed: Deployment,
) -> None:
    network = deployed.client("ec2")
    service, _ = network.describe_vpc_endpoint_service_configurations()["ServiceConfigurations"]  # one a cell
    found = deployed.client("elbv2").describe_load_balancers(LoadBalancerArns=service["NetworkLoadBalancerArns"])
    may = network.describe_vpc_endpoint_service_permissions(ServiceId=service["ServiceId"])["AllowedPrincipals"]
    assert [each["Type"] for each in found["LoadBalancers"]] == ["network"]
    assert [each["Principal"] for each in may] == [f"arn:aws:iam::{ACCOUNT}:root"]
    # Without a healthy target a network load balancer fails open: it would never take a cell out.
    balancing = deployed.client("elbv2")
    fronts = [each for each in balancing.describe_load_balancers()["LoadBalancers"] if each["Type"] == "network"]
    assert len(fronts) == deployed.settings.cells
    for balancer in fronts:
        (front,) = _targets_of(balancing, balancer)
        found = balancing.describe_target_health(TargetGroupArn=front["TargetGroupArn"])["TargetHealthDescriptions"]
        assert [each["TargetHealth"]["State"] for each in found] == ["healthy"]


def test_people_are_told(deployed: Deployment) -> None:
    watching = deployed.client("cloudwatch")
    pages = watching.describe_alarms(AlarmTypes=["CompositeAlarm"], AlarmNamePrefix="peakplan-dev-cell-1-page")
    assert len(pages["CompositeAlarms"]) == 1
    boards = {board["DashboardName"] for board in watching.list_dashboards()["DashboardEntries"]}
    assert {"peakplan-dev", "peakplan-dev-runbook-page", "peakplan-dev-runbook-saturation"} <= boards


class Pager:
    """A queue subscribed to the topic of pages, and methods that set alarms."""

    def __init__(self, deployment: Deployment) -> None:
        self._watching, self._queues = deployment.client("cloudwatch"), deployment.client("sqs")
        self._queue = self._queues.create_queue(QueueName="pager")["QueueUrl"]
        asked = {"QueueUrl": self._queue, "AttributeNames": ["QueueArn"]}
        arn = self._queues.get_queue_attributes(**asked)["Attributes"]["QueueArn"]
        topics = deployment.client("sns")
        (pages,) = [each["TopicArn"] for each in topics.list_topics()["Topics"] if each["TopicArn"].endswith("-pages")]
        self._subscription = topics.subscribe(TopicArn=pages, Protocol="sqs", Endpoint=arn)["SubscriptionArn"]

    def set(self, key: str, state: str) -> None:
        told = {"StateReason": "a test", "StateReasonData": "{}"}
        self._watching.set_alarm_state(AlarmName=alarm_name("dev", "cell-1", key), StateValue=state, **told)

    def heard(self) -> list[tuple[str, str, str]]:
        """The messages since the last time: alarm, state, description."""
        found = []
        while messages := self._queues.receive_message(QueueUrl=self._queue).get("Messages", []):
            for message in messages:
                said = json.loads(json.loads(message["Body"])["Message"])
                found.append((said["AlarmName"], said["NewStateValue"], said["AlarmDescription"]))
                self._queues.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return found


@pytest.fixture
def pager(deployed: Deployment) -> Pager:
    made = Pager(deployed)
    for key in ("deploying", "saturation"):
        made.set(key, "OK")
    made.heard()
    return made


PAGE = alarm_name("dev", "cell-1", "page")


def test_a_page_that_is_set_by_hand_stays_until_a_child_changes(pager: Pager) -> None:
    pager.set("page", "ALARM")
    assert pager.heard() == [], "nothing was tested by this"
    pager.set("saturation", "OK")
    assert [said[:2] for said in pager.heard()] == [(PAGE, "OK")]


def test_every_alarm_that_pages_reaches_the_pager_and_no_ticket_does(pager: Pager, deployed: Deployment) -> None:
    paging = [alarm for alarm in cell_alarms(deployed.settings) if alarm.severity is Severity.PAGE]
    metric = [alarm.key for alarm in paging if isinstance(alarm, MetricAlarm)]
    assert "saturation" in metric
    for key in metric:
        pager.set(key, "ALARM")
        ((name, state, description),) = pager.heard()
        assert (name, state, "runbook-page" in description) == (PAGE, "ALARM", True), key
        pager.set(key, "OK")
        assert [said[:2] for said in pager.heard()] == [(PAGE, "OK")], key
    tickets = [alarm for alarm in cell_alarms(deployed.settings) if alarm.severity is Severity.TICKET]
    for alarm in tickets:
        if isinstance(alarm, MetricAlarm):
            pager.set(alarm.key, "ALARM")
            pager.set(alarm.key, "OK")
    assert pager.heard() == [], "a ticket wakes nobody"
