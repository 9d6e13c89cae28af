"""Figure files with several machines side by side: a run replaces its own machine's entry and leaves the others.

{"machines": {"AMD EPYC (Zen 5), avx512_vnni": {...}, "AMD EPYC (Zen 5), avx2 (forced)": {...}}}

Where a plot goes with it, "plotted" names the machine that the plot is of: the last that was not forced to a kernel.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read_machines(path: Path) -> dict[str, dict[str, Any]]:
    """Return every machine's figures by its name; none where the file does not exist yet."""
    machines: dict[str, dict[str, Any]] = _read(path).get("machines", {})
    return machines


def write_machine(path: Path, name: str, figure: dict[str, Any], *, is_plotted: bool = False) -> None:
    """Replace one machine's figures, and the name of the machine that the plot is of where `is_plotted`."""
    written = _read(path) | ({"plotted": name} if is_plotted else {})
    written["machines"] = dict(sorted({**read_machines(path), name: figure}.items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def write_simulated(figure: Callable[[int], dict[str, Any]], path: Path, runs: int, documentation: str | None) -> None:
    """Be the command of a figure that as many runs as `--runs` says are simulated for, whatever the machine."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs)
    text = json.dumps(figure(parser.parse_args().runs), indent=1)
    path.write_text(text + "\n", encoding="utf-8")
    print(text)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
