"""Scheduled actions as Auto Scaling keeps them: unique times, none in the past, and one put to a group at a time.

moto knows none of these refusals. Sources: "A scheduled action must have a unique time value" (Amazon EC2 Auto Scaling
user guide, Scheduled scaling); several puts on one group at once end with AlreadyExists (TerraConstructs/base#127).
"""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from moto.autoscaling.models import FakeScheduledAction, autoscaling_backends
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.parsing import ResourceMap

from tests.infra.moto_clock import now
from tests.infra.moto_forwarding import Properties

KIND = "AWS::AutoScaling::ScheduledAction"
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


def next_run(action: Any, moment: datetime) -> datetime | None:
    """When Auto Scaling runs an action next; None where it is over, and the account has forgotten it."""
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
    """Refuse what CloudFormation would put on one group at the same time: actions that no DependsOn brings in order."""
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


def keep_schedules_as_auto_scaling_does() -> None:
    """Extend moto in this process."""
    model: Any = FakeScheduledAction

    def create(
        cls: Any, /, resource_name: str, cloudformation_json: Properties, account: str, region: str, **more: Any
    ) -> Any:
        del cls
        stack = str(more.get("StackId", resource_name)).split("/")[1]
        return _put(f"{stack}-{more['LogicalId']}", cloudformation_json["Properties"], account, region)

    def update(
        cls: Any, /, original_resource: Any, new_resource_name: str, cloudformation_json: Properties, account_id: str,
        region_name: str,
    ) -> Any:  # fmt: skip
        del cls, new_resource_name
        return _put(original_resource.scheduled_action_name, cloudformation_json["Properties"], account_id, region_name)

    def delete(self: Any, account_id: str, region_name: str) -> None:
        autoscaling_backends[account_id][region_name].scheduled_actions.pop(self.scheduled_action_name, None)

    model.create_from_cloudformation_json = classmethod(create)
    model.update_from_cloudformation_json = classmethod(update)
    model.delete = delete
    _put_in_order()


def _put_in_order() -> None:
    """CloudFormation makes and changes before it deletes; moto deletes first."""
    resource_map: Any = ResourceMap
    create, update = resource_map.create, resource_map.update

    def created(self: Any, template: dict[str, Any]) -> bool:
        refuse_puts_at_once(template, list(template["Resources"]))
        done: bool = create(self, template)
        return done

    def updated(self: Any, template: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
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

    resource_map.create, resource_map.update = created, updated
