"""Reads a Grafana dashboard by Grafana's own model of one (grafana-foundation-sdk), and says what that does not know.

`.venv/bin/python rehearsal/stack/board_here.py docs/monitoring/grafana.json` returns 1, a line for each fault.
It runs in the stack's environment, which has the model, and imports nothing of this repository.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> int:
    """Read, compare, print."""
    faults = list(_faults(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    print("\n".join(faults), file=sys.stderr)
    return int(bool(faults))


def _faults(board: dict[str, Any]) -> Iterator[str]:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # type: ignore[import-not-found, unused-ignore]
    from grafana_foundation_sdk.cog.plugins import (  # type: ignore[import-not-found, unused-ignore]
        register_default_plugins,
    )
    from grafana_foundation_sdk.models import dashboard, units  # type: ignore[import-not-found, unused-ignore]

    register_default_plugins()
    read = json.loads(JSONEncoder().encode(dashboard.Dashboard.from_json(board)))
    yield from _lost(board, read, "the dashboard")
    known = {value for name, value in vars(units).items() if not name.startswith("_")}
    for panel in board["panels"]:
        unit = panel["fieldConfig"]["defaults"].get("unit")
        if unit not in known:
            yield f"panel {panel['title']}: Grafana knows no unit {unit!r}"


def _lost(written: Any, read: Any, where: str) -> Iterator[str]:
    """Yield what Grafana's model does not take over as it is written; it adds its own defaults."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            if key not in read:
                yield f"{where}: Grafana knows no {key!r}"
            else:
                yield from _lost(value, read[key], f"{where}, {key}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, pair in enumerate(zip(written, read, strict=True)):
            yield from _lost(*pair, f"{where} {number}")
    elif written != read:
        yield f"{where}: Grafana reads {read!r} where {written!r} is written"


if __name__ == "__main__":
    sys.exit(main())
