"""A live rehearsal: its verdict, the twin beside it, the parts left out on purpose, one scenario on a real stack."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from rehearsal.stack.beside import Costs, rehearsed
from rehearsal.stack.breaking import BROKEN, break_envoy, rules_without
from rehearsal.stack.folder import Shape
from rehearsal.stack.live import WARM_UP, all_sets, capacity, judge, make_load, questions, warm_up_load
from rehearsal.stack.monitor import Alert, Readings
from rehearsal.stack.parts_here import ROOT, found
from rehearsal.stack.rehearse import _RUN, VOID, _joined, _sets, is_red, stale, with_twins
from rehearsal.stack.replay import BOOT_SECONDS, replayed
from rehearsal.stack.scenarios import CALM, ENDS, FAULT, SCENARIOS
from rehearsal.stack.scheduling import KINDS, Scheduled, Thread, counted, grown
from rehearsal.stack.twin_metrics import buckets, quantile
from rehearsal.tools.stack_table import errors, render_stack
from rehearsal.twin.cell import CACHED, MODEL, Cell
from rehearsal.twin.cell import Load as CellLoad
from tests.processes import PATIENCE
from tests.rehearsal.stack.parts import a_folder, needs_parts

CALM_ONES = Readings(
    requests=4000, failed=0, late=0, limited=0, by_rule=0.01, hits=0.5, goodput=30,
    p25_ms=4, p50_ms=30, p99_ms=280, retried=0,
)  # fmt: skip
SETS = all_sets()
SATURATION = Alert("Saturation", "page", "cell-1", 40.0, 80.0, True)
BURN = Alert("ModelFastBurn", "page", "cell-1", 40.0, 80.0, True)


def test_a_calm_scenario_passes_and_each_harm_fails_it() -> None:
    calm = SCENARIOS["calm"]

    assert judge(calm, CALM_ONES, []) == []
    assert "were lost" in judge(calm, replace(CALM_ONES, failed=2), [])[0]
    assert "after the deadline" in judge(calm, replace(CALM_ONES, late=1), [])[0]
    assert "made by rule" in judge(calm, replace(CALM_ONES, by_rule=0.1), [])[0]
    assert judge(calm, CALM_ONES, [SATURATION]) == ["Saturation fired"]


def test_a_surge_fails_without_its_alerts_and_where_one_stays() -> None:
    surge = SCENARIOS["surge"]

    assert judge(surge, replace(CALM_ONES, by_rule=0.3), [SATURATION, BURN]) == []
    assert judge(surge, CALM_ONES, [BURN]) == ["Saturation did not fire"]
    assert judge(surge, CALM_ONES, [replace(SATURATION, cleared=False), BURN]) == ["Saturation did not clear"]


def test_a_flood_that_nobody_limits_fails() -> None:
    assert judge(SCENARIOS["flood"], CALM_ONES, []) == ["the caller that floods was not limited"]
    assert judge(SCENARIOS["flood"], replace(CALM_ONES, limited=900), []) == []


def test_arrivals_are_decided_before_the_run_and_follow_the_rates() -> None:
    load = make_load(SCENARIOS["surge"], 20.0, SETS)
    within = sum(FAULT <= shot.at < ENDS for shot in load.shots)

    assert load.shots == make_load(SCENARIOS["surge"], 20.0, SETS).shots
    assert [shot.at for shot in load.shots] == sorted(shot.at for shot in load.shots)
    assert within == pytest.approx(6 * 20 * (ENDS - FAULT), rel=0.05)
    assert len(load.shots) - within == pytest.approx(20 * (CALM - ENDS + FAULT), rel=0.1)


def test_the_twin_reads_latencies_through_envoys_buckets() -> None:
    latencies = np.zeros(4096, int)
    latencies[[int(4 * ms) for ms in (110, 111, 112, 113)]] = 1

    assert {100.0, 125.0, 350.0} <= set(buckets())
    assert quantile(latencies, 0.5) == pytest.approx(112.5)


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
    command = [
        sys.executable,
        "-m",
        "rehearsal.stack.rehearse",
        "--scenario",
        "cache-lost",
        "--hosts",
        "1",
        "--calm",
        "0.15",
        "--again",
        "0",
    ]
    command += ["--folder", str(tmp_path / "stack"), "--output", str(figure)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * PATIENCE)

    assert figure.is_file(), done.stdout + done.stderr
    row = json.loads(figure.read_text(encoding="utf-8"))["scenarios"][0]
    down = {alert["cell"]: alert for alert in row["alerts"] if alert["name"] == "SharedCacheDown"}
    assert set(down) == {"cell-1", "cell-2"}, done.stdout
    assert all(alert["first"] > FAULT for alert in down.values())
    assert row["live"]["requests"] > 200
    if not any(complaint.startswith(VOID) for complaint in row["complaints"]):
        assert all(alert["cleared"] for alert in down.values()), done.stdout
        assert not [complaint for complaint in row["complaints"] if "no data" in complaint]
    assert "SharedCacheDown" in row["twin"]["alerts"]
    assert "cache-lost" in render_stack(json.loads(figure.read_text(encoding="utf-8")))


def test_a_machine_that_lets_hosts_wait_makes_the_twin_plan_less_by_the_model() -> None:
    shape, calm = Shape(2, 12), 0.5 * capacity(4, SETS)
    surge = make_load(SCENARIOS["surge"], calm, SETS)
    costs = Costs(0.001, 0.002)

    free, busy = (rehearsed(SCENARIOS["surge"], surge, shape, costs.with_wait(wait)) for wait in (0.0, 0.01))

    assert busy.by_rule > free.by_rule + 0.01
    assert costs.with_wait(-1.0).occupied == 0.0


def _of_process(number: int, counts: Mapping[Thread, Scheduled]) -> dict[Thread, Scheduled]:
    """Leave out other children of this process, which may be servers of tests before this one."""
    return {thread: count for thread, count in counts.items() if thread[1] == number}


def test_threads_that_ran_and_waited_are_counted_by_kind() -> None:
    busy = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\nsys.stdin.read()"
    before = counted({os.getpid(): "hosts"})
    command = [sys.executable, "-c", busy]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        as_replica = grown({}, _of_process(other.pid, counted({os.getpid(): "hosts"})))["replicas"]
        as_gateway = grown({}, _of_process(other.pid, counted({other.pid: "hosts"})))["gateways"]
        other.communicate()

    assert as_replica.ran > 0.2
    assert as_replica.turns > 0
    assert as_gateway.ran >= as_replica.ran, "the leader of a host's group is its gateway"
    assert set(grown({}, before)) == set(KINDS)
    assert grown({}, before)["harness"].ran > 0, "this process is the harness, whatever its group"
    gone = {("hosts", 1, 1): Scheduled(5.0, 5.0, 5)}
    assert grown(gone, {("hosts", 2, 2): Scheduled(1.0, 0.5, 3)})["hosts"] == Scheduled(1.0, 0.5, 3)


def test_the_table_says_which_limits_the_twin_meets() -> None:
    live = asdict(CALM_ONES)
    twin = {**live, "p99_ms": 290, "goodput": 29.5, "by_rule": 0.03, "alerts": {"Saturation": 75.0, "P99": 5.0}}
    alert = {**asdict(SATURATION), "name": "Saturation"}
    row = {"scenario": "surge", "passed": True, "complaints": [], "live": live, "twin": twin, "alerts": [alert]}
    scale = {"hosts": 8, "times": 2.5, "hurry": 12, "calm_share": 0.5, "seconds": 85, "overhead_ms": 3.0}

    said = errors({**scale, "scenarios": [row]})

    assert "p99 met" in said
    assert "points by rule NOT met" in said
    assert "plans a second met" in said
    assert "seconds of alerts NOT met (30; 35 at most; 1 fired in one of the two alone)" in said


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


def test_the_limits_are_held_to_the_worst_of_several_runs() -> None:
    live = asdict(CALM_ONES)
    worse = {"passed": True, "complaints": [], "live": {**live, "p99_ms": live["p99_ms"] / 2}, "alerts": []}
    row = {"scenario": "calm", "passed": True, "complaints": [], "live": live, "alerts": []}
    row["twin"] = {**live, "alerts": {}}

    assert "p99 met (10.0%; 0.0% at most)" in errors({"scenarios": [row]})
    said = errors({"scenarios": [row | {"more_runs": [worse]}]})
    assert "over 2 runs of each scenario" in said
    assert "p99 NOT met (10.0%; 100.0% at most)" in said


def test_further_runs_stand_behind_those_of_before_and_one_that_fails_fails_the_scenario() -> None:
    run = {name: [] for name in _RUN} | {"live": {"p99_ms": 1.0}, "passed": True}
    known = {"scenario": "calm", "words": "", **run, "more_runs": [{**run, "live": {"p99_ms": 2.0}}]}
    new = {"scenario": "calm", "words": "", **run, "live": {"p99_ms": 3.0}, "passed": False, "more_runs": []}

    both = _joined(known, new)

    assert [both["live"], *(each["live"] for each in both["more_runs"])] == [{"p99_ms": ms} for ms in (1.0, 2.0, 3.0)]
    assert both["passed"] is False
    assert "scenario" not in both["more_runs"][1]


def test_a_run_that_joins_others_asks_what_they_asked(tmp_path: Path) -> None:
    figure = tmp_path / "stack.json"
    figure.write_text(json.dumps({"sets": ["german.jsonl"]}), encoding="utf-8")
    some, every = (
        Namespace(output=figure, add=False, scenario="surge"),
        Namespace(output=None, add=False, scenario="all"),
    )

    assert _sets(some) == ("german.jsonl",)
    assert _sets(Namespace(output=figure, add=True, scenario="all")) == ("german.jsonl",)
    assert _sets(every) == _sets(Namespace(output=figure, add=False, scenario="all")) == SETS


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


def test_an_alert_that_fired_live_alone_is_within_no_limit() -> None:
    live = asdict(CALM_ONES)
    alerts = [{**asdict(SATURATION), "name": name} for name in ("Saturation", "ModelFastBurn")]
    twin = {**live, "alerts": {"Saturation": SATURATION.first}}
    row = {"scenario": "surge", "passed": True, "complaints": [], "live": live, "twin": twin, "alerts": alerts}

    assert "seconds of alerts NOT met (30; 0 at most; 1 fired" in errors({"scenarios": [row]})
    assert "seconds of alerts met (30; 0 at most)" in errors({"scenarios": [row | {"alerts": alerts[:1]}]})
