"""Figure files with several machines side by side: a run replaces its own machine's entry and leaves the others.

{"machines": {"AMD EPYC (Zen 5), avx512_vnni": {...}, "AMD EPYC (Zen 5), avx2 (forced)": {...}}}
"""

import json
from pathlib import Path
from typing import Any


def read_machines(path: Path) -> dict[str, dict[str, Any]]:
    """Return every machine's figures by its name; none where the file does not exist yet."""
    if not path.is_file():
        return {}
    machines: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["machines"]
    return machines


def write_machine(path: Path, name: str, figure: dict[str, Any]) -> None:
    """Replace one machine's figures."""
    machines = {**read_machines(path), name: figure}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machines": dict(sorted(machines.items()))}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")
