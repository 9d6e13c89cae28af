"""What takes time in the emulated account: its clock, stacks whose instances are replaced, scheduled actions.

A test sets the clock by a parameter. moto updates stacks at once, and cannot cancel. CloudFormation waits for the
instance refresh of a group that it changed; where it is cancelled, it goes back by the template, parameters and policy
from before the update. Where no test has set the clock, a refresh takes no time. Scheduled actions have unique times,
none in the past, and are put to a group one at a time. Sources: "A scheduled action must have a unique time value"
(Amazon EC2 Auto Scaling user guide); several puts at once end with AlreadyExists (TerraConstructs/base#127).
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from moto.autoscaling.models import FakeScheduledAction, autoscaling_backends
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.cloudformation.parsing import ResourceMap, clean_json
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.ssm.models import ssm_backends

from infra.fleet.replacement import Replacement
from tests.infra.moto_forwarding import Properties, instead

NOW = "/emulator/now"  # an ISO 8601 time; the machine's own clock where it is not there


def now(account: str, region: str) -> datetime:
    """Return the account's time. Called inside the server only."""
    told = ssm_backends[account][region].get_parameter(NOW)
    return datetime.fromisoformat(told.value) if told else datetime.now(UTC)


def is_set(account: str, region: str) -> bool:
    """Return whether a test has set the clock. Called inside the server only."""
    return ssm_backends[account][region].get_parameter(NOW) is not None


def set_clock(ssm: Any, time: datetime) -> None:
    """Move the account's clock, from a test."""
    ssm.put_parameter(Name=NOW, Value=time.isoformat(), Type="String", Overwrite=True)


BOOT_SECONDS, TERMINATE_SECONDS = 600, 150  # of every host in the emulated account


@dataclass(frozen=True)
class Refresh:
    """What CloudFormation waits for, and what the stack is then."""

    ends: datetime
    doing: str
    done: str
    before: tuple[str, dict[str, Any]]  # template and parameters


def _preferences(stack: Any) -> Replacement | None:
    """The longest refresh that the stack's policies ask for now; None where it has no groups that are refreshed."""
    resources = stack.resource_map
    found = []
    for resource in stack.template_dict["Resources"].values():
        policy = resource.get("UpdatePolicy", {}).get("AutoScalingInstanceRefresh")
        if policy is None:
            continue
        said = clean_json(policy["Preferences"], resources)
        found.append(
            Replacement(
                checkpoints=tuple(int(each) for each in said["CheckpointPercentages"]),
                checkpoint_seconds=int(said["CheckpointDelay"]),
                spare_percent=int(said["MaxHealthyPercentage"]) - int(said["MinHealthyPercentage"]),
                bake_seconds=int(said["BakeTime"]),
            )
        )
    return max(found, key=_seconds, default=None)


def _seconds(replacement: Replacement) -> float:
    return replacement.seconds(BOOT_SECONDS, TERMINATE_SECONDS)


def _clock(stack: Any) -> datetime:
    return now(stack.account_id, stack.region_name)


def _image(stack: Any) -> Any:
    return stack.resource_map.resolved_parameters.get("MachineImageId")


def _settle(stack: Any) -> None:
    refresh: Refresh | None = getattr(stack, "refresh", None)
    if refresh is not None and _clock(stack) >= refresh.ends:
        stack.status, stack.refresh = refresh.done, None
        stack._add_stack_event(refresh.done)


@instead(Stack, "update")
def _updated(
    update: Any, self: Any, template: str, role_arn: Any = None, parameters: Any = None, tags: Any = None
) -> None:
    _settle(self)
    if self.status.endswith("_IN_PROGRESS"):
        raise ValidationError(self.name, f"Stack:{self.stack_id} is in {self.status} state and can not be updated.")
    before, image = (self.template, dict(self.parameters)), _image(self)
    self.update_at_once = partial(update, self)
    update(self, template, role_arn, parameters, tags)
    replacement = _preferences(self)
    if replacement is not None and is_set(self.account_id, self.region_name) and _image(self) != image:
        self.status = "UPDATE_IN_PROGRESS"
        ends = _clock(self) + timedelta(seconds=_seconds(replacement))
        self.refresh = Refresh(ends, self.status, "UPDATE_COMPLETE", before)


@instead(CloudFormationBackend, "get_stack")
def _asked(get: Any, self: Any, name: str) -> Any:
    stack = get(self, name)
    _settle(stack)
    return stack


@instead(CloudFormationBackend, "describe_stacks")
def _described(describe: Any, self: Any, name: str) -> Any:
    stacks = describe(self, name)
    for stack in stacks:
        _settle(stack)
    return stacks


@instead(CloudFormationResponse, "cancel_update_stack")
def _cancel(_: None, self: Any) -> ActionResult:
    stack: Any = self.cloudformation_backend.get_stack(self._get_param("StackName"))
    refresh = getattr(stack, "refresh", None)
    if refresh is None or stack.status != "UPDATE_IN_PROGRESS":
        raise ValidationError(stack.name, "CancelUpdateStack cannot be called from current stack status")
    template, parameters = refresh.before
    stack.update_at_once(template, None, parameters, None)
    back = _preferences(stack)
    assert back is not None
    stack.status = "UPDATE_ROLLBACK_IN_PROGRESS"
    ends = _clock(stack) + timedelta(seconds=_seconds(back))
    stack.refresh = Refresh(ends, stack.status, "UPDATE_ROLLBACK_COMPLETE", refresh.before)
    return EmptyResult()


KIND = "AWS::AutoScaling::ScheduledAction"
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


def next_run(action: Any, moment: datetime) -> datetime | None:
    """Return when Auto Scaling next runs an action, or None if it is over and forgotten."""
    start = datetime.fromisoformat(action.start_time) if action.start_time else None
    if start is not None and start > moment:
        return start
    if action.recurrence is None:
        return None
    minute, hour, _, _, days = action.recurrence.split()
    local = moment.astimezone(ZoneInfo(action.time_zone or "UTC")).replace(second=0, microsecond=0)
    times = (local.replace(hour=int(hour), minute=int(minute)) + timedelta(days=ahead) for ahead in range(9))
    time = next(time for time in times if time > moment and DAYS[time.weekday()] in days.split(","))
    return None if action.end_time and time > datetime.fromisoformat(action.end_time) else time


def _put(name: str, properties: Properties, account: str, region: str) -> Any:
    backend, moment = autoscaling_backends[account][region], now(account, region)
    held = backend.scheduled_actions
    before = held.get(name)
    action = backend.put_scheduled_update_group_action(
        name=properties["AutoScalingGroupName"],
        desired_capacity=properties.get("DesiredCapacity"),
        max_size=properties.get("MaxSize"),
        min_size=properties.get("MinSize"),
        scheduled_action_name=name,
        start_time=properties.get("StartTime"),
        end_time=properties.get("EndTime"),
        recurrence=properties.get("Recurrence"),
        timezone=properties.get("TimeZone"),
    )
    try:
        _accept(action, [each for each in held.values() if each is not action], moment)
    except ValidationError:
        if before is None:
            del held[name]
        else:
            held[name] = before
        raise
    setattr(action, "physical_resource_id", name)  # noqa: B010
    return action


def _accept(action: Any, others: list[Any], moment: datetime) -> None:
    if action.start_time and datetime.fromisoformat(action.start_time) <= moment:
        raise ValidationError(action.scheduled_action_name, f"{KIND}: Given start time is in the past")
    time = next_run(action, moment)
    for other in others:
        if other.auto_scaling_group_name == action.auto_scaling_group_name and next_run(other, moment) == time:
            raise ValidationError(
                action.scheduled_action_name,
                f"{KIND}: A scheduled action must have a unique time value: {other.scheduled_action_name} has {time}",
            )


def refuse_puts_at_once(template: dict[str, Any], put: list[str]) -> None:
    """Refuse scheduled actions of one group that no DependsOn puts in order: CloudFormation would put them at once."""
    resources = template["Resources"]
    groups: dict[str, list[str]] = {}
    for name in put:
        if resources[name]["Type"] == KIND:
            groups.setdefault(str(resources[name]["Properties"]["AutoScalingGroupName"]), []).append(name)
    for group, names in groups.items():
        before = {name: _before(resources, name) & set(names) for name in names}
        if sorted(len(each) for each in before.values()) != list(range(len(names))):
            raise ValidationError(group, f"{KIND}: AlreadyExists: {len(names)} scheduled actions are put at once")


def _before(resources: dict[str, Any], name: str) -> set[str]:
    """Every resource that is there before `name` is put."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        depends = resources[ahead.pop()].get("DependsOn", [])
        new = set([depends] if isinstance(depends, str) else depends) - found
        found |= new
        ahead += new
    return found


@instead(FakeScheduledAction, "create_from_cloudformation_json", of_class=True)
def _create(_: Any, resource_name: str, cloudformation_json: Properties, account: str, region: str, **more: Any) -> Any:
    stack = str(more.get("StackId", resource_name)).split("/")[1]
    return _put(f"{stack}-{more['LogicalId']}", cloudformation_json["Properties"], account, region)


@instead(FakeScheduledAction, "update_from_cloudformation_json", of_class=True)
def _update(
    _: Any, /, original_resource: Any, new_resource_name: str, cloudformation_json: Properties, account_id: str,
    region_name: str,
) -> Any:  # fmt: skip
    del new_resource_name
    return _put(original_resource.scheduled_action_name, cloudformation_json["Properties"], account_id, region_name)


@instead(FakeScheduledAction, "delete")
def _delete(_: Any, self: Any, account_id: str, region_name: str) -> None:
    autoscaling_backends[account_id][region_name].scheduled_actions.pop(self.scheduled_action_name, None)


@instead(ResourceMap, "create")
def _created(create: Any, self: Any, template: dict[str, Any]) -> bool:
    refuse_puts_at_once(template, list(template["Resources"]))
    return bool(create(self, template))


@instead(ResourceMap, "update")
def _put_in_order(update: Any, self: Any, template: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
    """CloudFormation makes and changes before it deletes; moto deletes first."""
    before, wanted = self._resource_json_map, template["Resources"]
    changes = self.build_resource_diff(template, parameters)
    put = changes["Add"] + changes["Modify"]
    refuse_puts_at_once(template, put)
    actions = [name for name in put if wanted[name]["Type"] == KIND]
    present = dict(before)
    for name in sorted(actions, key=lambda name: len(_before(wanted, name))):
        present[name] = wanted[name]
        update(self, self._template | {"Resources": dict(present)})
    update(self, template | {"Resources": present | wanted}, parameters)
    update(self, template, parameters)
