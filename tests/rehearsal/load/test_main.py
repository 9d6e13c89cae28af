"""Tests of `python -m rehearsal.load` on the real service with fake replicas."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server_process import REPOSITORY, serving


def load(*options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rehearsal.load", *map(str, options)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_load_leaves_a_report_a_result_and_its_curve(tmp_path: Path) -> None:
    with serving("tests.fake_server", PEAKPLAN_REPLICAS=1) as server:
        one = load("--url", server.url, "--rate", 50, "--seconds", 1, "--data", "/nowhere", "--output", tmp_path)
        assert one.returncode == 0, one.stderr
        again = load(
            "--url", server.url, "--rate", 20, "--seconds", 1, "--data", "/nowhere",
            "--arrivals", tmp_path / "arrivals.csv", "--output", tmp_path / "again", "--json",
        )  # fmt: skip
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout) == json.loads((tmp_path / "again/result.json").read_text(encoding="utf-8"))
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["requests"] > 20
    assert result["errors"] == {}
    assert set(result["sources"]) <= {"model", "cache", "fallback"}
    assert one.stdout.splitlines()[0].endswith("of the requests were planned by rule")
    assert "WARNING" not in one.stdout
    assert "data:image/png" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_load_that_the_model_hardly_answers_says_so_first(tmp_path: Path) -> None:
    with serving("tests.fake_server", PEAKPLAN_REPLICAS=1, FAKE_SECONDS=1) as server:
        done = load(
            "--url", server.url, "--rate", 20, "--seconds", 1, "--data", "/nowhere", "--output", tmp_path
        )  # fmt: skip
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("100.0% of the requests were planned by rule (deadline ")
    assert second.startswith("WARNING: most plans are not the model's.")


def test_nobody_there_is_said_in_one_line(tmp_path: Path) -> None:
    done = load(
        "--url", "http://127.0.0.1:9", "--rate", 5, "--seconds", 0.5, "--data", "/nowhere", "--output", tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("no load: nobody answers at http://127.0.0.1:9")
