"""The start of a deploy in the account: the CDK creates the stacks that are missing, then the state machine takes over.

It gets the deploy's templates, steps and lock (infra/fleet/rollout_machine.py). A deploy that was broken off, or
failed, is handed over again by the same command: what a stack has behind it is skipped.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from infra.fleet.alarms import gates
from infra.fleet.images import MAIN
from infra.fleet.release_arms import arms_of, queries
from infra.fleet.replacement import careful, refresh_seconds
from infra.fleet.rollout_states import MOST_HISTORY, back_at, done_parameter, look_seconds, machine_name
from infra.fleet.settings import FleetSettings
from infra.operations.baking import deploy_under
from infra.operations.command import OVER, Call, Clients
from infra.operations.deploy_lock import DeployLock
from infra.operations.deployed_cell import DeployedCell, make_way, stack_of
from infra.operations.deployment_state import DeploymentState, RolloutMarks, StateStore, Step, mark_of
from infra.operations.release import companions_of

SETTLE_SECONDS = 5  # long enough for writes by readers of the old lock to end
EXECUTION_ROLE = "arn:aws:iam::{account}:role/cdk-hnb659fds-cfn-exec-role-{account}-{region}"  # of `cdk bootstrap`


class HandoverError(Exception):
    """A deploy that the account cannot do by itself. The message says what to do and is written for operators."""


@dataclass(frozen=True)
class Handover:
    """One deploy of a synthesised fleet, for the state machine.

    `assembly` is the folder of its templates, `minutes` how long the first cell is watched, and every other.
    """

    settings: FleetSettings
    state: DeploymentState
    clients: Clients
    assembly: Path
    companions: Mapping[str, str]  # the release's images for other architectures
    minutes: tuple[float, float]

    def create(self, deploy: Sequence[str], call: Call, lock: DeployLock) -> int:
        """Deploy what is under the cells, create what else is missing but the last, and return the CLI's exit code.

        `deploy` is the CDK CLI's command line without stacks. Raise HandoverError, before anything is changed, where a
        cell takes longer than an execution can look at it, and LockedError where the lock was lost.
        """
        self._seconds_between_looks(max(self.minutes))
        if code := deploy_under(self.settings, self.clients, deploy, call):
            return code
        image = {MAIN: self.state.release or "", **self.companions}
        told = [word for name, value in image.items() for word in ("--parameters", f"{name}={value}")]
        for wave in waves_of(self.settings):
            if code := self._created(wave, told, deploy, call, lock):
                return code
        for stack in OVER[:-1]:
            if code := self._created((stack,), [], deploy, call, lock):
                return code
        return 0

    def create_last(self, deploy: Sequence[str], call: Call, lock: DeployLock) -> int:
        """Create the last stack if it is missing, and return the CLI's exit code: an account may be refused it."""
        return self._created(OVER[-1:], [], deploy, call, lock)

    def _created(
        self, stacks: Sequence[str], told: Sequence[str], deploy: Sequence[str], call: Call, lock: DeployLock
    ) -> int:
        missing = [stack for stack in stacks if not self._deployed(stack.lower()).exists()]
        if not missing:
            return 0
        lock.check()
        print(f"Creating {', '.join(missing)}", flush=True)
        marks = RolloutMarks(self.settings, self.clients("ssm"))
        for stack in missing:
            marks.begin(stack, self.state)  # that of a stack which somebody deleted is true no more
            make_way(stack_of(self.settings, stack.lower()), self.clients("cloudformation"), self.clients("elbv2"))
        names = [stack.capitalize() for stack in missing]
        return call([*deploy, "--concurrency", str(len(names)), "--exclusively", *names, *told])

    def start(self, lock: DeployLock, over: Sequence[str] = OVER) -> str:
        """Store the deploy's state, start the machine, give it the lock, and return the execution's ARN.

        Without all stacks `over` the cells the deploy is not finished at the end. Raise LockedError, before anything is
        stored, where the lock was lost.
        """
        lock.check()
        token = f"{self.state.release}-{uuid4().hex[:8]}"
        began = datetime.now(UTC).isoformat()
        account = str(self.clients("sts").get_caller_identity()["Account"])
        first, others = self.minutes
        minutes = dict.fromkeys(self.settings.cell_names, others) | {self.settings.cell_names[0]: first}
        waves = [[self._cell(cell, minutes[cell], account) for cell in wave] for wave in waves_of(self.settings)]
        store = StateStore(self.settings, self.clients("ssm"))
        after = self.state.model_copy(deep=True)
        for cell in after.cells.values():
            cell.step = Step.DONE
        if over == OVER:
            after.finish()
        back = [self._returning(cell, before, account) for cell, before in self._to_return().items()]
        states = {"after": after, "returned": self._returned()}
        asked = {
            "release": self.state.release,
            "deployment": store.name,
            "lock": {"name": lock.name, "token": token, "began": began, "settle_seconds": SETTLE_SECONDS},
            "states": {name: state.model_dump_json(exclude_defaults=True) for name, state in states.items()},
            "back": {"cells": back, "count": len(back)},
            "waves": waves,
            "over": [self._item(stack, account) | {"cell": ""} for stack in over],
        }
        store.save(self.state)
        marks = RolloutMarks(self.settings, self.clients("ssm"))
        for stack in (*self.settings.cell_names, *over):
            if not marks.has(stack, self.state):  # an earlier deploy's, which this one makes untrue
                marks.begin(stack, self.state)
        machine = machine_arn(self.settings, account)
        lock.hand_over(token, who=f"{machine_name(self.settings)}, execution {token}")
        started = self.clients("stepfunctions").start_execution(
            stateMachineArn=machine, name=token, input=json.dumps(asked)
        )
        return str(started["executionArn"])

    def _seconds_between_looks(self, bake_minutes: float) -> int:
        # CloudFormation takes longer than its refresh where launches are tried again.
        seconds = 1.5 * refresh_seconds(self.settings, careful(self.settings)) + 60 * bake_minutes
        if (found := look_seconds(seconds)) is None:
            raise HandoverError(
                f"a cell that bakes for {bake_minutes:g} minutes is looked at more often than the history of one "
                f"execution holds ({MOST_HISTORY:,} events): lower rollout.canary_bake_minutes and bake_minutes "
                "[source: AWS Step Functions developer guide, Service quotas]"
            )
        return found

    def _cell(self, cell: str, minutes: float, account: str) -> dict[str, Any]:
        stack = self._deployed(cell)
        if stack.exists() and (runs := stack.runs()):
            self.state.sent(cell, runs)
        self.state.sent(cell, self.state.release or "")
        image = {MAIN: self.state.release or "", **self.companions}
        every = self._seconds_between_looks(minutes)
        hurt = self.state.model_copy(deep=True)
        hurt.cell(cell).step = Step.HURT
        hurt.reject(self.state.release or "")
        return self._item(cell.capitalize(), account) | {
            "cell": cell,
            "parameters": _parameters(image | {"RefreshSpeed": "careful"}),
            "resting": _parameters(image | {"RefreshSpeed": "fast"}),
            "gates": gates(self.settings.name, cell),
            "arms": self._arms(cell),
            "look_seconds": every,
            "looks": math.ceil(60 * minutes / max(1, every)),
            "hurt": hurt.model_dump_json(exclude_defaults=True),
        }

    def _arms(self, cell: str) -> dict[str, Any]:
        """Return what tells, while the cell bakes, how shoppers fare with both releases."""
        if not self.settings.shopper_events.enabled:
            return {"queries": [], "count": 0}
        new, before = arms_of(cell, waves_of(self.settings))
        found = queries(self.settings.name, new, before, self.settings.cells)
        return {"queries": found, "count": len(found)}

    def _to_return(self) -> dict[str, str]:
        """Return what each cell goes back to; one that this deploy makes has nothing to go back to."""
        found = self.state.to_return().items()
        return {cell: before for cell, before in found if self._deployed(cell).exists()}

    def _deployed(self, cell: str) -> DeployedCell:
        beside = companions_of(self.settings, self.clients("ec2"))
        stack = stack_of(self.settings, cell)
        return DeployedCell(cell, stack, self.clients("cloudformation"), companions=beside)

    def _returned(self) -> DeploymentState:
        state = self.state.model_copy(deep=True)
        for cell, before in self._to_return().items():
            state.returned(cell, before)
        state.reject(self.state.release or "")
        state.finish()
        return state

    def _returning(self, cell: str, release: str, account: str) -> dict[str, Any]:
        stack = self._deployed(cell)
        return {
            "cell": cell,
            "called": cell,
            "stack": stack.stack,
            "parameters": stack.parameters_for(release),
            "role": EXECUTION_ROLE.format(account=account, region=self.settings.region),
            "done_in": done_parameter(self.settings, cell),
            "back": back_at(release),
            "look_seconds": self._seconds_between_looks(0),
        }

    def _item(self, stack: str, account: str) -> dict[str, Any]:
        name, properties = stack_of(self.settings, stack.lower()), self._properties(stack)
        region = self.settings.region
        return {
            "called": stack.lower(),
            "stack": name,
            "template": self._uploaded(stack, account),
            "parameters": [],
            "tags": [{"Key": key, "Value": value} for key, value in properties.get("tags", {}).items()],
            "role": EXECUTION_ROLE.format(account=account, region=region),
            "done_in": done_parameter(self.settings, stack.lower()),
            "deploy": mark_of(self.state),
            "look_seconds": self._seconds_between_looks(0),
        }

    def _properties(self, stack: str) -> Mapping[str, Any]:
        manifest = json.loads((self.assembly / "manifest.json").read_text(encoding="utf-8"))
        properties: Mapping[str, Any] = manifest["artifacts"][stack]["properties"]
        return properties

    def _uploaded(self, stack: str, account: str) -> str:
        """Put a stack's template where `cdk deploy` puts it, and return its address."""
        assets = json.loads((self.assembly / f"{stack}.assets.json").read_text(encoding="utf-8"))["files"]
        (asset,) = [each for each in assets.values() if each["source"]["path"] == f"{stack}.template.json"]
        (place,) = asset["destinations"].values()
        bucket = (
            place["bucketName"].replace("${AWS::AccountId}", account).replace("${AWS::Region}", self.settings.region)
        )
        body = (self.assembly / asset["source"]["path"]).read_bytes()
        self.clients("s3").put_object(Bucket=bucket, Key=place["objectKey"], Body=body, ExpectedBucketOwner=account)
        return f"https://{bucket}.s3.{self.settings.region}.amazonaws.com/{place['objectKey']}"


def waves_of(settings: FleetSettings) -> list[tuple[str, ...]]:
    """Return the cells of each wave: the first alone, then as many at a time as the fleet file allows."""
    first, *others = settings.cell_names
    size = settings.rollout.parallel_cells
    return [(first,), *(tuple(others[start : start + size]) for start in range(0, len(others), size))]


def machine_arn(settings: FleetSettings, account: str) -> str:
    return f"arn:aws:states:{settings.region}:{account}:stateMachine:{machine_name(settings)}"


def stop_executions(settings: FleetSettings, clients: Clients, cause: str) -> int:
    """Stop what the fleet's state machine runs, and return how many executions that were."""
    api = clients("stepfunctions")
    machine = machine_arn(settings, str(clients("sts").get_caller_identity()["Account"]))
    try:
        found = api.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "StateMachineDoesNotExist":
            raise
        return 0
    # Stop the rollout before the executions that it started. Otherwise it would see them end and act on that.
    running = sorted(found, key=lambda each: each["startDate"])
    for each in running:
        api.stop_execution(executionArn=each["executionArn"], cause=cause)
    return len(running)


def _parameters(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"ParameterKey": name, "ParameterValue": value} for name, value in values.items()]
