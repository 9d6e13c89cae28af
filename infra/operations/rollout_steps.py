"""The steps of a deploy from a shell: what cells stand on, the cells in waves, the names and alarms over them.

infra/operations/rollout.py is the command, and says what holds. Inside the account the state machine does the same
(infra/fleet/rollout_machine.py).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.images import MAIN
from infra.fleet.release_arms import Query, queries
from infra.fleet.settings import FleetSettings
from infra.operations.command_lines import OVER, UNDER, Call
from infra.operations.deployed_cell import DeployedCell, make_way, stack_of
from infra.operations.deploying import HarmSeenError, bake, marked
from infra.operations.deployment_state import DeploymentState, StateStore, Step
from infra.operations.rollout_marks import RolloutMarks


class _StoppedError(Exception):
    """Another cell was hurt: this one's bake has lost its purpose."""


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
        for stack in OVER:
            if code := self._over(stack):
                return self._stopped_at(stack, code)
            if stack == OVER[0]:
                self.retire()  # no name leads to these cells any more, and their alarms are still there
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
        standing = DeployedCell(cell, stack_of(self.settings, cell), self.cloudformation)
        # What the state machine was handed and has behind it is marked in the account alone.
        behind = step is Step.DONE or (step is Step.MOVING and self._marks.has(cell, self.state))
        if behind and standing.exists():  # somebody may have deleted the stack since
            print(f"{cell} has it already", flush=True)
            return 0
        if self._stopped.is_set():
            return 1
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
                bake(self.cloudwatch, self.settings.name, cell, minutes, self._pause, lambda: self._arms(cell))
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

    def _arms(self, cell: str) -> list[Query]:
        """Return what tells how shoppers fare with this deploy's release beside the one before, as cells now are."""
        if not self.settings.shopper_events.enabled:
            return []
        steps = {name: self.state.cell(name).step for name in self.settings.cell_names}
        new = [name for name, step in steps.items() if name == cell or step is Step.DONE]
        before = [name for name, step in steps.items() if step is Step.PENDING]
        return queries(self.settings.name, new, before, self.settings.cells)

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
