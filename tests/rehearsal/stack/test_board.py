"""Grafana's own model takes the dashboard, of the version of Grafana that the compose file runs."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from rehearsal.stack.folder import PARTS
from rehearsal.stack.monitor import DASHBOARD
from rehearsal.stack.parts_here import ROOT

PYTHON = ROOT / ".venv" / "bin" / "python"
MODEL = next(iter(ROOT.glob(".venv/lib/python3*/site-packages/grafana_foundation_sdk")), None)
needs_model = pytest.mark.skipif(MODEL is None, reason="Grafana's model is not installed: peakplan tools install stack")


def _told(board: Path) -> str:
    command = [str(PYTHON), str(ROOT / "rehearsal" / "stack" / "board_here.py"), str(board)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(done.stderr.strip()), done.stderr
    return done.stderr.strip()


@needs_model
def test_grafana_takes_every_key_and_every_unit() -> None:
    assert _told(DASHBOARD) == ""


@needs_model
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"unit": "percents"}, "panel p99: Grafana knows no unit 'percents'"),
        ({"treshold": 3}, "knows no 'treshold'"),
        ({"thresholds": {"mode": "absolute", "steps": [{"colour": "red", "value": None}]}}, "knows no 'colour'"),
    ],
)
def test_what_grafana_would_overlook_is_told(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panel = next(panel for panel in board["panels"] if panel["title"] == "p99")
    panel["fieldConfig"]["defaults"] |= change
    written = tmp_path / "board.json"
    written.write_text(json.dumps(board), encoding="utf-8")

    assert told in _told(written)


def test_the_model_is_of_the_grafana_that_compose_runs() -> None:
    compose = yaml.safe_load((PARTS / "compose.yaml").read_text(encoding="utf-8"))
    image = compose["services"]["grafana"]["image"].partition(":")[2]
    pinned = re.search(r'"grafana-foundation-sdk==\d+!([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert pinned is not None
    assert pinned[1] == image
