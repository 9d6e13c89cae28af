"""The command lines that a deploy runs: the rehearsal's and the CDK CLI's, and the hash of what the CLI synthesises."""

from __future__ import annotations

import hashlib
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

# Without a terminal the CLI would refuse every change of permissions, and two stacks at once share one prompt: what may
# change is judged before, by the checks at synthesis and by `make diff`. What a deploy does not give is the template's
# default, not what somebody gave once.
CDK_OPTIONS = ("--require-approval", "never", "--method", "direct", "--no-previous-parameters")

Call = Callable[[list[str]], int]  # runs a command line and returns its exit code
# The stacks that cells need, and those over them; an account may be refused the last.
UNDER, OVER = ("Network", "Image", "Rollout"), ("Edge", "Observability", "Spending")


def deploy_line(cdk: Sequence[str], assembly: Path) -> list[str]:
    """Return the command line that deploys stacks of a synthesised fleet, without the stacks' names."""
    return [*cdk, "--app", str(assembly), "deploy", *CDK_OPTIONS]


def synthesis(fleet: str, cdk: Sequence[str], assembly: str) -> list[str]:
    """Return the command line that synthesises `fleet` (a name or a path) into the folder `assembly`."""
    # Without asserts, as peakplan/fleet_commands.py does it: jsii's checks of types at run time are half of a synth.
    app = f"{shlex.quote(sys.executable)} -O app.py"
    return [*cdk, "synth", "--quiet", "--app", app, "--context", f"fleet={fleet}", "--output", assembly]


def rehearsal(fleet: str, traffic: str | None, reason: str) -> list[str]:
    """Return the command line that rehearses `fleet` and fails where it does not hold and no reason is given.

    Like the CDK it is a program of its own: this package knows nothing of rehearsals.
    """
    line = [sys.executable, "-m", "rehearsal.twin", "gate", fleet]
    return [*line, *(["--traffic", traffic] if traffic else []), *(["--force", reason] if reason else [])]


def digest(assembly: Path) -> str:
    """Return the hash of all templates in a cloud assembly, which distinguishes it from others."""
    said = hashlib.sha256()
    for template in sorted(assembly.glob("*.template.json")):
        said.update(template.name.encode() + template.read_bytes())
    return said.hexdigest()[:16]
