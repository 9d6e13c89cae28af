"""The scheduled minimum of one Auto Scaling group, as its scheduled actions; infra/fleet/calendar.py decides them."""

from __future__ import annotations

from datetime import UTC, datetime

from aws_cdk import aws_autoscaling as autoscaling
from constructs import Construct

from infra.fleet.scaling import ScalingLaw


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
    """Return a time as AWS's APIs take it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
