"""CloudFormation's schedules and groups of capacity reservations in moto, refused where an account would refuse them.

Sources: Amazon EventBridge Scheduler user guide, One-time schedules and RetryPolicy; Amazon EC2 user guide, Create a
Capacity Reservation group. moto has no capacity reservations: their groups are held.
"""

import json
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from tests.infra.moto_cache import refuse
from tests.infra.moto_forwarding import Forwarded, Properties, call, client, gone_is_fine

_LONGEST_AGE, _MOST_RETRIES = 86_400, 185
_POOL, _GENERIC = "AWS::EC2::CapacityReservationPool", "AWS::ResourceGroups::Generic"


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


def _put_group(region: str, properties: Properties) -> Properties:
    kind = "AWS::ResourceGroups::Group"
    configured = {each["Type"]: each.get("Parameters", []) for each in properties.get("Configuration", [])}
    if set(configured) != {_POOL, _GENERIC}:
        refuse(kind, f"instances target a group of {_POOL} and {_GENERIC} alone")
    if configured[_GENERIC] != [{"Name": "allowed-resource-types", "Values": ["AWS::EC2::CapacityReservation"]}]:
        refuse(kind, "it must allow capacity reservations and nothing else")
    strangers = [arn for arn in properties.get("Resources", []) if ":capacity-reservation/cr-" not in arn]
    if strangers:
        refuse(kind, f"{strangers[0]} is no capacity reservation")
    return {"Arn": f"arn:aws:resource-groups:{region}:123456789012:group/{properties['Name']}"}


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
    Forwarded("AWS::ResourceGroups::Group", _put_group, lambda region, properties: {}, name="Name"),  # noqa: ARG005
)
