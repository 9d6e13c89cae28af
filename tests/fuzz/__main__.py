"""`make fuzz`: search each target for --seconds, as many side by side as there are cores.

atheris leads the search by coverage; where it cannot be installed, hypothesis does by cost alone. A find is appended to
the corpus, which the suite replays for ever.
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from benchmarks.question_cost import CORPUS
from tests.fuzz.targets import TARGETS

_FOLDER = Path("build/fuzz")  # what covers more than the corpus does, kept for the next search
_TOLD = ("stat::number_of_executed_units", "FoundError", "Error:", "conversations tried")


def _search(name: str, seconds: float) -> tuple[int, str]:
    """Search one target in a process of its own; return its exit status and the lines that tell what it did."""
    module = "guided" if find_spec("atheris") else "search"
    command = [sys.executable, "-m", f"tests.fuzz.{module}", name, str(int(seconds)), str(_FOLDER / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return done.returncode, "\n".join(line[:500] for line in lines if any(each in line for each in _TOLD))


def main() -> int:
    """Return 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="for each target")
    parser.add_argument("--target", choices=list(TARGETS), action="append", help="only these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    names = arguments.target or list(TARGETS)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        found = list(pool.map(lambda name: _search(name, arguments.seconds), names))
    for name, (status, told) in zip(names, found, strict=True):
        print(f"{name}: {'FOUND something' if status else 'nothing found'}\n{told}")
    if any(status for status, _ in found):
        print(f"What was found is in {CORPUS} now: mend it, and commit both.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
