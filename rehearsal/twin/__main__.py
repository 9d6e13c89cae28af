"""`python -m rehearsal.twin run|search|validate|gate`: does a fleet hold, would a cheaper one, is the twin right?

`peakplan rehearse run`, `search` and `validate` run it, and `make deploy` the gate: it rehearses
every scenario, and refuses where one fails, unless somebody gives a reason, which is logged. Exit codes: 0 PASS, 1
FAIL, 2 for input that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from infra.fleet.__main__ import fleet_file
from infra.fleet.cost import PRICES, Prices
from infra.fleet.settings import FleetFileError, FleetSettings
from rehearsal.load.arrivals import CurveError
from rehearsal.twin.curves import STATED_DAY, at_hand, read_curve
from rehearsal.twin.native.library import TwinUnavailableError
from rehearsal.twin.rehearsal import SEEDS, Plan, processes, rehearse
from rehearsal.twin.report import Report, as_json, write
from rehearsal.twin.scenarios import SCENARIOS, ScenarioError, chosen
from rehearsal.twin.search import search, untimed
from rehearsal.twin.work import ServiceTimesError, measured, stated

TRAFFIC = "world-cup-98-jun30"
_TRAFFIC = f"{STATED_DAY}, a trace by name, or a CSV file of second,requests"
# `python -m rehearsal.twin` runs where the figures are, as the other programs of this folder do.
OUTPUT = Path("runs/rehearsal")
FORCED = "forced.jsonl"  # beside the report: who deployed a fleet that fails, when and why


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(words)
    code = _outcome(options)
    return _gate(options, code) if options.command == "gate" else code


def _outcome(options: argparse.Namespace) -> int:
    """Return the exit code; what cannot be used is one line on standard error."""
    try:
        if options.command == "validate":
            from rehearsal.twin.validation import validate

            return validate(options.scale, options.output, as_json=options.json)
        return _rehearse(options)
    except FleetFileError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
    except (CurveError, ScenarioError, ServiceTimesError, TwinUnavailableError) as error:
        print(error, file=sys.stderr)
    except OverflowError as error:
        print(f"the rehearsal stops: {error}", file=sys.stderr)
    except OSError as error:
        print(f"the report cannot be written: {error}", file=sys.stderr)
    return 2


def _gate(options: argparse.Namespace, code: int) -> int:
    """Return 0 where the rehearsal passed, or where somebody gave a reason to deploy all the same, which is logged."""
    if not code:
        return 0
    reason = options.force.strip()
    if not reason:
        _say('the deploy is refused; FORCE="reason" overrides, and is logged')
        return code
    user = os.environ.get("USER") or os.environ.get("LOGNAME") or "unknown"
    entry = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "by": user, "fleet": options.fleet}
    options.output.mkdir(parents=True, exist_ok=True)
    log = options.output / FORCED
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry | {"traffic": options.traffic, "exit_code": code, "reason": reason}) + "\n")
    _say(f"FORCED by {user}: {reason} (logged in {log})")
    return 0


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, like everything else here."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m rehearsal.twin", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, purpose in {"run": "does a fleet hold?", "search": "the cheapest fleets that hold, ranked"}.items():
        command = commands.add_parser(name, help=purpose)
        command.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
        command.add_argument("--traffic", default=at_hand(TRAFFIC), help=_TRAFFIC)
        command.add_argument("--peak", type=_multiple, default=1.0, help="times the forecast")
        command.add_argument("--times", choices=("stated", "measured"), default="stated", help="of service")
        command.add_argument("--output", type=Path, default=OUTPUT, help="folder of the report")
        command.add_argument("--json", action="store_true", help="print the report as one line of JSON")
        if name == "run":
            command.add_argument("--scenario", default="all", help=f"all, {', '.join(SCENARIOS)}")
            command.add_argument("--seeds", type=_count, default=SEEDS)
            command.add_argument("--hosts", type=_count, help="hosts a cell, fixed, instead of the fleet file's")
        else:
            command.add_argument("--prices", type=Path, default=PRICES, help="another price file")
    command = commands.add_parser("gate", help="refuse a deploy of a fleet that does not hold")
    command.add_argument("fleet", help="dev, prime-day, or the path of a YAML file")
    command.add_argument("--traffic", default=at_hand(TRAFFIC), help=_TRAFFIC)
    command.add_argument("--force", default="", help="the reason to deploy all the same, which is logged")
    command.add_argument("--output", type=Path, default=OUTPUT)
    command.set_defaults(scenario="all", seeds=1, hosts=None, peak=1.0, times="stated", json=False)
    command = commands.add_parser("validate", help="the twin against the live service, side by side")
    command.add_argument("--scale", type=_multiple, default=1.0, help="of the runs' length")
    command.add_argument("--json", action="store_true", help="print the comparison as one line of JSON")
    command.add_argument("--output", type=Path, default=OUTPUT)
    return parser


def _multiple(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0, and at most 100")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to 10000")
    return int(text)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _rehearse(options: argparse.Namespace) -> int:
    settings = FleetSettings.from_yaml(fleet_file(options.fleet))
    curve = read_curve(options.traffic)
    work_of = measured if options.times == "measured" else stated
    work = work_of(settings)
    began = time.monotonic()
    if curve.note:
        _say(f"{curve.name}: {curve.note}")
    if options.command == "search":
        plan = Plan(settings, curve, work, options.peak)
        with processes() as pool:
            found = search(plan, work_of, Prices.from_json(options.prices), pool, _say)
        left_out = chosen("all", settings)[1] | untimed(settings)
        report = Report(found.plan, curve.name, 1, found.outcomes, left_out, found.rows)
        held = report.cheapest is not None
    else:
        scenarios, left_out = chosen(options.scenario, settings)
        plan = Plan(settings, curve, work, options.peak, options.hosts)
        with processes() as pool:
            outcomes = rehearse(plan, scenarios, options.seeds, pool, _say)
        report = Report(plan, curve.name, options.seeds, outcomes, left_out)
        held = report.holds
    for name, why in report.left_out.items():
        _say(f"left out: {name}: {why}")
    paths = write(report, options.output)
    if not work.is_measured:
        _say("WARNING: service times are stated, not measured: the verdict is as good as they are")
    if options.json:
        print(json.dumps(as_json(report)))
    else:
        _print(report)
    _say(f"{time.monotonic() - began:.0f} s; {paths[0]}")
    return 0 if held else 1


def _print(report: Report) -> None:
    for row in report.frontier:
        more = row["broken"] or f"breaks at {row['breaks_at']['zone-lost']:g} times the forecast with a zone lost"
        price = f"${row['hourly']:,.0f} an hour, {row['saved']:.0%} saved"
        print(f"{'PASS' if row['holds'] else 'FAIL'}  {price}: {row['name']}: {more}")
    print(report.headline)


if __name__ == "__main__":
    sys.exit(main())
