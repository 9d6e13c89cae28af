"""Stacks whose instances take time to be replaced, by the account's own clock, and the way back of a cancelled update.

moto updates at once, and cannot cancel. CloudFormation waits for the instance refresh of a group that it changed; where
it is cancelled, it goes back by the template, parameters and policy from before the update. Where no test has set the
clock, a refresh takes no time.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.cloudformation.parsing import clean_json
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult

from infra.fleet.replacement import Replacement
from tests.infra.moto_clock import is_set, now

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


def take_time_to_refresh() -> None:
    """Extend moto in this process."""
    update, get, describe = Stack.update, CloudFormationBackend.get_stack, CloudFormationBackend.describe_stacks

    def updated(self: Any, template: str, role_arn: Any = None, parameters: Any = None, tags: Any = None) -> None:
        _settle(self)
        if self.status.endswith("_IN_PROGRESS"):
            raise ValidationError(self.name, f"Stack:{self.stack_id} is in {self.status} state and can not be updated.")
        before, image = (self.template, dict(self.parameters)), _image(self)
        update(self, template, role_arn, parameters, tags)
        replacement = _preferences(self)
        timed = is_set(self.account_id, self.region_name)
        if replacement is not None and timed and _image(self) != image:
            self.status = "UPDATE_IN_PROGRESS"
            ends = _clock(self) + timedelta(seconds=_seconds(replacement))
            self.refresh = Refresh(ends, self.status, "UPDATE_COMPLETE", before)

    def asked(self: CloudFormationBackend, name: str) -> Any:
        stack = get(self, name)
        _settle(stack)
        return stack

    def described(self: CloudFormationBackend, name: str) -> Any:
        stacks = describe(self, name)
        for stack in stacks:
            _settle(stack)
        return stacks

    def cancel(self: CloudFormationResponse) -> ActionResult:
        stack: Any = self.cloudformation_backend.get_stack(self._get_param("StackName"))
        refresh = getattr(stack, "refresh", None)
        if refresh is None or stack.status != "UPDATE_IN_PROGRESS":
            raise ValidationError(stack.name, "CancelUpdateStack cannot be called from current stack status")
        template, parameters = refresh.before
        update(stack, template, None, parameters, None)
        back = _preferences(stack)
        assert back is not None
        stack.status = "UPDATE_ROLLBACK_IN_PROGRESS"
        ends = _clock(stack) + timedelta(seconds=_seconds(back))
        stack.refresh = Refresh(ends, stack.status, "UPDATE_ROLLBACK_COMPLETE", refresh.before)
        return EmptyResult()

    setattr(Stack, "update", updated)  # noqa: B010
    setattr(CloudFormationBackend, "get_stack", asked)  # noqa: B010
    setattr(CloudFormationBackend, "describe_stacks", described)  # noqa: B010
    setattr(CloudFormationResponse, "cancel_update_stack", cancel)  # noqa: B010
