"""What happens at a given time: a group's scheduled minimum, and calls of AWS's API before and after events.

infra/fleet/calendar.py decides the minimum. No stack has a capacity reservation: one that EC2 refuses is a call that
fails, which an alarm tells, and rolls nothing back. EC2 itself ends a reservation with its event.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.constructs.acknowledge import accept_star, printed
from infra.fleet.calendar import reserved, tags
from infra.fleet.parts import Group
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings


class GroupSchedule(Construct):
    """The scheduled actions of one Auto Scaling group.

    Each waits for the one before it, because Auto Scaling refuses several puts on one group at once.
    """

    def __init__(self, scope: Construct, id: str, *, law: ScalingLaw, group: str) -> None:
        """Create the actions; `group` is the Auto Scaling group's name."""
        super().__init__(scope, id)
        before: autoscaling.CfnScheduledAction | None = None
        for floor in law.schedule:
            starts = floor.at or floor.starts
            action = autoscaling.CfnScheduledAction(
                self,
                floor.name,
                auto_scaling_group_name=group,
                start_time=moment(starts) if starts else None,
                end_time=moment(floor.ends) if floor.ends else None,
                recurrence=floor.recurrence,
                time_zone=law.calendar.time_zone if floor.recurrence else None,
                min_size=floor.minimum,
            )
            if before is not None:
                action.add_resource_dependency(before)
            before = action


def moment(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_MOST_RETRIES = 185  # of Scheduler, which waits longer from try to try
_LONGEST = timedelta(hours=24)


class ScheduledCalls(Construct):
    """Calls that one role may make, on the resources given and no others.

    `group` is the name of the schedules' group, under which Scheduler counts the calls that fail.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        group: scheduler.CfnScheduleGroup,
        purpose: str,
        actions: Sequence[str],
        resources: Sequence[str],
    ) -> None:
        super().__init__(scope, id)
        self._group = group
        self._role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"), description=purpose
        )
        self._role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))

    def at(
        self, time: datetime, name: str, call: str, request: Mapping[str, object], *, until: datetime | None = None
    ) -> None:
        """Send `request` to the API's `call` (service:operation) at `time`; after failures, for an hour or `until`."""
        last = min(_LONGEST, (until - time) if until else timedelta(hours=1))
        scheduler.CfnSchedule(
            self,
            f"At-{name}",
            description=name,
            group_name=self._group.ref,
            schedule_expression=f"at({time.astimezone(UTC):%Y-%m-%dT%H:%M:%S})",
            schedule_expression_timezone="UTC",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=f"arn:aws:scheduler:::aws-sdk:{call}",
                role_arn=self._role.role_arn,
                input=Stack.of(self).to_json_string(request),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=int(last.total_seconds()), maximum_retry_attempts=_MOST_RETRIES
                ),
            ),
        )


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
    accept_star(calls, printed(anything), "EC2 invents the ids of the reservations that these calls make")
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
