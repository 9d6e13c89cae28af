"""The `aws` of tests: the AWS CLI's version 1, which PyPI has, before the emulator.

A call that the CLI accepts and the emulator does not know is told as unanswered and succeeds without an answer. `logs
tail` is version 2's alone: its options are that version's (AWS CLI Command Reference), and it asks as it does.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CLI = Path(__file__).parents[2] / ".venv" / "bin" / "aws"
RECORD = "AWS_CALLS_OF_THIS_TEST"
# What moto's server says of an operation, and of a service, that it does not have.
UNKNOWN = ("<title>500 Internal Server Error</title>", "<title>404 Not Found</title>")


@dataclass(frozen=True)
class Call:
    """One command line of the CLI, as the shell gave it, and what became of it."""

    words: list[str]
    code: int
    answered: bool
    said: str  # its standard error

    @property
    def operation(self) -> tuple[str, str]:
        return self.words[0], self.words[1]


def lend_aws(folder: Path) -> Path:
    """Write the programs `aws` and `sleep` into a folder, and return it. Nothing in the emulator is worth a wait."""
    folder.mkdir()
    start = f'#!/bin/sh\nexec {sys.executable} -P {__file__} "$@"\n'
    for name, text in {"aws": start, "sleep": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def calls_in(record: Path) -> list[Call]:
    """The calls that were recorded, in order."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return [Call(**json.loads(line)) for line in lines]


def as_version_1(words: Sequence[str]) -> list[str]:
    """Return what version 1 is asked in the place of these words of version 2."""
    if tuple(words[:2]) != ("logs", "tail"):
        return list(words)
    parser = argparse.ArgumentParser("aws logs tail", allow_abbrev=False)
    parser.add_argument("group_name")
    parser.add_argument("--since", default="10m")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--format", choices=("detailed", "short", "json"), default="detailed")
    parser.add_argument("--filter-pattern")
    parser.add_argument("--log-stream-names", nargs="+")
    parser.add_argument("--log-stream-name-prefix")
    given = parser.parse_args(words[2:])
    pattern = ["--filter-pattern", given.filter_pattern] if given.filter_pattern else []
    asked = ["logs", "filter-log-events", "--log-group-name", given.group_name, *pattern]
    return [*asked, "--query", "events[].message", "--output", "text"]


def main() -> int:
    words = sys.argv[1:]
    # Named once more: a service with one endpoint for all regions is not looked for where the environment says.
    start = [str(CLI), "--endpoint-url", os.environ["AWS_ENDPOINT_URL"]]
    done = subprocess.run([*start, *as_version_1(words)], stdout=None, stderr=subprocess.PIPE, text=True, check=False)
    answered = done.returncode == 0 or not any(each in done.stderr for each in UNKNOWN)
    code = done.returncode if answered else 0
    call = {"words": words, "code": code, "answered": answered, "said": done.stderr}
    with Path(os.environ[RECORD]).open("a", encoding="utf-8") as record:
        record.write(json.dumps(call) + "\n")
    sys.stderr.write(done.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
