"""Calls of AWS's API at a given time, by EventBridge Scheduler: what an event needs changed, and changed back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

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
