"""Ask for a plan, and ask the second cell when the first fails: `python ask_cells.py "red nike shoes"`.

For callers that resolve the cells' names (docs/fleet.md, "Callers reach it"). A real client keeps a connection per cell
open. Set CELLS and CA_FILE to those of your fleet.
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
    """Return the plan of the first cell that answers. Raises the last cell's error if none does.

    A refusal of the question (4xx but 429) is raised at once. The first cell gets two thirds of the deadline, each
    other one a third.
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
