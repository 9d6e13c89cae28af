"""What every operator's command line shares: the fleet file, AWS clients of its region, and errors told in words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from infra.fleet.__main__ import fleet_file
from infra.fleet.settings import FleetFileError, FleetSettings

Clients = Callable[[str], Any]  # returns the boto3 client of a service
Act = Callable[[FleetSettings, Clients], int]
UNUSABLE = 2  # the fleet file or the account cannot be used


def fleet_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a command about one fleet, described by its module's docstring."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
    return parser


def data_parser(description: str | None) -> argparse.ArgumentParser:
    """Return the same for a command whose output is data, with `--json`."""
    parser = fleet_parser(description)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    return parser


def operate(fleet: str, act: Act, exits: Mapping[type[Exception], int]) -> int:
    """Run `act` on a fleet and return its exit code.

    An error of `exits` is printed and has that exit code; its message is written for operators.
    """
    try:
        settings = FleetSettings.from_yaml(fleet_file(fleet))
        return act(settings, lambda name: boto3.client(name, region_name=settings.region))
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except (BotoCoreError, ClientError) as error:
        print(f"AWS cannot be reached as this user: {error}", file=sys.stderr)
        return UNUSABLE
    except tuple(exits) as error:
        print(error, file=sys.stderr)
        return next(code for kind, code in exits.items() if isinstance(error, kind))
