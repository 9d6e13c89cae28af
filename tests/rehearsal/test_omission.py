"""The proof that our load generator omits nothing: its arithmetic, its verdict, and the server that stalls."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rehearsal.load.client import LoadGenerator, Shot
from rehearsal.omission.__main__ import agree, expected, stalling, summary
from rehearsal.tools.omission_table import render_omission

FIGURE: dict[str, Any] = {
    "command": "peakplan bench omission",
    "machine": {"processor": "a processor", "cores": 2, "torch": "2"},
    "locust": "2.47.0", "rate": 50.0, "seconds": 30.0, "every_s": 5.0, "stall_s": 0.5,
    "users": {"open": 100, "closed": 2},
    "expected": {"ms": [0.0, 250.0, 450.0]}, "ours": {"answers": 1500, "ms": [1.0, 251.0, 452.0]},
    "locust_open": {"answers": 1500, "ms": [2.0, 240.0, 449.0]},
    "locust_closed": {"answers": 1360, "ms": [2.0, 3.0, 5.0]},
}  # fmt: skip


def test_the_known_tail_is_that_of_requests_that_nobody_holds_back() -> None:
    rng = random.Random(1)
    moments = (rng.uniform(0, 5) for _ in range(200_000))
    waits = sorted(max(moment - 4.5, 0) and 5 - moment for moment in moments)

    for share in (0.5, 0.95, 0.99):
        assert expected(share, 5.0, 0.5) == pytest.approx(waits[int(share * len(waits))], abs=0.005)


def test_a_generator_that_omits_does_not_agree() -> None:
    assert agree(FIGURE)
    assert not agree({**FIGURE, "ours": FIGURE["locust_closed"]})
    assert not agree({**FIGURE, "locust_open": FIGURE["locust_closed"]})


def test_the_table_says_what_each_says() -> None:
    said = render_omission(FIGURE)

    assert "| our generator | 1500 | 1 | 251 | 452 |" in said
    assert "freezes for 500 ms every 5 s" in said


def test_quantiles_are_of_the_answers() -> None:
    assert summary([float(each) for each in range(100)]) == {"answers": 100, "ms": [50.0, 95.0, 99.0]}


def test_our_generator_goes_on_sending_while_a_stall_holds_a_request_up() -> None:
    shots = [Shot(at / 50, b"{}") for at in range(60)]
    with stalling(every=0.5, stall=0.3) as url:
        samples = asyncio.run(LoadGenerator(url).fire(shots))

    assert [sample.status for sample in samples] == [200] * len(shots)
    slowest = max(samples, key=lambda sample: sample.latency)
    assert sum(slowest.sent < each.sent < slowest.ended for each in samples) > 1


def test_without_locust_it_says_what_installs_it(tmp_path: Path) -> None:
    nothing = tmp_path / "python"
    nothing.write_text("#!/bin/sh\necho no module named locust >&2; exit 1\n", encoding="utf-8")
    nothing.chmod(0o755)
    command = [sys.executable, "-m", "rehearsal.omission", "--python", str(nothing), "--seconds", "0.1"]
    done = subprocess.run([*command, "--output", str(tmp_path / "x.json")], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "no module named locust" in done.stderr
    assert "peakplan tools install locust" in done.stderr
    assert not (tmp_path / "x.json").exists()
