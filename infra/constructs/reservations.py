"""The calls that reserve a group's capacity before each event; EC2 itself ends a reservation with its event.

No stack has a reservation: one that EC2 refuses is a call that fails, which an alarm tells, and rolls nothing back.
"""

from __future__ import annotations

import hashlib
import json

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.constructs.acknowledge import acknowledge
from infra.constructs.rollout import printed
from infra.constructs.schedule import moment
from infra.constructs.scheduled_calls import ScheduledCalls
from infra.fleet.parts import Group
from infra.fleet.reservations import reserved, tags
from infra.fleet.settings import FleetSettings


def reserve_for_events(
    scope: Construct, settings: FleetSettings, group: Group, cell: str, schedules: scheduler.CfnScheduleGroup
) -> None:
    """Schedule the reservations of one cell's group, in every zone and for every event."""
    stack = Stack.of(scope)
    anything = stack.format_arn(
        service="ec2", resource="capacity-reservation", resource_name="*", arn_format=ArnFormat.SLASH_RESOURCE_NAME
    )
    calls = ScheduledCalls(
        scope,
        "Reservations",
        group=schedules,
        purpose=f"Reserves capacity of {cell} for events",
        actions=["ec2:CreateCapacityReservation", "ec2:CreateTags"],
        resources=[anything],
    )
    finding = f"AwsSolutions::AwsSolutions-IAM5[Resource::{printed(anything)}]"
    acknowledge(calls, finding, "EC2 invents the ids of the reservations that these calls make")
    for event in reserved(settings, group):
        for zone in settings.availability_zones:
            request = {
                "AvailabilityZone": zone,
                "InstanceType": group.instance_type,
                "InstancePlatform": "Linux/UNIX",
                "InstanceCount": event.instances,
                "InstanceMatchCriteria": "open",  # instances of the type fill it wherever they are launched from
                "EndDateType": "limited",
                "EndDate": moment(event.closes),
                "TagSpecifications": [{"ResourceType": "capacity-reservation", "Tags": tags(settings, cell)}],
            }
            # A call that is tried again, though EC2 had accepted it, reserves nothing twice.
            told = hashlib.sha256(json.dumps([group.chip, request], sort_keys=True).encode()).hexdigest()
            asked = request | {"ClientToken": told}
            calls.at(event.opens, f"{event.event}-{zone}", "ec2:createCapacityReservation", asked, until=event.starts)
