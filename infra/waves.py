"""`python -m infra.waves FLEET`: deploy a fleet cell after cell. The first bakes longest; harm stops all that follow.

What cells stand on first, then each cell under its deploy marker (infra/deploying.py), then the names and alarms over
them. Says what it does before it does it; answers the first failing step's code. Its order and its stopping are tested;
it has not run in a real account.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.fleet.__main__ import fleet_file
from infra.fleet.settings import FleetFileError, FleetSettings

FIRST_BAKE_MINUTES, NEXT_BAKE_MINUTES = 15.0, 5.0


@dataclass(frozen=True)
class Wave:
    """Stacks that are deployed together; a cell's wave bakes and may stop those after it."""

    stacks: tuple[str, ...]
    cell: str | None = None
    bake_minutes: float = 0.0


def waves(settings: FleetSettings) -> tuple[Wave, ...]:
    """The order of a fleet's deploy."""
    first, *rest = settings.cell_names
    return (
        Wave(("Network", "Image")),
        Wave((first.capitalize(),), first, FIRST_BAKE_MINUTES),
        *(Wave((cell.capitalize(),), cell, NEXT_BAKE_MINUTES) for cell in rest),
        Wave(("Edge", "Observability")),
    )


def command(wave: Wave, settings: FleetSettings, cdk: Sequence[str]) -> list[str]:
    """The command line of a wave; `cdk` is the CLI with the options that every call needs."""
    deploy = [*cdk, "deploy", "--exclusively", *wave.stacks]
    if wave.cell is None:
        return deploy
    marked = [sys.executable, "-m", "infra.deploying", "--fleet", settings.name, "--cell", wave.cell]
    return [*marked, "--region", settings.region, "--bake", f"{wave.bake_minutes:g}", "--", *deploy]


def run(settings: FleetSettings, cdk: Sequence[str], call: Callable[[list[str]], int]) -> int:
    """Deploy wave after wave with `call`, which answers a command's exit code; stop at the first that is not 0."""
    order = waves(settings)
    for number, wave in enumerate(order, start=1):
        print(f"Wave {number} of {len(order)}: {', '.join(wave.stacks)}", flush=True)
        if code := call(command(wave, settings, cdk)):
            left = [stack for later in order[number:] for stack in later.stacks]
            print(f"Stopped at {', '.join(wave.stacks)}; not touched: {', '.join(left) or 'nothing'}", file=sys.stderr)
            return code
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The command line; 2 when the fleet file cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
    parser.add_argument("cdk", nargs="*", default=["cdk"], help="after --: the CDK CLI and its options")
    given = parser.parse_args(words)
    try:
        settings = FleetSettings.from_yaml(fleet_file(given.fleet))
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return 2
    cdk = [*given.cdk, "--context", f"fleet={given.fleet}"]
    try:
        return run(settings, cdk, lambda line: subprocess.run(line, check=False, env=dict(os.environ)).returncode)
    except FileNotFoundError as error:
        print(f"{error.filename}: no such command; `make deploy` installs the pinned CDK CLI", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
