"""What tests were skipped for want of: a table, and with `--whole` a failure where a command would have brought it."""

import re
from collections import defaultdict
from collections.abc import Iterable

import pytest

_COMMAND = re.compile(r"(?:apt-get install|pip install|npm ci|make|peakplan (?:tools|fleet|bench)) ?[^`;):]*")
_OPTIONS = re.compile(r" -\S+(?= )")
NOTHING = "another machine, or files that are not in the repository"


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test or a whole module was skipped."""
    _, _, reason = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
    return reason.removeprefix("Skipped: ")


def bringing(reason: str) -> str:
    """Return the commands that a reason names, in one line; "" where it names none."""
    found = dict.fromkeys(match.strip() for match in _COMMAND.findall(reason))
    wanted = [package for command in found if command.startswith("apt") for package in _packages(command)]
    others = [command for command in found if not command.startswith("apt")]
    return " && ".join([*([f"apt-get install {' '.join(dict.fromkeys(wanted))}"] if wanted else []), *others])


def _packages(command: str) -> list[str]:
    return _OPTIONS.sub("", f"{command} ").removeprefix("apt-get install").split()


def table(reasons: Iterable[str]) -> list[str]:
    """Return the lines of the table, most tests first, and one command for all that Debian's packages would bring."""
    rows: dict[str, list[str]] = defaultdict(list)
    for reason in reasons:
        rows[bringing(reason) or NOTHING].append(reason)
    lines = [f"{'tests':>5}  what brings it"]
    for command, needing in sorted(rows.items(), key=lambda row: -len(row[1])):
        lines.append(f"{len(needing):>5}  {command}")
        if command == NOTHING:
            lines += [f"       - {reason}" for reason in sorted(set(needing))]
    debian = [part for command in rows for part in command.split(" && ") if part.startswith("apt")]
    packages = sorted({package for command in debian for package in _packages(command)})
    return [*lines, f"all of Debian's: apt-get install {' '.join(packages)}"] if len(debian) > 1 else lines
