"""A week in the life of the busiest fleet that ships: made, released, sent back, changed, retired in part, destroyed.

It is prime-day with three of its six cells, which are all alike, and a third of its traffic. Every step is the command
that an operator types, in the emulated account of the other tests. None may be refused, and at the end nothing is left
but what the last command names. It takes minutes. Not run in a real account.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.fleet.alarms import alarm_name
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import ENDPOINT_SERVICE_OUTPUT
from tests.infra.deployment import CDK, bake, deploy, prepare, run_line, synthesise
from tests.infra.fleet.fleets import fleet_with
from tests.infra.moto_refusals import OWNER
from tests.infra.moto_server import MotoServer, running_moto
from tests.infra.moto_timing import set_clock

pytestmark = [
    pytest.mark.slow,  # three synths and some thirty starts of the CDK CLI
    pytest.mark.skipif(not CDK.exists(), reason="the CDK CLI is not installed: npm ci"),
]
CALLER = "111122223333"
SMALL: dict[str, Any] = {"cells": 3, "traffic.plans_per_minute": 80_000, "caller_shard_cells": 2}
BEGINNING: dict[str, Any] = SMALL | {"callers.1.accounts": [CALLER]}
# The first event is over, each host remembers its own plans alone, and one caller has no account any more.
CHANGED: dict[str, Any] = SMALL | {"shared_cache.enabled": False}
FEWER: dict[str, Any] = CHANGED | {"cells": 2}
WHY = {"StateReason": "a test", "StateReasonData": "{}"}
OURS = [{"Key": "Name", "Option": "BeginsWith", "Values": ["/peakplan/prime-day/"]}]
# Names of what a fleet has in an account, by the client that lists it and how.
LEFT: dict[str, Callable[[MotoServer], list[Any]]] = {
    "groups": lambda at: at.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"],
    "balancers": lambda at: at.client("elbv2").describe_load_balancers()["LoadBalancers"],
    "services": lambda at: at.client("ec2").describe_vpc_endpoint_service_configurations()["ServiceConfigurations"],
    "interfaces": lambda at: [
        each
        for each in at.client("ec2").describe_network_interfaces()["NetworkInterfaces"]
        if "cwsyn" in each.get("Description", "")
    ],
    "networks": lambda at: [each for each in at.client("ec2").describe_vpcs()["Vpcs"] if not each["IsDefault"]],
    "caches": lambda at: [
        each
        for each in at.client("elasticache").describe_replication_groups()["ReplicationGroups"]
        if each["Status"] != "deleting"
    ],
    "alarms": lambda at: at.client("cloudwatch").describe_alarms(AlarmNamePrefix="peakplan")["MetricAlarms"],
    "zones": lambda at: at.client("route53").list_hosted_zones()["HostedZones"],
    "schedules": lambda at: at.client("scheduler").list_schedules()["Schedules"],
    "parameters": lambda at: [
        each["Name"]
        for each in at.client("ssm").describe_parameters(ParameterFilters=OURS)["Parameters"]
        if not each["Name"].endswith("/certificate-arn")
    ],
}


class Week:
    """An account, the fleet's files and what was synthesised of them, and what every command said."""

    def __init__(self, server: MotoServer, folder: Path) -> None:
        self.server, self._folder = server, folder
        self.said: dict[str, subprocess.CompletedProcess[str]] = {}

    def written(self, name: str, changes: dict[str, Any], *, events_over: int = 0) -> Path:
        """The fleet's file after changes. A synthesis leaves out the events that are over."""
        content = fleet_with("prime-day", changes)
        content["events"] = content["events"][events_over:]
        for event in content["events"]:  # they are to come, whenever this runs
            event |= {key: event[key].replace(year=event[key].year + 3) for key in ("start", "end")}
        file = self._folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        return file

    def synthesised(self, file: Path) -> Path:
        """What a deploy of a file synthesises; once for all of its deploys."""
        folder = file.with_suffix("")
        return folder if folder.exists() else synthesise(self.server, str(file), folder)

    def deploys(self, step: str, file: Path, *words: str) -> None:
        self.said[step] = deploy(self.server, str(file), *words, assembly=self.synthesised(file))

    def runs(self, step: str, command: str, *words: str) -> None:
        self.said[step] = run_line(self.server, sys.executable, "-m", f"infra.operations.{command}", *words)

    def stacks(self) -> dict[str, dict[str, Any]]:
        pages = self.server.client("cloudformation").get_paginator("describe_stacks").paginate()
        return {each["StackName"]: each for page in pages for each in page["Stacks"]}

    def images(self) -> dict[str, str]:
        """The image that each cell's stack was told last."""
        return {
            name.removeprefix("peakplan-prime-day-"): each["ParameterValue"]
            for name, stack in self.stacks().items()
            for each in stack.get("Parameters", [])
            if each["ParameterKey"] == "MachineImageId"
        }

    def connects(self) -> None:
        """The caller makes an endpoint to each cell, in its own account."""
        ec2 = self.server.client("ec2")
        network = next(each["VpcId"] for each in ec2.describe_vpcs()["Vpcs"] if each["IsDefault"])
        tags = [{"ResourceType": "vpc-endpoint", "Tags": [{"Key": OWNER, "Value": CALLER}]}]
        for stack in self.stacks().values():
            outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", [])}
            if service := outputs.get(ENDPOINT_SERVICE_OUTPUT):
                asked = {"VpcId": network, "ServiceName": service, "VpcEndpointType": "Interface"}
                ec2.create_vpc_endpoint(**asked, TagSpecifications=tags)

    def reserves(self) -> int:
        """Ask for what the schedules of the first event ask, as they will, and return how many reservations that is."""
        scheduler, ec2 = self.server.client("scheduler"), self.server.client("ec2")
        pages = scheduler.get_paginator("list_schedules").paginate()
        names = [{name: each[name] for name in ("Name", "GroupName")} for page in pages for each in page["Schedules"]]
        asked = [json.loads(scheduler.get_schedule(**each)["Target"]["Input"]) for each in names]
        july = [each for each in asked if each.get("EndDate", "").startswith("2030-07")]
        for each in july:
            ec2.create_capacity_reservation(**each)
        return len(july)

    def hurts(self, cell: str, state: str) -> None:
        alarm = alarm_name("prime-day", cell, "deploy-health")
        self.server.client("cloudwatch").set_alarm_state(AlarmName=alarm, StateValue=state, **WHY)


def well(week: Week, step: str) -> str:
    done = week.said[step]
    assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"
    left = {name: each["StackStatus"] for name, each in week.stacks().items()}
    assert set(left.values()) <= {"CREATE_COMPLETE", "UPDATE_COMPLETE"}, left
    return done.stdout + done.stderr


def test_a_week_of_a_fleet_is_refused_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    with running_moto(tmp_path / "server.log") as server:
        lived(Week(server, tmp_path))


def lived(week: Week) -> None:
    server, file = week.server, week.written("beginning", BEGINNING)
    settings = FleetSettings.from_yaml(file)
    prepare(server, settings, week.synthesised(file))

    first = bake(server, "0000aaaa", settings)
    week.deploys("create", file)
    well(week, "create")
    assert len(week.stacks()) == 1 + 3 + 6, "the toolkit, the cells, and what is under and over them"
    week.connects()
    week.runs("access", "access", str(file))
    assert well(week, "access").count("accepted") == 3

    second = bake(server, "0000bbbb", settings)
    week.deploys("release", file)
    well(week, "release")
    assert set(week.images().values()) == {second}

    third = bake(server, "0000cccc", settings)
    week.hurts("cell-2", "ALARM")
    week.deploys("harmful release", file)
    week.hurts("cell-2", "OK")
    assert week.said["harmful release"].returncode == 1, week.said["harmful release"]
    assert "Going back by itself" in week.said["harmful release"].stderr
    assert week.images() == dict.fromkeys(settings.cell_names, second), "in the middle, and by itself"
    assert len({first, second, third}) == 3

    (sale, *later) = settings.events
    assert week.reserves() == 3 * 2 * 3, "each cell, kind of chip and zone"
    set_clock(server.client("ssm"), sale.end + timedelta(hours=1))
    after = week.written("after", CHANGED, events_over=1)
    assert FleetSettings.from_yaml(after).events == tuple(later)
    week.deploys("event over, cache off, caller gone", after, "--release", second)
    well(week, "event over, cache off, caller gone")
    assert LEFT["caches"](server) == []
    week.runs("access of the others", "access", str(after))
    assert well(week, "access of the others").count("rejected") == 3

    fewer = week.written("fewer", FEWER, events_over=1)
    week.runs("move callers", "cells", "out", str(after), "cell-3")
    week.deploys("retire", fewer, "--retire", "--release", second)
    well(week, "retire")
    assert "peakplan-prime-day-cell-3" not in week.stacks()
    assert len(week.stacks()) == 1 + 2 + 6

    week.runs("destroy", "teardown", str(fewer), "--name", "prime-day")
    kept = (well(week, "destroy") + week.said["retire"].stdout).split()
    assert list(week.stacks()) == ["CDKToolkit"]
    assert {name: found for name, listed in LEFT.items() if (found := listed(server))} == {}
    held = server.client("ec2").describe_capacity_reservations()["CapacityReservations"]
    assert {each["State"] for each in held} == {"cancelled"}
    groups = [each["logGroupName"] for each in server.client("logs").describe_log_groups()["logGroups"]]
    assert [name for name in groups if name not in kept] == []
