"""A live rehearsal: its verdict, the twin beside it, parts left out on purpose, light hosts, one on a real stack."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rehearsal.bench.tables import errors, render
from rehearsal.light_host import RecordedModel, RecordedTimes
from rehearsal.stack.beside import BOOT_SECONDS, rehearsed, replayed
from rehearsal.stack.folder import ROOT, Shape, found
from rehearsal.stack.live import WARM_UP, all_sets, capacity, judge, make_load, questions, warm_up_load
from rehearsal.stack.monitor import Alert, Readings
from rehearsal.stack.processes import KINDS, Scheduled
from rehearsal.stack.rehearse import VOID, is_red, stale, with_twins
from rehearsal.stack.scenarios import BROKEN, CALM, ENDS, FAULT, SCENARIOS, break_envoy, rules_without
from rehearsal.twin.cell import CACHED, MODEL, Cell
from rehearsal.twin.cell import Load as CellLoad
from service.engines.protocol import GenerationRequest
from tests.processes import PATIENCE
from tests.rehearsal.stack.parts import a_folder, needs_parts

CALM_ONES = Readings(
    requests=4000, failed=0, late=0, limited=0, by_rule=0.01, hits=0.5, goodput=30,
    p25_ms=4, p50_ms=30, p99_ms=280, retried=0,
)  # fmt: skip
SETS = all_sets()
SATURATION = Alert("Saturation", "page", "cell-1", 40.0, 80.0, True)
BURN = Alert("ModelFastBurn", "page", "cell-1", 40.0, 80.0, True)


@pytest.mark.parametrize(
    ("name", "changed", "alerts", "said"),
    [
        ("calm", {}, [], []),
        ("calm", {"failed": 2}, [], ["2 of 4000 requests were lost"]),
        ("calm", {"late": 1}, [], ["1 answers came more than 50 ms after the deadline"]),
        ("calm", {"by_rule": 0.1}, [], ["10.0% of the plans were made by the reader, although the hosts had time"]),
        ("calm", {}, [SATURATION], ["Saturation fired"]),
        ("surge", {"by_rule": 0.3}, [SATURATION, BURN], []),
        ("surge", {}, [BURN], ["Saturation did not fire"]),
        ("surge", {}, [replace(SATURATION, cleared=False), BURN], ["Saturation did not clear"]),
        ("flood", {}, [], ["the caller that floods was not limited"]),
        ("flood", {"limited": 900}, [], []),
    ],
)
def test_each_harm_fails_a_scenario(name: str, changed: dict[str, float], alerts: list[Alert], said: list[str]) -> None:
    assert judge(SCENARIOS[name], replace(CALM_ONES, **changed), alerts) == said  # type: ignore[arg-type]


def test_arrivals_are_decided_before_the_run_and_follow_the_rates() -> None:
    load = make_load(SCENARIOS["surge"], 20.0, SETS)
    within = sum(FAULT <= shot.at < ENDS for shot in load.shots)

    assert load.shots == make_load(SCENARIOS["surge"], 20.0, SETS).shots
    assert [shot.at for shot in load.shots] == sorted(shot.at for shot in load.shots)
    assert within == pytest.approx(6 * 20 * (ENDS - FAULT), rel=0.05)
    assert len(load.shots) - within == pytest.approx(20 * (CALM - ENDS + FAULT), rel=0.1)


def test_the_twin_is_asked_what_the_stack_is_and_a_lost_cells_callers_go_to_the_other() -> None:
    load = make_load(SCENARIOS["cell-lost"], 20.0, SETS)
    warmed = len(warm_up_load(20.0, SETS).shots)
    first, second = replayed(SCENARIOS["cell-lost"], load, occupied=0.001, overhead=0.002)

    since = first[:, 0] - WARM_UP
    assert not ((since >= FAULT) & (since < ENDS + BOOT_SECONDS)).any()
    both = np.vstack([first, second])
    both = both[both[:, 0].argsort()][warmed:]
    assert both[:, 0] == pytest.approx([WARM_UP + shot.at for shot in load.shots])
    ranked = questions(SETS)
    assert [ranked[int(rank)] for rank in both[:, 5]] == load.questions
    again, _ = replayed(SCENARIOS["cell-lost"], load, occupied=0.003, overhead=0.003)
    assert again[:, 1] == pytest.approx(first[:, 1] + 0.002), "what handing over costs keeps a replica"
    assert again[:, 3] == pytest.approx(first[:, 3] - 0.001), "what the balancer takes is gone from the deadline"


def test_a_question_that_the_twin_replays_is_planned_once_and_then_remembered() -> None:
    asked = [(0.1, 0.05, 30.0, 0.295, 0.5, 0.0), (0.3, 0.05, 30.0, 0.295, 0.5, 0.0), (0.5, 0.05, 30.0, 0.295, 0.5, 1.0)]
    load = CellLoad(np.full((1, 1, 1), 0.05), 5.0, replay=np.array(asked), question_share=np.array([0.5, 1.0]))
    cell = Cell(load, nodes=1, hosts=1)
    cell.bring_in(0, 0, 1, np.full(4, 0.05))
    cell.put_in_everywhere(0, 0.0)
    cell.advance(2.0)

    assert cell.outcomes.sum(axis=0)[[MODEL, CACHED]].tolist() == [2, 1]


def test_the_twin_overloads_in_a_surge_alone_and_loses_a_cell_where_it_is_lost() -> None:
    shape, calm = Shape(2, 12), 0.5 * capacity(4, SETS)
    surge, lost, quiet = (
        rehearsed(SCENARIOS[name], make_load(SCENARIOS[name], calm, SETS), shape)
        for name in ("surge", "cell-lost", "calm")
    )

    assert surge.by_rule > 0.1 > 0.05 > quiet.by_rule
    assert {"Saturation", "ModelFastBurn"} <= set(surge.alerts)
    assert {"UnhealthyHosts", "Privatelink"} <= set(lost.alerts)
    assert "FastBurn" not in lost.alerts
    assert lost.failed == quiet.failed == 0
    assert not {"UnhealthyHosts", "Privatelink", "Saturation"} & set(quiet.alerts)


@needs_parts
@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_left_out_on_purpose_is_gone_and_the_rest_is_valid(broken: str, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "stack")
    whole = yaml.safe_load((folder.path / "envoy.yaml").read_text(encoding="utf-8"))

    break_envoy(folder, broken)

    left = yaml.safe_load((folder.path / "envoy.yaml").read_text(encoding="utf-8"))
    assert (left == whole) == (broken == "alert")
    assert ("PeakplanSaturation" in rules_without(broken)) == (broken != "alert")
    done = subprocess.run([found("envoy"), "--mode", "validate", "-c", folder.path / "envoy.yaml"], check=False)
    assert done.returncode == 0


@pytest.mark.slow
@needs_parts
def test_a_scenario_on_a_real_stack_is_read_from_prometheus(tmp_path: Path) -> None:
    """Both caches die: the alert fires in each cell, and clears. How late answers are says how busy the machine is.

    So does, where the run says itself that it is void, what scrapes missed and how long an alert stays.
    """
    figure = tmp_path / "stack.json"
    command = [sys.executable, "-m", "rehearsal.stack.rehearse", "--scenario", "cache-lost", "--hosts", "1"]
    command += ["--calm", "0.15", "--again", "0"]
    command += ["--folder", str(tmp_path / "stack"), "--output", str(figure)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * PATIENCE)

    assert figure.is_file(), done.stdout + done.stderr
    row = json.loads(figure.read_text(encoding="utf-8"))["scenarios"][0]
    down = {alert["cell"]: alert for alert in row["alerts"] if alert["name"] == "SharedCacheDown"}
    assert set(down) == {"cell-1", "cell-2"}, done.stdout
    assert all(alert["first"] > FAULT for alert in down.values())
    assert row["live"]["requests"] > 200
    assert set(row["scheduled"]) == set(KINDS)
    assert all(row["scheduled"][kind]["ran"] > 0 for kind in ("gateways", "envoy", "harness")), row["scheduled"]
    if not any(complaint.startswith(VOID) for complaint in row["complaints"]):
        assert all(alert["cleared"] for alert in down.values()), done.stdout
        assert not [complaint for complaint in row["complaints"] if "no data" in complaint]
    assert "SharedCacheDown" in row["twin"]["alerts"]
    assert "cache-lost" in render("stack", json.loads(figure.read_text(encoding="utf-8")))


def figure_row(twin: dict[str, Any], alerts: Sequence[str], **more: Any) -> dict[str, Any]:
    """A scenario in the figure of which the twin says this."""
    fired = [{**asdict(SATURATION), "name": name} for name in alerts]
    live = asdict(CALM_ONES)
    row = {"scenario": "surge", "passed": True, "complaints": [], "live": live, "twin": live | twin, "alerts": fired}
    return {"scenarios": [row | more]}


WORSE = {"passed": True, "complaints": [], "live": asdict(CALM_ONES) | {"p99_ms": CALM_ONES.p99_ms / 2}, "alerts": []}


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        (figure_row({"p99_ms": 290, "goodput": 29.5, "alerts": {}}, []), ["p99 met", "plans a second met"]),
        (figure_row({"by_rule": 0.03, "alerts": {}}, []), ["points by the reader NOT met"]),
        (figure_row({"alerts": {"Saturation": 75.0, "P99": 5.0}}, ["Saturation"]),
         ["seconds of alerts NOT met (30; 35 at most; 1 fired in one of the two alone)"]),
        (figure_row({"alerts": {"Saturation": 40.0}}, ["Saturation"]), ["seconds of alerts met (30; 0 at most)"]),
        (figure_row({"alerts": {"Saturation": 40.0}}, ["Saturation", "ModelFastBurn"]),
         ["seconds of alerts NOT met (30; 0 at most; 1 fired"]),
        (figure_row({"alerts": {}}, []), ["p99 met (10.0%; 0.0% at most)"]),
        (figure_row({"alerts": {}}, [], more_runs=[WORSE]),
         ["over 2 runs of each scenario", "p99 NOT met (10.0%; 100.0% at most)"]),
    ],
)  # fmt: skip
def test_the_twin_is_held_to_its_limits_in_the_worst_of_all_runs(figure: dict[str, Any], said: list[str]) -> None:
    assert [words for words in said if words not in errors(figure)] == []


def test_a_busy_machine_alone_proves_nothing_of_what_was_left_out() -> None:
    void = f"{VOID} the stack waited longer for a processor than it ran"

    for broken in BROKEN.values():
        assert not is_red([{"complaints": []}], broken)
        assert not is_red([{"complaints": ["7 of 99 requests were lost", void]}], broken), "another fault than this one"
    assert is_red([{"complaints": ["Saturation did not fire", void]}], BROKEN["alert"])
    late = "9 answers came more than 50 ms after the deadline"
    assert is_red([{"complaints": [late]}], BROKEN["deadline"])
    assert not is_red([{"complaints": [late, void]}], BROKEN["deadline"]), "a busy machine is late by itself"


def test_what_shows_that_a_part_is_left_out_is_what_the_judge_says() -> None:
    """Otherwise a sign that is written differently would never be seen."""
    said = {name: judge(SCENARIOS[broken.scenario], replace(CALM_ONES, late=9), []) for name, broken in BROKEN.items()}

    assert all(any(BROKEN[name].sign in complaint for complaint in complaints) for name, complaints in said.items())


@pytest.mark.slow
def test_a_figure_whose_twin_is_another_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    live = {**asdict(CALM_ONES), "alerts": []}
    figure = {
        "hosts": 2,
        "hurry": 12,
        "calm_share": 0.5,
        "seconds": 20,
        "sets": list(SETS),
        "scenarios": [{"scenario": "calm", "live": live, "scheduled": dict.fromkeys(KINDS, asdict(Scheduled()))}],
    }
    path = tmp_path / "stack.json"

    assert stale(path) == 0, "nothing was rehearsed yet"
    path.write_text(json.dumps(with_twins(figure)), encoding="utf-8")
    assert stale(path) == 0
    figure["scenarios"][0]["twin"]["p99_ms"] += 1
    path.write_text(json.dumps(figure), encoding="utf-8")
    assert stale(path) == 1
    assert f"rehearsal.stack.rehearse --twin {path}" in capsys.readouterr().err
    figure["scenarios"][0]["scheduled"] = {"hosts": [13.9, 2.5]}
    path.write_text(json.dumps(figure), encoding="utf-8")
    assert stale(path) == 1
    assert "calm was rehearsed before turns were counted: peakplan rehearse live" in capsys.readouterr().err


def _prompts(characters: int) -> list[str]:
    return [f"{number:0{characters}d}" for number in range(2000)]


def test_times_are_those_of_the_figure_by_length_of_the_prompt() -> None:
    times = RecordedTimes.read()

    for prompts, quantiles in ((_prompts(10), times.quantiles[0]), (_prompts(200), times.quantiles[-1])):
        drawn = [times.seconds(prompt) for prompt in prompts]
        assert set(drawn) <= set(quantiles)
        assert sum(drawn) / len(drawn) == pytest.approx(sum(quantiles) / len(quantiles), rel=0.05)
    assert times.quantiles[0] < times.quantiles[-1]


def test_a_plan_ends_at_its_time_and_none_at_the_deadline(tmp_path: Path) -> None:
    model = RecordedModel(RecordedTimes((), ((0.01,),)), tmp_path / "slowdown")
    whole = model.generate(GenerationRequest(prompt="red shoes", grammar=""), lambda: False)
    (tmp_path / "slowdown").write_text("1000", encoding="ascii")
    request = GenerationRequest(prompt="red shoes", grammar="", deadline=time.monotonic() + 0.02)
    late = model.generate(request, lambda: False)
    cancelled = model.generate(GenerationRequest(prompt="red shoes", grammar=""), lambda: True)

    assert (whole.text, whole.stop_reason) == (" find Any", "finished")
    assert whole.seconds >= 0.01
    assert [(each.text, each.stop_reason) for each in (late, cancelled)] == [("", "cancelled")] * 2
