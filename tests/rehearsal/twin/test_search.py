"""The search: variants that the settings accept, priced by the hosts that ran, ranked, with what breaks each."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from infra.fleet import sizing
from infra.fleet.cost import Prices, bill
from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal.twin import __main__ as command
from rehearsal.twin import search
from rehearsal.twin.curves import steady
from rehearsal.twin.rehearsal import Plan, attempt
from rehearsal.twin.scenarios import SCENARIOS, event_of
from rehearsal.twin.work import stated
from tests.rehearsal.twin.test_simulation import PRIME_DAY

PRICES = Prices.from_json()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """prime-day as one cell for a hundredth of its shoppers, whose bill is that of its hosts alone."""
    text = (FLEETS / "prime-day.yaml").read_text()
    for old, new in (
        ("cells: 6", "cells: 1"),
        ("plans_per_minute: 250000", "plans_per_minute: 3000"),
        ("minimum: 15, maximum: 156", "minimum: 3, maximum: 15"),
        ("minimum: 6, maximum: 39", "minimum: 3, maximum: 6"),
        ("caller_shard_cells: 3", "caller_shard_cells: 1"),
        (", reserve: true", ""),
        ("minimum: 3\n    maximum: 36", "minimum: 3\n    maximum: 6"),
        ("shared_cache: {node_type: cache.m7g.large}", "shared_cache: {enabled: false}"),
    ):
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "tiny.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def asked() -> Iterator[search.Asked]:
    with ProcessPoolExecutor(1) as pool:
        yield search.Asked(Plan(PRIME_DAY, steady(1200), stated(PRIME_DAY), 1.1), stated, PRICES, pool, print)


@pytest.mark.slow
def test_the_cheapest_fleets_that_hold_are_ranked_beside_the_shipped_one(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "short.csv"
    trace.write_text("second,requests\n" + "".join(f"{60 * minute},{600 - 20 * minute}\n" for minute in range(20)))
    words = ["search", str(tiny), "--traffic", str(trace), "--peak", "1.1", "--output", str(tmp_path / "out")]
    assert command.main(words) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1].startswith("PASS: ")
    assert "WARNING: service times are stated" in captured.err
    found = json.loads((tmp_path / "out" / "search.json").read_text())
    rows = found["frontier"]
    assert [row["hourly"] for row in rows] == sorted(row["hourly"] for row in rows)
    own = [row for row in rows if row["own_types"] and row["name"] != "as shipped"]
    assert own[0]["saved"] >= 0.2
    assert own[0]["service_times"] == "stated"
    assert all(row["breaks_at"]["zone-lost"] >= 1.1 for row in rows if row["holds"])
    assert {scenario["name"] for scenario in found["scenarios"]} >= {"zone-lost", "flash-x10", "cold-cache", "silence"}
    (shipped,) = [row for row in rows if row["name"] == "as shipped"]
    settings = FleetSettings.from_yaml(tiny)
    event = event_of(settings)
    assert event is not None
    assert shipped["hourly"] == pytest.approx(bill(settings, PRICES, "", event[1]).hourly, rel=0.02), "its floor stands"
    assert all("c7a.4xlarge 3..6" in row["change"] for row in own), "what stands in stays as it is"
    assert {"c7g.4xlarge", "c8g.4xlarge"} <= set(found["left_out"])
    assert "left out: c8g.4xlarge: not among the processors: no plan was timed on one" in captured.err
    assert own[0]["change"] in (tmp_path / "out" / "search.html").read_text()


def test_hosts_that_the_law_adds_are_paid_for(asked: search.Asked) -> None:
    """A floor for two fifths of the event costs more than that floor: the law starts what is missing."""
    ladder = asked.ladders()[0][0]
    plan = replace(asked.plan_of(ladder[0]), curve=steady(600))
    trial = attempt(replace(plan.situation(SCENARIOS["nominal"], 6, 1), whole=True))
    event = event_of(ladder[0].settings)
    assert event is not None
    group = ladder[0].settings.groups[0]
    assert trial.course.mean_hosts[0] > 1.5 * sizing.instances_wanted(ladder[0].settings, group, event[1])
    scheduled = bill(ladder[0].settings, PRICES, "", event[1]).hourly
    assert asked.dollars(ladder[0], [trial]) > 1.3 * scheduled
