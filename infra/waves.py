"""`python -m infra.waves FLEET`: deploy a fleet cell after cell. The first bakes longest; harm stops all that follow.

The fleet is synthesised once, so that the last cell gets what the first one proved, whatever becomes of the files
meanwhile. What cells stand on goes first, then each cell under its deploy marker (infra/deploying.py), then the names
and alarms over them. Says what it does before it does it; answers the first failing step's code. Tested against moto
through the CDK CLI; not run in a real account.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

from infra.fleet.__main__ import fleet_file
from infra.fleet.settings import FleetFileError, FleetSettings

Call = Callable[[list[str]], int]  # runs a command line, answers its exit code
BAKE_MINUTES = (15.0, 5.0)  # the first cell's, every other's


@dataclass(frozen=True)
class Wave:
    """Stacks that are deployed together; a cell's wave bakes and may stop those after it."""

    stacks: tuple[str, ...]
    cell: str | None = None
    bake_minutes: float = 0.0


def waves(settings: FleetSettings, bake_minutes: tuple[float, float] = BAKE_MINUTES) -> tuple[Wave, ...]:
    """The order of a fleet's deploy; `bake_minutes` are the first cell's and every other's."""
    first, *rest = settings.cell_names
    first_bake, next_bake = bake_minutes
    return (
        Wave(("Network", "Image")),
        Wave((first.capitalize(),), first, first_bake),
        *(Wave((cell.capitalize(),), cell, next_bake) for cell in rest),
        Wave(("Edge", "Observability")),
    )


def synthesis(fleet: str, cdk: Sequence[str], assembly: str) -> list[str]:
    """The command line that synthesises `fleet` (a name or a path) into the folder `assembly`."""
    app = f"{shlex.quote(sys.executable)} app.py"
    return [*cdk, "synth", "--quiet", "--app", app, "--context", f"fleet={fleet}", "--output", assembly]


def command(wave: Wave, settings: FleetSettings, deploy: Sequence[str]) -> list[str]:
    """The command line of a wave; `deploy` is the CLI's deploy with the options that every wave needs."""
    line = [*deploy, "--exclusively", *wave.stacks]
    if wave.cell is None:
        return line
    marked = [sys.executable, "-m", "infra.deploying", "--fleet", settings.name, "--cell", wave.cell]
    return [*marked, "--region", settings.region, "--bake", f"{wave.bake_minutes:g}", "--", *line]


def run(order: Sequence[Wave], settings: FleetSettings, deploy: Sequence[str], call: Call) -> int:
    """Deploy wave after wave with `call`; stop at the first whose code is not 0."""
    for number, wave in enumerate(order, start=1):
        print(f"Wave {number} of {len(order)}: {', '.join(wave.stacks)}", flush=True)
        if code := call(command(wave, settings, deploy)):
            left = [stack for later in order[number:] for stack in later.stacks]
            print(f"Stopped at {', '.join(wave.stacks)}; not touched: {', '.join(left) or 'nothing'}", file=sys.stderr)
            return code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
    parser.add_argument("cdk", nargs="*", default=["cdk"], help="after --: the CDK CLI and its options")
    parser.add_argument(
        "--bake",
        nargs=2,
        type=float,
        default=BAKE_MINUTES,
        metavar=("FIRST", "OTHERS"),
        help="minutes that the first cell and every other is watched after its deploy (%(default)s)",
    )
    return parser


def _call(line: list[str]) -> int:
    return subprocess.run(line, check=False).returncode


def main(words: Sequence[str] | None = None) -> int:
    """The command line; 2 when the fleet file cannot be used."""
    given = _parser().parse_intermixed_args(words)
    try:
        settings = FleetSettings.from_yaml(fleet_file(given.fleet))
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        with TemporaryDirectory(prefix=f"peakplan-{settings.name}-") as assembly:
            if code := _call(synthesis(given.fleet, given.cdk, assembly)):
                return code
            deploy = [*given.cdk, "--app", assembly, "deploy"]
            return run(waves(settings, (given.bake[0], given.bake[1])), settings, deploy, _call)
    except FileNotFoundError as error:
        print(f"{error.filename}: no such command; `make deploy` installs the pinned CDK CLI", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
