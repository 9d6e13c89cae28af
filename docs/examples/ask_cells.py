"""Ask for a plan, and ask the second cell when the first fails: `python ask_cells.py "red nike shoes"`.

For callers that resolve the cells' own names (docs/fleet.md, "Callers reach it"). Python's standard library alone; keep
one connection a cell open in a real client. CELLS and CA_FILE are of your fleet.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

CELLS = os.environ.get(
    "PEAKPLAN_CELLS", "https://cell-1.plan.planner.internal https://cell-2.plan.planner.internal"
).split()
CA_FILE = os.environ.get("PEAKPLAN_CA_FILE")  # of the private CA; None: the system's
DEADLINE_MS = 300


def ask(cells: Sequence[str], query: str, deadline_ms: int = DEADLINE_MS, ca_file: str | None = CA_FILE) -> Any:
    """The plan of the first cell that gives one. Raises the last cell's error when none does.

    A refusal of the question itself (4xx but 429) is the same everywhere, so it is raised at once. What is left of the
    deadline shrinks with each try: two thirds for the first cell, the rest for the second.
    """
    context = ssl.create_default_context(cafile=ca_file)
    last: Exception = ValueError("no cell was named")
    for number, cell in enumerate(cells):
        share = deadline_ms * (2 if number == 0 else 1) // 3
        body = json.dumps({"query": query, "deadline_ms": max(10, share)}).encode()
        asks = urllib.request.Request(f"{cell}/plan", data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asks, timeout=share / 1000 + 0.1, context=context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise
            error.close()
            last = error
        except (OSError, ValueError) as error:
            last = error
    raise last


if __name__ == "__main__":
    print(json.dumps(ask(CELLS, " ".join(sys.argv[1:])), indent=1))
