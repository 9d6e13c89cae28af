"""Cells that stand in the account and that the fleet file no longer has: a deploy takes them away, or is refused.

The alarms over such a cell would go with the deploy, and it would run on unwatched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from infra.fleet.settings import FleetSettings
from infra.operations.deployed_cell import Sleep, stack_of
from infra.operations.rollout_marks import RolloutMarks
from infra.operations.teardown import Teardown, cancel_reservations, cells_standing

# Names are answered for a minute, and balancers end callers' connections after ten (constructs/load_balancer.py).
CALLERS_LEAVE_SECONDS = 11 * 60.0


class StillStandingError(Exception):
    """A cell that the fleet file no longer has and that nobody asked to retire. The message is for operators."""


@dataclass(frozen=True)
class Retiring:
    """The cells that a deploy takes away once no name leads to them."""

    settings: FleetSettings
    cells: Sequence[str]
    teardown: Teardown
    sleep: Sleep = time.sleep

    def run(self) -> None:
        """Wait until callers have left, then delete the cells. Raise TeardownError where one cannot be deleted."""
        if not self.cells:
            return
        print(f"No name leads to {', '.join(self.cells)}: waiting until callers have left", flush=True)
        self.sleep(CALLERS_LEAVE_SECONDS)
        for cell in self.cells:
            for kept in self.teardown.delete(stack_of(self.settings, cell)):
                print(f"{cell}: kept {kept}", flush=True)
        cancel_reservations(self.settings, self.teardown.clients("ec2"), self.cells)
        RolloutMarks(self.settings, self.teardown.clients("ssm")).delete(self.cells)


def retiring(settings: FleetSettings, clients: Callable[[str], Any], *, asked: bool) -> Retiring:
    """Return what a deploy has to take away. Raise StillStandingError where that is something and nobody asked."""
    standing = cells_standing(settings, clients("cloudformation"))
    cells = [cell for cell in standing if cell not in settings.cell_names]
    if cells and not asked:
        raise StillStandingError(
            f"{', '.join(cells)} stands, and the fleet file no longer has it: its alarms would go with this deploy. "
            "Move its callers away with the fleet file of before (peakplan fleet cell out), then say --retire "
            "(make deploy RETIRE=1)"
        )
    return Retiring(settings, cells, Teardown(clients))
