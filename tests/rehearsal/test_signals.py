"""The figure that decision 22 argues from: what it says of signals and laws, and that its command makes it."""

import json
from typing import Any

import pytest

from infra.fleet import sizing
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FLEETS, FleetSettings
from rehearsal import signals
from rehearsal.signals import FIGURE, gateway_curve, main

PRIME_DAY = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
INF2 = PRIME_DAY.groups[0]


@pytest.fixture(scope="module")
def figure() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIGURE.read_text(encoding="utf-8"))
    return found


def test_the_first_host_s_curve_is_what_the_command_makes(figure: dict[str, Any]) -> None:
    shown, *_ = figure["gateways"].values()
    replicas = sizing.replicas_per_instance(INF2, PRIME_DAY.model.tensor_parallel)
    assert gateway_curve(sizing.service_time(PRIME_DAY, INF2), replicas, PRIME_DAY.slo.p99_ms / 1000) == shown["loads"]


def test_past_capacity_offered_work_alone_shows_the_load(figure: dict[str, Any]) -> None:
    law = ScalingLaw.for_group(PRIME_DAY, INF2)
    for gateway in figure["gateways"].values():
        rows = {row["load"]: row for row in gateway["loads"]}
        for load, row in rows.items():
            assert row["offered_work"] == pytest.approx(load, rel=0.1)
        past = [row for load, row in rows.items() if load >= 1.5]
        outstanding = [row["outstanding_per_replica"] for row in past]
        assert max(outstanding) / min(outstanding) < 2, "nearly the same at twice and at ten times capacity"
        assert min(row["by_rule_share"] for row in past) > law.steps[-1].threshold
    loads = next(iter(figure["gateways"].values()))["loads"]
    assert all(row["by_rule_share"] < 0.01 for row in loads if row["load"] <= 0.5)


def test_a_law_without_offered_work_or_without_warm_hosts_is_slower(figure: dict[str, Any]) -> None:
    whole, *others = figure["surge"]["recovered_after_seconds"].values()
    assert len(others) == 3
    for seconds in zip(whole, *others, strict=True):
        assert seconds[0] <= PRIME_DAY.surge.recover
        assert all(other is None or other > 2 * seconds[0] for other in seconds[1:])


def test_a_stale_figure_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(signals, "figure", lambda: json.loads(FIGURE.read_text(encoding="utf-8")))
    assert main(["--check"]) == 0
    monkeypatch.setattr(signals, "figure", dict)
    assert main(["--check"]) == 1
    assert "docs/figures/scaling.json is stale" in capsys.readouterr().err
