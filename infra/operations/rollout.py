"""`python -m infra.operations.rollout FLEET` brings one release to every cell. Harm in one stops all that follow.

First the fleet is rehearsed (rehearsal/twin). One that does not hold is refused, unless `--force` gives a reason, which
is logged. Then it is synthesised, and its release is read, once: every cell gets the templates and the machine image
that the first one proved, whatever becomes of files and parameters meanwhile. The CDK deploys the stacks under the
cells, and creates those that are missing. Then a state machine in the account goes from cell to cell, and sends them
back where an alarm tells of harm (infra/fleet/rollout_machine.py). This command prints the cells' steps until it ends;
if it is ended before, the account goes on.

How far it came is kept in the account (deployment_state.py): started again after a failure, it goes on. One deploy
changes a fleet at a time (deploy_lock.py). It is tested against moto through the CDK CLI, and has not run in a real
account.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from infra.fleet.images import commit
from infra.fleet.settings import FleetSettings
from infra.operations.command import (
    OVER,
    Clients,
    Told,
    call,
    deploy_line,
    digest,
    fleet_parser,
    operate,
    rehearsal,
    synthesis,
)
from infra.operations.deploy_lock import DeployLock, LockedError, held
from infra.operations.deployed_cell import CellError, Sleep
from infra.operations.deployment_state import DeploymentState, StateStore, Step, make_key
from infra.operations.handover import Handover, HandoverError
from infra.operations.release import Release, ReleaseError, newest_release, release_of, whole
from infra.operations.teardown import StillStandingError, TeardownError, retiring

POLL_SECONDS = 15.0
BACK = "back-"  # the executions that send a cell back are named so, after the lock's token (rollout_machine.py)
# What the phases of the machine's states mean (rollout_states.py).
STEPS = {"move": "begins", "moved": "changes", "bake": "is watched", "rest": "comes to rest"}
ENDS = {"SUCCEEDED": "has it", "FAILED": "failed", "ABORTED": "was stopped", "TIMED_OUT": "took too long"}


def follow(api: Any, execution: str, cells: Sequence[str], sleep: Sleep = time.sleep) -> int:
    """Print each stack's steps until the rollout ends, and return 0 where it succeeded, else 1.

    `api` is a client of Step Functions, `execution` the ARN of the rollout. The rollout goes on without this.
    """
    told: dict[str, str] = {}
    while True:
        rollout = api.describe_execution(executionArn=execution)
        for name, step in _steps(api, str(rollout["stateMachineArn"]), str(rollout["name"])):
            if told.get(name) != step:
                _tell(name, step, is_new=name not in told)
                told[name] = step
        if rollout["status"] != "RUNNING":
            break
        sleep(POLL_SECONDS)
    if rollout["status"] == "SUCCEEDED":
        return 0
    stopped = [name for name, step in told.items() if step != ENDS["SUCCEEDED"] and not name.startswith(BACK)]
    left = [cell for cell in cells if cell not in told]
    print(f"{rollout.get('error', rollout['status'])}: {rollout.get('cause', 'no reason given')}", file=sys.stderr)
    print(
        f"Stopped at {', '.join(stopped) or 'its beginning'}; not touched: {', '.join(left) or 'no cell'}. "
        "Go on: make deploy FLEET=...; go back: make rollback FLEET=...",
        file=sys.stderr,
    )
    return 1


def _tell(name: str, step: str, *, is_new: bool) -> None:
    if not name.startswith(BACK):
        print(f"{name} {step}", flush=True)
    elif is_new:
        print(f"Going back by itself: {name.removeprefix(BACK)}", file=sys.stderr, flush=True)


def _steps(api: Any, machine: str, rollout: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the step of each execution that a rollout started, the oldest first."""
    newest = api.list_executions(stateMachineArn=machine)["executions"]  # 100, and a rollout starts fewer than 50
    for each in reversed(newest):
        if each["name"].startswith(f"{rollout}-"):
            step = (
                _phase(api, each["executionArn"])
                if each["status"] == "RUNNING"
                else ENDS.get(each["status"], each["status"])
            )
            yield each["name"].removeprefix(f"{rollout}-"), step


def _phase(api: Any, execution: str) -> str:
    """Return what an execution that runs is at: every state is handed the phase that it is in."""
    events = api.get_execution_history(executionArn=execution, reverseOrder=True, maxResults=20)["events"]
    entered = [each for each in events if "stateEnteredEventDetails" in each]
    if not entered:
        return STEPS["move"]
    newest = max(entered, key=lambda each: int(each["id"]))
    handed = json.loads(newest["stateEnteredEventDetails"].get("input", "{}"))
    return STEPS.get(handed.get("phase", "move"), STEPS["move"])


class CannotGoOnError(Exception):
    """A deploy that cannot continue in its present state. The message says what to do and is written for operators."""


def start(state: DeploymentState, newest: Release, assembly: str, known: Callable[[str], Release]) -> Release:
    """Return the release to deploy: a new one, or that of an interrupted deploy.

    This changes `state`. Raise CannotGoOnError if a person must decide.
    """
    if state.release is None:
        if newest.image_id in state.rejected:
            raise CannotGoOnError(
                f"{newest} has hurt a cell or was rolled back: bake another image, or say --again to try it once more"
            )
        state.begin(newest.image_id, assembly, commit())
        return newest
    if hurt := [name for name, cell in state.cells.items() if cell.step is Step.HURT]:
        raise CannotGoOnError(f"{', '.join(hurt)} was hurt by {state.release}: make rollback, or --again to begin anew")
    if state.assembly != assembly:
        raise CannotGoOnError(
            f"the deploy of {state.release} was begun with other templates, at commit {state.commit}: check that out "
            "to go on, or say --again to begin anew with these"
        )
    print(f"Going on with the deploy of {state.release}", flush=True)
    return known(state.release)


def _parser() -> argparse.ArgumentParser:
    parser = fleet_parser(__doc__, cdk=True)
    parser.add_argument("--again", action="store_true", help="begin anew, whatever became of the deploy before")
    parser.add_argument(
        "--take-over", action="store_true", help="take the lock of a deploy that died, once it was silent for 5 minutes"
    )
    parser.add_argument(
        "--detach", action="store_true", help="end once the account's state machine has it, instead of following it"
    )
    parser.add_argument("--retire", action="store_true", help="delete the cells that the fleet file no longer has")
    parser.add_argument("--release", help="deploy this machine image instead of the newest")
    parser.add_argument("--traffic", help="what to rehearse before: a trace by name, or a CSV file of second,requests")
    parser.add_argument("--force", default="", metavar="REASON", help="deploy although the rehearsal fails; logged")
    parser.add_argument(
        "--bake",
        nargs=2,
        type=float,
        metavar=("FIRST", "OTHERS"),
        help="minutes that the first cell and every other is watched after its deploy; the fleet file's by default",
    )
    return parser


def _begun(
    given: argparse.Namespace, settings: FleetSettings, clients: Clients, assembly: Path
) -> tuple[DeploymentState, Release]:
    """Return the state of the deploy, as it is stored now, and the release that it brings."""
    ssm, ec2 = clients("ssm"), clients("ec2")
    store = StateStore(settings, ssm)
    state = store.load()
    if given.again:
        state.finish()
        state.rejected = []

    def known(image: str) -> Release:
        return whole(settings, release_of(settings, image, ec2))

    newest = known(given.release) if given.release else newest_release(settings, ssm, ec2)
    release = start(state, newest, digest(assembly), known)
    print(f"Release {release}", flush=True)
    for cell in settings.cell_names:
        state.cell(cell)
    store.save(state)
    return state, release


def _deploy(given: argparse.Namespace, settings: FleetSettings, clients: Clients, assembly: Path) -> int:
    lock = DeployLock(settings, "deploy", ssm=clients("ssm"), sts=clients("sts"))
    with held(lock, take_over=given.take_over):
        leaving = retiring(settings, clients, asked=given.retire)
        if leaving.cells and given.detach:
            raise CannotGoOnError(f"{', '.join(leaving.cells)} is retired by make deploy RETIRE=1, which waits for it")
        state, release = _begun(given, settings, clients, assembly)
        make_key(settings, clients("ssm"))
        canary, others = given.bake or (settings.rollout.canary_bake_minutes, settings.rollout.bake_minutes)
        handover = Handover(settings, state, clients, assembly, release.companions, (canary, others))
        line = deploy_line(given.cdk, assembly)
        if code := handover.create(line, call, lock):
            return code
        refused = handover.create_last(line, call, lock)  # the cells get the release all the same
        over = OVER[:-1] if refused else OVER
        execution = handover.start(lock, OVER[:1] if leaving.cells else over)
    code = _followed(given, settings, clients, execution)
    if not leaving.cells or code:
        return code or refused
    with held(DeployLock(settings, "deploy", ssm=clients("ssm"), sts=clients("sts"))) as lock:
        leaving.run()  # no name leads to these cells any more, and their alarms are still there
        execution = replace(handover, state=StateStore(settings, clients("ssm")).load()).start(lock, over)
    return _followed(given, settings, clients, execution) or refused


def _followed(given: argparse.Namespace, settings: FleetSettings, clients: Clients, execution: str) -> int:
    print(
        "The account goes on with it, and this shell may end. How far it is: aws stepfunctions describe-execution "
        f"--query '[status,error,cause]' --execution-arn {execution}",
        flush=True,
    )
    return 0 if given.detach else follow(clients("stepfunctions"), execution, settings.cell_names)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 2 when the fleet file or the account cannot be used, 3 when a person must decide first.
    """
    given = _parser().parse_intermixed_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        if code := call(rehearsal(given.fleet, given.traffic, given.force)):
            return Told(data={"stopped_at": "rehearsal"}, code=code)
        with TemporaryDirectory(prefix=f"peakplan-{settings.name}-") as assembly:
            if code := call(synthesis(given.fleet, given.cdk, assembly)):
                return Told(data={"stopped_at": "synthesis"}, code=code)
            code = _deploy(given, settings, clients, Path(assembly))
        cells = StateStore(settings, clients("ssm")).load().cells if given.json else {}
        return Told(data={"cells": {name: cell.model_dump() for name, cell in cells.items()}}, code=code)

    person = (CannotGoOnError, CellError, HandoverError, LockedError, ReleaseError, StillStandingError, TeardownError)
    try:
        return operate(given, act, dict.fromkeys(person, 3))
    except FileNotFoundError as error:
        print(f"{error.filename}: no such command; `make deploy` installs the pinned CDK CLI", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
