"""`peakplan value FILES`: what shoppers got and did, by release and arm, as JSON or as a page with plots.

FILES are plans*.jsonl and events*.jsonl of PEAKPLAN_OUTCOMES_DIR, of one host or many. Look as often as you like: the
intervals hold at every look at once (docs/value.md).
"""

import argparse
import json
import sys
from pathlib import Path

from peakplan.value.exports import bulk_lines, lines
from peakplan.value.intervals import PLANNED
from peakplan.value.page import page
from peakplan.value.reading import MEASURES, FilesError, sums
from peakplan.value.report import MAIN, report


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="peakplan value", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", help="plans*.jsonl and events*.jsonl")
    parser.add_argument("--html", type=Path, help="write a page with plots here; the JSON goes to stdout either way")
    parser.add_argument("--emf", type=Path, help="append CloudWatch's metrics to this file, as EMF lines")
    parser.add_argument("--ubi", type=Path, help="write plans and events here as OpenSearch's UBI has them, for _bulk")
    parser.add_argument("--control", default="control", help="the arm, or team, that others are compared with")
    parser.add_argument(
        "--measure", choices=MEASURES, default=MAIN, help="what the experiment is for: narrowest intervals"
    )
    parser.add_argument("--effect", type=float, default=0.02, help="the lift worth knowing, as a share: 0.02 is 2%%")
    parser.add_argument("--planned", type=float, default=PLANNED, help="shoppers at which intervals are narrowest")
    parser.add_argument("--shares", default="", help="what arms should get: control=50,rules=50; equal if left out")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the JSON as one line")
    given = parser.parse_args()
    try:
        shares = {
            name: float(share) for name, _, share in (each.partition("=") for each in given.shares.split(",") if each)
        }
    except ValueError:
        sys.exit(f"error: --shares {given.shares}: write arm=number, comma-separated")
    if given.effect <= 0 or given.planned < 1 or any(share <= 0 for share in shares.values()):
        sys.exit("error: --effect, --planned and shares are above 0")
    try:
        told = report(
            sums(given.files, given.threads, given.control), control=given.control, effect=given.effect,
            planned=given.planned, shares=shares, main=given.measure,
        )  # fmt: skip
    except FilesError as error:
        sys.exit(f"error: {error}")
    if given.html:
        given.html.write_text(page(told), encoding="utf-8")
    if given.emf:
        with given.emf.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines(told))
    if given.ubi:
        with given.ubi.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in bulk_lines(given.files))
    print(json.dumps(told, indent=None if given.json else 1))


if __name__ == "__main__":
    main()
