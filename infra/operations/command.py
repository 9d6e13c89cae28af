"""What every operator's command line shares: the fleet file, AWS clients of its region, errors told in words, JSON."""

import argparse
import hashlib
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from peakplan_client.progress import progress_on_stderr

from infra.fleet.__main__ import fleet_file
from infra.fleet.settings import FleetFileError, FleetSettings

Clients = Callable[[str], Any]  # returns the boto3 client of a service
UNUSABLE = 2  # the fleet file or the account cannot be used


@dataclass(frozen=True, slots=True)
class Told:
    """What a command came to: for a person, for a program (`--json`), and its exit code."""

    words: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    code: int = 0


Act = Callable[[FleetSettings, Clients], Told]


def parameter(ssm: Any, name: str) -> dict[str, Any] | None:
    """Return a parameter of SSM, or None where there is none."""
    try:
        found: dict[str, Any] = ssm.get_parameter(Name=name)["Parameter"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        return None
    return found


def fleet_parser(description: str | None, actions: Sequence[str] = (), *, cdk: bool = False) -> argparse.ArgumentParser:
    """Return the parser of a command about one fleet, described by its module's docstring.

    `actions` are the words of which one stands before the fleet; `cdk` takes the CDK CLI's command line, too.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if actions:
        parser.add_argument("action", choices=actions)
    parser.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
    parser.add_argument("--json", action="store_true", help="print one line of JSON; progress goes to standard error")
    if cdk:
        parser.add_argument("cdk", nargs="*", default=["cdk"], help="after --: the CDK CLI and its options")
    return parser


def operate(given: argparse.Namespace, act: Act, exits: Mapping[type[Exception], int]) -> int:
    """Run `act` on the fleet of a command line, print what it came to, and return its exit code.

    An error of `exits` is printed and has that exit code; its message is written for operators.
    """
    try:
        settings = FleetSettings.from_yaml(fleet_file(given.fleet))
        with progress_on_stderr(given.json):
            told = act(settings, lambda name: boto3.client(name, region_name=settings.region))
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except (BotoCoreError, ClientError) as error:
        print(f"AWS cannot be reached as this user: {error}", file=sys.stderr)
        return UNUSABLE
    except tuple(exits) as error:
        print(error, file=sys.stderr)
        return next(code for kind, code in exits.items() if isinstance(error, kind))
    if said := json.dumps({"fleet": settings.name, **told.data}) if given.json else told.words:
        print(said)
    return told.code


# Without a terminal the CLI would refuse every change of permissions, and two stacks at once share one prompt: what may
# change is judged before, by the checks at synthesis and by `make diff`. What a deploy does not give is the template's
# default, not what somebody gave once.
CDK_OPTIONS = ("--require-approval", "never", "--method", "direct", "--no-previous-parameters")

Call = Callable[[list[str]], int]  # runs a command line and returns its exit code


def call(line: list[str]) -> int:
    return subprocess.run(line, check=False).returncode


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
