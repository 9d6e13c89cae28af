"""`python -m rehearsal.verdicts REPORT.json...` keeps what rehearsals said of fleets that ship, for docs/event-day.md.

Each report is a `rehearsal.json` of `make rehearse` with every scenario. A fleet's report takes the place of its one
before. `peakplan rehearse figures` rehearses the fleets that ship, and writes the verdicts into the documents.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.fleet.settings import FLEETS

FIGURE = Path("docs/figures/rehearsals.json")


class ReportError(ValueError):
    """A report whose verdict cannot be kept. The message says why."""


def kept(report: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a report: each scenario's verdict, its worst run, where it breaks and what it pages.

    Raises:
        ReportError: the fleet does not ship, or one scenario alone was rehearsed.
    """
    if not (FLEETS / f"{report['fleet']}.yaml").is_file():
        raise ReportError(f"{report['fleet']} does not ship: its verdict belongs to those who run it")
    if len(report["scenarios"]) < 2:
        raise ReportError("one scenario alone was rehearsed; run make rehearse without SCENARIO=")
    return {
        "at": datetime.now(UTC).date().isoformat(),
        **{name: report[name] for name in ("verdict", "trace", "peak", "seeds", "nodes")},
        "left_out": report["left_out"],
        "scenarios": {each["name"]: _scenario(each) for each in report["scenarios"]},
    }


def _scenario(scenario: dict[str, Any]) -> dict[str, Any]:
    runs = scenario["runs"]
    return {
        "holds": scenario["holds"],
        "breaks_at": scenario["breaks_at"],
        # Outside the surge, where the scenario has one.
        "percent_by_rule": max(
            value for run in runs for name, value in run.items() if name.startswith("plans by rule")
        ),
        "percent_failed": max(run["failed requests"] for run in runs),
        "worst_p99_ms": max(run["p99 of the worst 10 s"] for run in runs),
        "pages": sorted({alarm["key"] for alarm in scenario["alarms"] if alarm["severity"] == "page"}),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 2 for a report that cannot be kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    given = parser.parse_args(words)
    fleets = json.loads(given.figure.read_text(encoding="utf-8"))["fleets"] if given.figure.is_file() else {}
    for path in given.reports:
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            fleets[report["fleet"]] = kept(report)
        except (OSError, ReportError, ValueError, KeyError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
    given.figure.write_text(json.dumps({"fleets": dict(sorted(fleets.items()))}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
