"""Seeded shoppers at a real service, and the report that reads what they told it: both count the same."""

import asyncio
from pathlib import Path

import pytest

from rehearsal.shoppers.__main__ import EXPERIMENT, Shopping, shop
from rehearsal.shoppers.behaviour import Effects
from tests.faults.under_load import fake_server

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install -e .[value]")
from peakplan.value.reading import sums
from peakplan.value.report import report

pytestmark = pytest.mark.slow
SHOPPERS = 40


def test_the_report_counts_what_shoppers_did(tmp_path: Path) -> None:
    how = Shopping(1, "position", Effects(buy=1.5, click=1.2))
    with fake_server(PEAKPLAN_OUTCOMES_DIR=tmp_path, FAKE_SECONDS=0, FAKE_ANSWER="fixed") as server:
        did = asyncio.run(shop(server.url, SHOPPERS, 2, how))
        server.stop()
    assert sum(arm["shoppers"] for arm in did.values()) == SHOPPERS
    assert sum(arm["clicks"] for arm in did.values()) > 0
    told = report(sums(sorted(tmp_path.glob("*.jsonl"))))
    (experiment,) = told["experiments"]
    assert experiment["name"] == EXPERIMENT
    rows = {row["name"]: row for row in told["arms"] if row["name"] != "-"}
    assert len(rows) == 2
    for arm, counts in did.items():
        (row,) = [each for name, each in rows.items() if name.endswith(arm)]
        assert (row["plans_shown"], row["shoppers"]) == (counts["shown"], counts["shoppers"])
        assert row["without_result"] == pytest.approx(counts["empty"] / counts["shown"], abs=1e-4)
