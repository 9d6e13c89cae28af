"""`peakplan tools fuzz`: search each target for --seconds, as many side by side as there are cores.

atheris leads the search by coverage; where it cannot be installed, hypothesis does by cost alone. A find is appended to
the corpus, which the suite replays for ever.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from rehearsal.bench.question_cost import CORPUS
from tests.fuzz.targets import TARGETS

_FOLDER = Path("build/fuzz")  # what covers more than the corpus does, kept for the next search
# The last two tell of what libFuzzer itself stops at (memory, a crash) and where it left the input.
_TOLD = ("stat::number_of_executed_units", "FoundError", "Error:", "conversations tried", "SUMMARY:", "unit written to")


def _search(name: str, seconds: float) -> tuple[int, float, str]:
    """Search one target in a process of its own.

    Returns its exit status, its minutes of the processor, which a busy machine makes fewer than those on the wall, and
    the lines that tell what it did.
    """
    module = "guided" if find_spec("atheris") else "search"
    command = [sys.executable, "-m", f"tests.fuzz.{module}", name, str(int(seconds)), str(_FOLDER / name)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().splitlines()
    told = "\n".join(line[:500] for line in lines if any(each in line for each in _TOLD))
    return process.returncode, (used.ru_utime + used.ru_stime) / 60, told


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
    for name, (status, minutes, told) in zip(names, found, strict=True):
        outcome = "FOUND something" if status else "nothing found"
        print(f"{name}: {outcome} in {minutes:.1f} minutes of the processor\n{told}")
    if any(status for status, *_ in found):
        print(f"What was found is in {CORPUS} now, or where libFuzzer wrote it: mend it, and commit both.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
