"""`python -m infra.operations.rollout FLEET` brings one release to every cell. Harm in one stops all that follow.

The fleet is synthesised once and the release is read once, at the beginning: every cell gets the templates and the
machine image that the first one proved, whatever becomes of files and parameters meanwhile. What cells stand on goes
first, then the first cell alone, then the others as many at a time as `rollout` of the fleet file allows, each under
its deploy marker (infra/operations/deploying.py), then the names and alarms over them. Where an alarm tells of harm
while a cell bakes, every cell that has the release goes back to the one before, at once.

Before all of it the fleet is rehearsed, and one that does not hold is refused, unless `--force` gives a reason, which
is logged (rehearsal/twin).

How far it came is kept in the account (deployment_state.py): started again after its shell died, it goes on. One shell
deploys at a time (deploy_lock.py). It is tested against moto through the CDK CLI, and has not run in a real account.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.images import MAIN
from infra.fleet.settings import FleetSettings
from infra.operations.command import Clients, fleet_parser, operate
from infra.operations.command_lines import OVER, UNDER, Call, deploy_line, digest, rehearsal, synthesis
from infra.operations.deploy_lock import DeployLock, LockedError, held
from infra.operations.deployed_cell import CellError, DeployedCell, make_way, stack_of
from infra.operations.deploying import HarmSeenError, bake, marked
from infra.operations.deployment_state import DeploymentState, StateStore, Step
from infra.operations.handover import Handover
from infra.operations.outcomes_key import make_key
from infra.operations.release import Release, ReleaseError, newest_release, release_of, whole
from infra.operations.retiring import StillStandingError, retiring
from infra.operations.rollback import roll_back_alone
from infra.operations.rollout_marks import RolloutMarks
from infra.operations.teardown import TeardownError
from infra.source import commit


class _StoppedError(Exception):
    """Another cell was hurt: this one's bake has lost its purpose."""


class CannotGoOnError(Exception):
    """A deploy that cannot continue in its present state. The message says what to do and is written for operators."""


@dataclass
class Rollout:
    """One deploy of a fleet.

    Each step is announced before it runs, and its result is stored before the next step begins.
    """

    settings: FleetSettings
    state: DeploymentState
    store: StateStore
    cloudwatch: Any
    cloudformation: Any
    balancing: Any
    deploy: Sequence[str]  # the CDK CLI's deploy, with the options that every stack needs
    call: Call
    canary_minutes: float
    bake_minutes: float
    retire: Callable[[], None] = lambda: None  # takes away the cells that the fleet file no longer has
    check_lock: Callable[[], None] = lambda: None  # raises LockedError where another shell changes the fleet by now
    go_back: Callable[[], object] = lambda: None  # sends the cells that have the release to the one before
    companions: Mapping[str, str] = field(default_factory=dict)  # the release's images for other architectures
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Run the rest of the deploy, and return the exit code of the first failing step, or 0."""
        release = self.state.release or ""
        first, *others = self.settings.cell_names
        if self.state.foundation is not Step.DONE:
            if code := self._stacks(UNDER):
                return self._stopped_at(", ".join(UNDER), code)
            self._note(lambda: setattr(self.state, "foundation", Step.DONE))
        if code := self._cell(first, release, self.canary_minutes):
            return self._stopped_at(first, code)
        with ThreadPoolExecutor(max_workers=self.settings.rollout.parallel_cells) as pool:
            try:
                codes = list(pool.map(lambda cell: self._cell(cell, release, self.bake_minutes), others))
            except BaseException:
                self._stopped.set()  # set this before the pool waits for the cells that have begun
                raise
        if failed := [(cell, code) for cell, code in zip(others, codes, strict=True) if code]:
            return self._stopped_at(*failed[0])
        names, alarms = OVER
        if code := self._over(names):
            return self._stopped_at(names, code)
        self.retire()  # no name leads to these cells any more, and their alarms are still there
        if code := self._over(alarms):
            return self._stopped_at(alarms, code)
        self._note(self.state.finish)
        print(f"Every cell runs {release}")
        return 0

    def _note(self, change: Callable[[], None]) -> None:
        with self._lock:
            self.check_lock()
            change()
            self.store.save(self.state)

    @property
    def _marks(self) -> RolloutMarks:
        return RolloutMarks(self.settings, self.store.ssm)

    def _over(self, stack: str) -> int:
        """Deploy a stack over the cells, and mark it in the account as the state machine does."""
        self._marks.begin(stack, self.state)
        if not (code := self._stacks((stack,))):
            self._marks.done(stack, self.state)
        return code

    def _stacks(self, stacks: Sequence[str], *parameters: str) -> int:
        self.check_lock()
        print(f"Deploying {', '.join(stacks)}", flush=True)
        for stack in stacks:
            make_way(stack_of(self.settings, stack.lower()), self.cloudformation, self.balancing)
        given = [word for parameter in parameters for word in ("--parameters", parameter)]
        return self.call([*self.deploy, "--exclusively", *stacks, *given])

    def _cell(self, cell: str, release: str, minutes: float) -> int:
        """Move one cell and bake it.

        Return 0 also where it was done before, and 1 where another cell's harm stopped it.
        """
        step = self.state.cell(cell).step
        # What the state machine was handed and has behind it is marked in the account alone.
        if step is Step.DONE or (step is Step.MOVING and self._marks.has(cell, self.state)):
            print(f"{cell} has it already", flush=True)
            return 0
        if self._stopped.is_set():
            return 1
        standing = DeployedCell(cell, stack_of(self.settings, cell), self.cloudformation)
        if standing.exists() and not standing.is_settled():
            print(f"{cell} is changing already: waiting for it", flush=True)
            standing.settled()  # a creation that fails meanwhile leaves no cell
        self._note(lambda: self._sent(cell, release, standing))
        self._marks.begin(cell, self.state)
        given = {MAIN: release, **self.companions, "RefreshSpeed": "careful"}
        try:
            with marked(self.cloudwatch, self.settings.name, cell):
                if code := self._stacks((cell.capitalize(),), *("=".join(each) for each in given.items())):
                    self._stopped.set()
                    return code
                bake(self.cloudwatch, self.settings.name, cell, minutes, self._pause)
                standing.rest()
        except HarmSeenError as harm:
            self._stopped.set()
            self._note(lambda: self._hurt(cell, release))
            print(harm, file=sys.stderr)
            self._break_off()
            return 1
        except _StoppedError:
            return 1
        except BaseException:  # Ctrl-C too: a later run continues the begun cells, and no other cell begins
            self._stopped.set()
            raise
        self._note(lambda: setattr(self.state.cell(cell), "step", Step.DONE))
        self._marks.done(cell, self.state)
        return 0

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _StoppedError

    def _break_off(self) -> None:
        """Cancel what CloudFormation changes in other cells, which takes hours and would end in the harmful release."""
        for name in self.settings.cell_names:
            if self.state.cell(name).step is Step.MOVING:
                with suppress(ClientError):  # nothing changes there now
                    self.cloudformation.cancel_update_stack(StackName=stack_of(self.settings, name))

    def _sent(self, cell: str, release: str, standing: DeployedCell) -> None:
        """Record the release sent to a cell.

        What the stack runs counts as the previous release, even if it was deployed by hand.
        """
        if standing.exists() and (runs := standing.runs()):
            self.state.sent(cell, runs)
        self.state.sent(cell, release)

    def _hurt(self, cell: str, release: str) -> None:
        self.state.cell(cell).step = Step.HURT
        self.state.reject(release)

    def _stopped_at(self, where: str, code: int) -> int:
        left = [cell for cell in self.settings.cell_names if self.state.cell(cell).step is Step.PENDING]
        stopped = f"Stopped at {where}; not touched: {', '.join(left) or 'no cell'}."
        harmed = any(cell.step is Step.HURT for cell in self.state.cells.values())
        if harmed and (going := self.state.to_return()):
            print(f"{stopped} Going back by itself: {', '.join(sorted(going))}", file=sys.stderr, flush=True)
            self.check_lock()
            self.go_back()
        else:
            print(f"{stopped} Go on: make deploy FLEET=...; go back: make rollback FLEET=...", file=sys.stderr)
        return code


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
    parser = fleet_parser(__doc__)
    parser.add_argument("cdk", nargs="*", default=["cdk"], help="after --: the CDK CLI and its options")
    parser.add_argument("--again", action="store_true", help="begin anew, whatever became of the deploy before")
    parser.add_argument(
        "--take-over", action="store_true", help="take the lock of a deploy that died, once it was silent for 5 minutes"
    )
    parser.add_argument(
        "--in-account", action="store_true", help="let the account's state machine go from cell to cell"
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


def _call(line: list[str]) -> int:
    return subprocess.run(line, check=False).returncode


def _deploy_alone(
    given: argparse.Namespace, settings: FleetSettings, clients: Clients, assembly: Path, lock: DeployLock
) -> int:
    ssm, ec2 = clients("ssm"), clients("ec2")
    store = StateStore(settings, ssm)
    state = store.load()
    deploy = deploy_line(given.cdk, assembly)
    leaving = retiring(settings, clients, asked=given.retire)
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
    make_key(settings, ssm)
    canary, others = given.bake or (settings.rollout.canary_bake_minutes, settings.rollout.bake_minutes)
    if given.in_account:
        if leaving.cells:
            raise CannotGoOnError(f"{', '.join(leaving.cells)} is retired by make deploy RETIRE=1, from a shell")
        handover = Handover(settings, state, clients, assembly, release.companions)
        return handover.run(deploy, _call, lock, (canary, others))
    watching, stacks, balancing = clients("cloudwatch"), clients("cloudformation"), clients("elbv2")
    go_back = partial(roll_back_alone, settings, None, clients)
    watched = (canary, others, leaving.run, lock.check, go_back, release.companions)
    return Rollout(settings, state, store, watching, stacks, balancing, deploy, _call, *watched).run()


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 2 when the fleet file or the account cannot be used, 3 when a person must decide first.
    """
    given = _parser().parse_intermixed_args(words)

    def act(settings: FleetSettings, clients: Clients) -> int:
        if code := _call(rehearsal(given.fleet, given.traffic, given.force)):
            return code
        with TemporaryDirectory(prefix=f"peakplan-{settings.name}-") as assembly:
            if code := _call(synthesis(given.fleet, given.cdk, assembly)):
                return code
            lock = DeployLock(settings, "deploy", ssm=clients("ssm"), sts=clients("sts"))
            with held(lock, take_over=given.take_over):
                return _deploy_alone(given, settings, clients, Path(assembly), lock)

    person = (CannotGoOnError, CellError, LockedError, ReleaseError, StillStandingError, TeardownError)
    try:
        return operate(given.fleet, act, dict.fromkeys(person, 3))
    except FileNotFoundError as error:
        print(f"{error.filename}: no such command; `make deploy` installs the pinned CDK CLI", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
