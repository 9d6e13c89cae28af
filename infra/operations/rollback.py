"""`python -m infra.operations.rollback FLEET` returns every cell to the release before, at once and without a bake.

`--release ami-...` sends every cell to that one instead. It needs no checkout's templates and no CDK: only the
parameter of each cell's stack changes, so its instances are replaced as fast as new ones boot. A deploy that is under
way is broken off: this takes its lock, and the deploy stops before its next change. It is tested against moto and has
not run in a real account.
"""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import BotoCoreError, ClientError

from infra.fleet.settings import FleetSettings
from infra.operations.command import UNUSABLE, Clients, Told, fleet_parser, operate
from infra.operations.deploy_lock import DeployLock, LockedError, held
from infra.operations.deployed_cell import CellError, DeployedCell, Sleep, stack_of
from infra.operations.deployment_state import DeploymentState, RolloutMarks, StateStore
from infra.operations.handover import stop_executions
from infra.operations.release import ReleaseError, companions_of, release_of


def plan(state: DeploymentState, settings: FleetSettings, release: str | None) -> dict[str, str]:
    """Return the release that each cell should run.

    That is `release`, or the previous release for the cells that the last deploy moved.

    The first cell always moves first, so what it was sent to last is what the last deploy brought. Raise CellError
    where there is nothing to return to.
    """
    if release is not None:
        return dict.fromkeys(settings.cell_names, release)
    moved = [name for name in settings.cell_names if name in state.cells and state.cell(name).releases]
    bad = state.release or (state.cell(moved[0]).releases[-1] if moved else None)
    before = {name: state.before(name) for name in moved if state.cell(name).releases[-1] == bad}
    targets = {name: target for name, target in before.items() if target is not None}
    if not targets:
        raise CellError("no cell has a release before this one: name one with RELEASE=ami-...")
    return targets


def roll_back(
    settings: FleetSettings, release: str | None, clients: Clients, sleep: Sleep = time.sleep
) -> dict[str, str]:
    """Send the cells back, all at once, and return which cells moved and to which release.

    Raise CellError for cells that did not go, after all others went, ReleaseError for an invalid release, and
    LockedError where another rollback runs.
    """
    with held(DeployLock(settings, "rollback", ssm=clients("ssm"), sts=clients("sts"))):
        stop_executions(settings, clients, "a rollback began")
        return _send_back(settings, release, clients, sleep)


def _send_back(settings: FleetSettings, release: str | None, clients: Clients, sleep: Sleep) -> dict[str, str]:
    store = StateStore(settings, clients("ssm"))
    state = store.load()
    stacks = clients("cloudformation")
    beside = companions_of(settings, clients("ec2"))
    cells = [DeployedCell(name, stack_of(settings, name), stacks, sleep, beside) for name in settings.cell_names]
    wanted = plan(state, settings, release)
    for image in sorted(set(wanted.values())):
        print(f"Back to {release_of(settings, image, clients('ec2'))}", flush=True)
    going = [cell for cell in cells if cell.name in wanted and cell.exists()]
    for cell in going:
        if (left := state.cell(cell.name).releases[-1:]) and left[0] != wanted[cell.name]:
            state.reject(left[0])
    state.finish()  # the interrupted deploy is not continued
    store.save(state)
    marks = RolloutMarks(settings, clients("ssm"))
    for cell in going:  # otherwise a new deploy of the same release would skip them
        marks.went_back(cell.name, wanted[cell.name])
    moving = [cell for cell in going if cell.runs() != wanted[cell.name] or not cell.is_settled()]
    with ThreadPoolExecutor(max_workers=max(1, len(moving))) as pool:
        failures = [words for words in pool.map(lambda cell: _returned(cell, wanted[cell.name]), moving) if words]
    for cell in going:
        if cell.runs() == wanted[cell.name]:
            state.returned(cell.name, wanted[cell.name])
    store.save(state)
    if failures:
        raise CellError("\n".join(failures))
    return {cell.name: wanted[cell.name] for cell in moving}


def _returned(cell: DeployedCell, release: str) -> str:
    """Bring one cell back, and return what went wrong as text, so that the other cells continue."""
    print(f"{cell.name} goes to {release}", flush=True)
    try:
        cell.return_to(release)
    except (CellError, BotoCoreError, ClientError) as error:
        return f"{cell.name}: {error}"
    print(f"{cell.name} runs {release}", flush=True)
    return ""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 1 when a cell does not go back, 2 when the fleet file or the account cannot be used, 3 when another rollback
    runs.
    """
    parser = fleet_parser(__doc__)
    parser.add_argument("--release", default=None, help="a machine image's id; by default each cell's release before")
    given = parser.parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        moved = roll_back(settings, given.release or None, clients)
        nothing = "Every cell is where it should go: nothing to do"
        return Told(f"{len(moved)} cells went back" if moved else nothing, {"moved": moved})

    return operate(given, act, {ReleaseError: UNUSABLE, CellError: 1, LockedError: 3})


if __name__ == "__main__":
    sys.exit(main())
