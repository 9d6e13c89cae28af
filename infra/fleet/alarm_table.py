"""`python -m infra.fleet.alarm_table` writes the table of docs/alarms.md; `--check` fails where anything is stale.

The table stands between the lines `<!-- alarms -->` and `<!-- end of alarms -->`, with the prime-day fleet's numbers.
Checked too: every alarm has a runbook with its four parts, every runbook has an alarm, every link leads somewhere.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from infra.fleet.alarm_kinds import Alarm, Severity
from infra.fleet.alarms import cell_alarms
from infra.fleet.settings import FLEETS, FleetFileError, FleetSettings

PAGE, RUNBOOKS = Path("docs/alarms.md"), Path("docs/runbooks")
SHOWN = FLEETS / "prime-day.yaml"
PARTS = ("Symptom", "First look", "Mitigation", "Follow-up")
_BLOCK = re.compile(r"(<!-- alarms -->\n).*?(<!-- end of alarms -->)", re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+\.md)\)")


def table(alarms: Sequence[Alarm]) -> str:
    """The alarms that tell somebody, as Markdown."""
    rows = ["| alarm | means | when | tells |", "|---|---|---|---|"]
    rows += [
        f"| [{alarm.key}]({RUNBOOKS.name}/{alarm.runbook}.md) | {alarm.meaning} | {alarm.when} | {_tells(alarm)} |"
        for alarm in alarms
        if alarm.severity is not Severity.PART
    ]
    return "\n".join(rows)


def _tells(alarm: Alarm) -> str:
    if alarm.severity is Severity.TICKET:
        return "on-call, by ticket"
    return "on-call, now" if alarm.key == "page" else "page"


def rewrite(text: str, alarms: Sequence[Alarm]) -> str:
    """The page with its table made anew. Raises ValueError where it has no place for one."""
    if not _BLOCK.search(text):
        raise ValueError(f"{PAGE} has no lines <!-- alarms --> and <!-- end of alarms -->")
    return _BLOCK.sub(lambda block: f"{block.group(1)}{table(alarms)}\n{block.group(2)}", text)


def complaints(alarms: Sequence[Alarm], runbooks: Path = RUNBOOKS) -> Iterator[str]:
    """What is wrong between alarms and runbooks, a sentence each; nothing when all is well."""
    wanted, found = {alarm.runbook for alarm in alarms}, {path.stem for path in runbooks.glob("*.md")}
    for name in sorted(wanted - found):
        keys = ", ".join(alarm.key for alarm in alarms if alarm.runbook == name)
        yield f"{runbooks / name}.md does not exist, and {keys} would wake somebody without it: write it"
    for name in sorted(found - wanted):
        yield f"{runbooks / name}.md belongs to no alarm of infra/fleet/alarms.py: remove it or name it in one"
    for name in sorted(wanted & found):
        path = runbooks / f"{name}.md"
        text = path.read_text(encoding="utf-8")
        headings = tuple(re.findall(r"^## (.+)$", text, re.MULTILINE))
        if headings != PARTS:
            yield f"{path}: its parts are {', '.join(headings) or 'none'}; they must be {', '.join(PARTS)}"
        for link in _LINK.findall(text):
            if not (path.parent / link).is_file():
                yield f"{path}: its link to {link} leads nowhere"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table, or check it; 1 when something is stale or missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where something is stale or missing")
    check = parser.parse_args(arguments).check
    try:
        alarms = cell_alarms(FleetSettings.from_yaml(SHOWN))
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return 1
    found = list(complaints(alarms))
    try:
        current = PAGE.read_text(encoding="utf-8")
        wanted = rewrite(current, alarms)
    except (OSError, ValueError) as error:
        found.append(str(error))
    else:
        if check and current != wanted:
            found.append(f"{PAGE} does not show the alarms as they are: run `python -m infra.fleet.alarm_table`")
        elif current != wanted:
            PAGE.write_text(wanted, encoding="utf-8")
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
