"""CloudFormation's schedules in moto, refused where an account would refuse them.

Source: Amazon EventBridge Scheduler user guide, One-time schedules and RetryPolicy.
"""

import json
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from tests.infra.moto_cache import refuse
from tests.infra.moto_forwarding import Forwarded, Properties, call, client, gone_is_fine

_LONGEST_AGE, _MOST_RETRIES = 86_400, 185


def _put_schedule(region: str, properties: Properties) -> Properties:
    kind, policy = "AWS::Scheduler::Schedule", properties["Target"].get("RetryPolicy", {})
    at = properties["ScheduleExpression"].removeprefix("at(").removesuffix(")")
    if datetime.fromisoformat(at).replace(tzinfo=UTC) < datetime.now(UTC):
        refuse(kind, f"{at} is in the past")
    age, retries = int(policy.get("MaximumEventAgeInSeconds", 60)), int(policy.get("MaximumRetryAttempts", 0))
    if not 60 <= age <= _LONGEST_AGE or not 0 <= retries <= _MOST_RETRIES:
        refuse(kind, f"{age} s and {retries} attempts are beyond what a retry policy may say")
    json.loads(properties["Target"]["Input"])
    try:
        client("scheduler", region).get_schedule(Name=properties["Name"], GroupName=properties["GroupName"])
    except ClientError:
        call("scheduler", "CreateSchedule")(region, properties)
    return {}


def _put_schedule_group(region: str, properties: Properties) -> Properties:
    try:
        client("scheduler", region).get_schedule_group(Name=properties["Name"])
    except ClientError:
        call("scheduler", "CreateScheduleGroup")(region, properties)
    return {}


EVENTS = (
    Forwarded(
        "AWS::Scheduler::Schedule",
        _put_schedule,
        gone_is_fine(call("scheduler", "DeleteSchedule", "Name", "GroupName")),
        name="Name",
    ),
    Forwarded(
        "AWS::Scheduler::ScheduleGroup",
        _put_schedule_group,
        gone_is_fine(call("scheduler", "DeleteScheduleGroup", "Name")),
        name="Name",
    ),
)
