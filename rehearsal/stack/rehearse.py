"""`peakplan rehearse live`: scenarios on a stack of light hosts, judged by Prometheus, the twin's beside them.

Every scenario has a stack of its own, so that no alert is another's. It returns 1 where one fails. With --broken a part
is left out on purpose, and it returns 1 where the rehearsal passes all the same.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rehearsal.bench.machine import describe_machine
from rehearsal.stack.__main__ import host_variables, make_folder
from rehearsal.stack.beside import Costs, fitted, rehearsed
from rehearsal.stack.folder import CELLS, Shape, StackError, limit_callers, missing, set_clock
from rehearsal.stack.live import CALM_SHARE, TIMES, Outcome, all_sets, capacity, make_load, play, warm_up
from rehearsal.stack.processes import Scheduled, running
from rehearsal.stack.scenarios import BROKEN, CALM, SCENARIOS, Broken, Scenario, break_envoy, rules_without

Row = dict[str, Any]  # a scenario in the figure
FIGURE = Path("docs/figures/stack.json")
HURRY = 12
VOID = "void:"  # how the complaint begins that other programs had the processors


def main() -> int:
    """Run scenarios; return 0 where all passed, 1 where one did not or nothing ran, with the reasons."""
    options = _options()
    if options.twin:
        return stale(options.twin) if options.check else _twins_again(options.twin)
    if lacking := missing():
        print("a stack needs programs that are not installed:\n  " + "\n  ".join(lacking), file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the stack is stopped before this ends
    shape = Shape(options.hosts, options.hurry)
    chosen = [SCENARIOS[BROKEN[options.broken].scenario]] if options.broken else _chosen(options.scenario)
    rows: list[Row] = []
    options.sets = _sets(options)
    figure, known = _begun(options.output, shape, options)
    for scenario in chosen:
        try:
            outcomes = [_until_valid(scenario, shape, options) for _ in range(options.runs)]
        except StackError as error:
            print(f"no rehearsal of {scenario.name}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped; nothing of it is left running", file=sys.stderr)
            return 130
        rows.append(_row(outcomes))
        for outcome in outcomes:
            _print(outcome)
        if options.output:  # after each, so that one that is stopped keeps what it has
            _keep(options.output, figure, known | {row["scenario"]: row for row in rows})
    passed = all(row["passed"] for row in rows)
    if options.broken:
        broken = BROKEN[options.broken]
        red, words = is_red(rows, broken), f"without {options.broken}"
        missed = f"{words} it does not show that {broken.sign}, or a busy machine may be why: no proof"
        print(f"red {words}, as it must be: {broken.sign}" if red else missed)
        return int(not red)
    if options.output:
        _twins_again(options.output)
    return int(not passed)


def is_red(rows: Sequence[Row], broken: Broken) -> bool:
    """Return whether a scenario failed by what is left out, and not because other programs had the processors."""
    for complaints in (row["complaints"] for row in rows):
        is_void = any(complaint.startswith(VOID) for complaint in complaints)
        if any(broken.sign in complaint for complaint in complaints) and not (is_void and broken.is_of_a_busy_machine):
            return True
    return False


def stale(path: Path) -> int:
    """Return 1 where a figure's twin is not what the twin says now; 0 as well where nothing was rehearsed yet."""
    if not path.is_file():
        return 0
    before = path.read_text(encoding="utf-8")
    try:
        if json.loads(before) == with_twins(json.loads(before)):
            return 0
    except StackError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    print(
        f"{path} has another twin than this tree: run `python -m rehearsal.stack.rehearse --twin {path}`",
        file=sys.stderr,
    )
    return 1


def _twins_again(path: Path) -> int:
    """Put the twin beside each scenario of a figure. Returns 1 where there is no figure."""
    try:
        figure = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        print(f"{path} holds no rehearsal: run `peakplan rehearse live`", file=sys.stderr)
        return 1
    try:
        rows = with_twins(figure)["scenarios"]
    except StackError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    for row in rows:
        twin = row["twin"]
        alerts = ", ".join(f"{key} {at:.0f} s" for key, at in twin["alerts"].items()) or "none"
        print(f"twin    {row['scenario']}: p50 {twin['p50_ms']:.0f} ms, p99 {twin['p99_ms']:.0f} ms, by the reader "
              f"{twin['by_rule']:.1%}, {twin['goodput']:.1f} plans/s, hits {twin['hits']:.1%}, "
              f"alerts {alerts}")  # fmt: skip
    path.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    return 0


def with_twins(figure: dict[str, Any]) -> dict[str, Any]:
    """Put what the twin says beside each scenario of a figure, and return it. Raises StackError for one of before."""
    shape = Shape(figure["hosts"] // len(CELLS), figure["hurry"])
    sets = tuple(figure["sets"])
    calm = figure["calm_share"] * capacity(shape.hosts * len(CELLS), sets)
    rows = {row["scenario"]: row for row in figure["scenarios"]}
    loads = {name: make_load(SCENARIOS[name], calm, sets, seconds=figure["seconds"]) for name in rows}
    costs = fitted(loads["calm"], shape, rows["calm"]["live"]) if "calm" in rows else Costs()
    calm_wait = _wait(rows["calm"]) if "calm" in rows else 0.0
    figure["overhead_ms"], figure["occupied_ms"] = round(1000 * costs.overhead, 2), round(1000 * costs.occupied, 2)
    for name, row in rows.items():
        here = costs.with_wait(_wait(row) - calm_wait) if "calm" in rows else costs
        row["twin"] = _rounded(asdict(rehearsed(SCENARIOS[name], loads[name], shape, here)))
    return figure


def _wait(row: Row) -> float:
    """Return the seconds that a plan waits for processors: its replica to begin and to end, its gateway to take it."""
    runs = [row["scheduled"], *(run["scheduled"] for run in row.get("more_runs", ()))]
    try:
        replicas, gateways = (
            sum((Scheduled(**run[kind]) for run in runs), Scheduled()) for kind in ("replicas", "gateways")
        )
    except (KeyError, TypeError):
        raise StackError(f"{row['scenario']} was rehearsed before turns were counted: peakplan rehearse live") from None
    return 2 * replicas.wait + gateways.wait


def _until_valid(scenario: Scenario, shape: Shape, options: argparse.Namespace) -> Outcome:
    """Play the scenario, and once more for each time that other programs kept the stack from the processors."""
    outcome = live(scenario, shape, options)
    for _ in range(options.again):
        if not outcome.is_void:
            break
        print(f"{scenario.name} is void: the machine was too busy; once more", file=sys.stderr, flush=True)
        outcome = live(scenario, shape, options)
    if outcome.is_void:
        outcome.complaints.append(f"{VOID} the stack waited longer for a processor than it ran")
    return outcome


def live(scenario: Scenario, shape: Shape, options: argparse.Namespace) -> Outcome:
    """Start a stack, play the scenario, stop it. Raises StackError."""
    print(f"{scenario.name}: {scenario.words}", file=sys.stderr, flush=True)
    calm = options.calm * capacity(shape.hosts * len(CELLS), options.sets)
    load = make_load(scenario, calm, options.sets, seconds=options.seconds)
    folder = make_folder(options.folder / scenario.name, shape, rules=rules_without(options.broken))
    if scenario.limit:
        limit_callers(folder, scenario.limit)
    if scenario.off_clock:
        set_clock(folder, folder.hosts(CELLS[0])[0], "+0")
    if options.broken:
        break_envoy(folder, options.broken)
    with running(folder, host_variables(recorded=True, times=TIMES), light=True) as programs:
        # The rules' first minutes, so that every series is there, and no alert of the first plans is left.
        warm_up(programs, load, 6 * 60 / shape.hurry)
        return play(programs, scenario, load)


def _chosen(names: str) -> list[Scenario]:
    if names == "all":
        return list(SCENARIOS.values())
    if unknown := [name for name in names.split(",") if name not in SCENARIOS]:
        sys.exit(f"{', '.join(unknown)}: no such scenario; there are all, {', '.join(SCENARIOS)}")
    return [SCENARIOS[name] for name in names.split(",")]


def _row(outcomes: Sequence[Outcome]) -> Row:
    """Return a scenario's first run, whether all passed, and what the others read."""
    first, *others = outcomes
    row = {"scenario": first.scenario.name, "words": first.scenario.words, **_run(first)}
    row["passed"] = not any(outcome.complaints for outcome in outcomes)
    return {**row, "more_runs": [_run(each) for each in others]}


def _run(outcome: Outcome) -> Row:
    return {
        "passed": not outcome.complaints,
        "complaints": outcome.complaints,
        "live": _rounded(asdict(outcome.readings)),
        "alerts": [_rounded(asdict(alert)) for alert in outcome.alerts],
        "generator_lag_ms": round(outcome.lag_ms, 2),
        "lost_by_the_generator": outcome.lost,
        "scheduled": {kind: _rounded(asdict(each)) for kind, each in outcome.scheduled.items()},
    }


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def _print(outcome: Outcome) -> None:
    found = outcome.readings
    print(f"{'passed' if not outcome.complaints else 'FAILED'}  {outcome.scenario.name}")
    for complaint in outcome.complaints:
        print(f"        {complaint}")
    print(f"  live  p50 {found.p50_ms:.0f} ms, p99 {found.p99_ms:.0f} ms, by the reader {found.by_rule:.1%}, "
          f"{found.goodput:.1f} plans/s, hits {found.hits:.1%}, failed {found.failed:.0f}, late {found.late:.0f}, "
          f"retried {found.retried:.0f}, limited {found.limited:.0f}")  # fmt: skip
    for alert in outcome.alerts:
        cleared = "cleared" if alert.cleared else "NOT CLEARED"
        print(f"  alert {alert.name} {alert.cell} at {alert.first:.0f} s, until {alert.last:.0f} s, {cleared}")
    for kind, each in outcome.scheduled.items():
        print(f"  {kind} ran {each.ran:.1f} s and waited {each.waited:.1f} s for a processor, in {each.turns} turns")
    print(f"  the generator sent within {outcome.lag_ms:.1f} ms of each moment (p99)", flush=True)


def _sets(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the sets of questions to ask: those of the figure that this run joins, else all that are here."""
    joins = options.output and options.output.is_file() and options.scenario != "all"
    return tuple(json.loads(options.output.read_text(encoding="utf-8"))["sets"]) if joins else all_sets()


def _begun(path: Path | None, shape: Shape, options: argparse.Namespace) -> tuple[Row, dict[str, Row]]:
    """Return how this run is made, and what a figure holds already of runs that were made alike."""
    figure: Row = {
        "command": "peakplan rehearse live",
        "machine": describe_machine(),
        "hosts": shape.hosts * len(CELLS),
        "times": TIMES,
        "hurry": shape.hurry,
        "calm_share": options.calm,
        "seconds": options.seconds,
        "sets": list(options.sets),
    }
    before = json.loads(path.read_text(encoding="utf-8")) if path and path.is_file() else {}
    kept = before.pop("scenarios", []) if before.items() >= figure.items() else []
    return figure, {row["scenario"]: row for row in kept}


def _keep(path: Path, figure: Row, rows: dict[str, Row]) -> None:
    ordered = [rows[name] for name in SCENARIOS if name in rows]
    path.write_text(json.dumps({**figure, "scenarios": ordered}, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="peakplan rehearse live", description=__doc__)
    parser.add_argument("--scenario", default="all", help=f"comma-separated: {', '.join(SCENARIOS)}; all")
    parser.add_argument("--hosts", type=int, default=4, help="of each of the two cells")
    parser.add_argument("--hurry", type=int, default=HURRY, help="times the rules' clock: a minute lasts 60 s over it")
    parser.add_argument("--calm", type=float, default=CALM_SHARE, help="load, as a share of what replicas can plan")
    parser.add_argument("--seconds", type=float, default=CALM, help="of load; what happens is within the first 60")
    parser.add_argument("--runs", type=int, default=1, help="of each scenario; one that fails fails it")
    parser.add_argument("--again", type=int, default=2, help="times that a void run of a scenario is repeated")
    parser.add_argument("--broken", choices=BROKEN, default="", help="leave this out: it must fail then")
    parser.add_argument("--folder", type=Path, default=Path("runs/stack-rehearsal"))
    parser.add_argument("--twin", type=Path, help="run no stack: put the twin beside this figure's scenarios again")
    parser.add_argument("--check", action="store_true", help="with --twin: return 1 where the figure's twin is stale")
    parser.add_argument("--output", type=Path, help=f"write the figure there; docs show {FIGURE}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
