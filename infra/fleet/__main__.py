"""`python -m infra.fleet cost|check|vllm|schema` prints what a fleet costs, checks its file, prints vLLM's commands, or
writes the JSON Schema for editors."""

import argparse
import json
import sys
from pathlib import Path

from infra.fleet.cost import PRICES, Prices
from infra.fleet.cost_report import data, report, size_lines
from infra.fleet.settings import FLEETS, FleetFileError, FleetSettings, json_schema, upcoming_events_only
from infra.fleet.vllm import script

SCHEMA = Path(__file__).with_name("schema.json")


def fleet_file(fleet: str) -> Path:
    """Return the file of a fleet that ships (prime-day), or a given path unchanged (my/fleet.yaml)."""
    return Path(fleet) if fleet.endswith((".yaml", ".yml")) else FLEETS / f"{fleet}.yaml"


def _run(arguments: argparse.Namespace) -> str:
    if arguments.command == "schema":
        SCHEMA.write_text(json_schema(), encoding="utf-8")
        if arguments.json:
            return json.dumps({"schema": str(SCHEMA)})
        return f"wrote {SCHEMA.relative_to(Path.cwd()) if SCHEMA.is_relative_to(Path.cwd()) else SCHEMA}"
    settings = upcoming_events_only(FleetSettings.from_yaml(fleet_file(arguments.fleet)))
    if arguments.command == "check":
        sound = {"fleet": settings.name, "region": settings.region, "cells": settings.cells, "sound": True}
        return json.dumps(sound) if arguments.json else f"fleet {settings.name} is sound"
    if arguments.command == "vllm":
        return json.dumps({"fleet": settings.name, "script": script(settings)}) if arguments.json else script(settings)
    prices = Prices.from_json(arguments.prices)
    if arguments.json:
        return json.dumps(data(settings, prices), ensure_ascii=False)
    return "\n".join([report(settings, prices), "", *size_lines(prices)])


def main(words: list[str] | None = None) -> int:
    """Run the command line. Return 0, or 2 when a file cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m infra.fleet", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    purposes = {
        "cost": "print the cost per hour and per million plans",
        "check": "check the file",
        "vllm": "print vLLM's commands",
    }
    for name, purpose in purposes.items():
        command = commands.add_parser(name, help=purpose)
        command.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
        command.add_argument("--prices", type=Path, default=PRICES, help="another price file")
    commands.add_parser("schema", help="write the JSON Schema of fleet files")
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print one line of JSON")
    try:
        print(_run(parser.parse_args(words)))
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
