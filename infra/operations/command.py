"""What every operator's command line shares: the fleet file, AWS clients of its region, errors told in words, JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


def fleet_parser(description: str | None, actions: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser of a command about one fleet, described by its module's docstring.

    `actions` are the words of which one stands before the fleet.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if actions:
        parser.add_argument("action", choices=actions)
    parser.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
    parser.add_argument("--json", action="store_true", help="print one line of JSON; progress goes to standard error")
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
