"""The command line: verdicts, reports that open offline, refusals in one line, the gate of a deploy."""

import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.operations.rollout import rehearsal
from rehearsal import verdicts
from rehearsal.bench.tables import render
from rehearsal.load.arrivals import poisson
from rehearsal.twin import __main__ as command
from rehearsal.twin import validation
from rehearsal.twin.work import ServiceTimesError, log_normal, measured
from tests.rehearsal.twin.test_simulation import DEV


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Forty minutes that rise and fall."""
    path = tmp_path / "short.csv"
    counts = [int(1000 + 3000 * math.exp(-(((minute - 20) / 8) ** 2))) for minute in range(40)]
    path.write_text("second,requests\n" + "".join(f"{60 * minute},{each}\n" for minute, each in enumerate(counts)))
    return path


def run(*words: str | Path | int) -> int:
    return command.main([str(word) for word in words])


def test_a_rehearsal_writes_a_report_whose_first_line_is_the_verdict(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run("run", "dev", "--traffic", trace, "--scenario", "zone-lost", "--seeds", 1, "--output", out) == 0
    assert "PASS: dev carries the forecast of short through zone-lost" in capsys.readouterr().out
    html = (out / "rehearsal.html").read_text()
    assert re.search(r"<body>\s*<h1 class=\"pass\">PASS: dev carries", html)
    assert not re.search(r"\b(src|href)\s*=|url\(", html), "it opens without a network"
    found = json.loads((out / "rehearsal.json").read_text())
    assert found["verdict"] == "PASS"
    assert {run["nodes"] for run in found["scenarios"][0]["runs"]} == {12, 24}
    kinds = {row["what"]: row["kind"] for row in found["assumptions"]}
    assert (kinds["service times"], kinds["nodes"], kinds["rule"]) == ("stated", "assumed", "measured")


def test_too_few_hosts_fail_and_the_same_command_gives_the_same_bytes(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for name in ("one", "two"):
        words = ("--traffic", trace, "--scenario", "zone-lost", "--seeds", 1, "--hosts", 2, "--output", tmp_path / name)
        assert run("run", "dev", *words, *(["--json"] if name == "two" else [])) == 1
        texts.append((tmp_path / name / "rehearsal.json").read_bytes())
    assert texts[0] == texts[1]
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == json.loads(texts[0])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "dev", "--scenario", "earthquake"], "earthquake: no such scenario"),
        (["run", "dev", "--traffic", "nowhere"], "nowhere: no such trace"),
        (["run", "no-fleet"], "no-fleet.yaml: cannot be read"),
        (["run", "dev", "--scenario", "cell-out"], "cell-out: dev has one cell"),
        (["run", "dev", "--scenario", "zone-lost", "--output", "/dev/null/nowhere"], "/dev/null/nowhere"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_names_it(
    words: list[str], said: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [] if "--traffic" in words else ["--traffic", str(trace)]
    assert run(*words, *more) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("PASS")]
    assert said in error[0]
    assert len(error) == 1


@pytest.mark.parametrize(
    ("option", "value"), [("--peak", "0"), ("--peak", "nan"), ("--peak", "much"), ("--seeds", "0"), ("--hosts", "-3")]
)
def test_a_number_that_cannot_be_is_one_line_that_names_it(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run("run", "dev", f"{option}={value}")
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line
    assert repr(value) in line


def test_a_deploy_is_refused_without_a_reason_and_the_reason_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_rehearse", lambda _: 1)
    words = ("gate", "dev", "--output", tmp_path)
    assert run(*words) == 1
    assert "refused" in capsys.readouterr().err
    assert run(*words, "--force", "   ") == 1
    assert not (tmp_path / "forced.jsonl").exists()
    assert run(*words, "--force", "the zone is gone already") == 0
    (entry,) = [json.loads(line) for line in (tmp_path / "forced.jsonl").read_text().splitlines()]
    assert entry["reason"] == "the zone is gone already"
    assert entry["fleet"] == "dev"
    monkeypatch.setattr(command, "_rehearse", lambda _: 0)
    assert run(*words) == 0


def test_make_deploy_hands_the_reason_to_the_rehearsal_that_every_deploy_begins_with() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "deploy", "FLEET=dev", "FORCE=a reason"], capture_output=True, text=True, check=True
    )
    said = " ".join(done.stdout.split())
    assert said.index("fleet preflight dev") < said.index('fleet deploy dev --force "a reason"')
    assert rehearsal("dev", None, "a reason")[1:] == ["-m", "rehearsal.twin", "gate", "dev", "--force", "a reason"]


def test_measured_service_times_are_asked_for_by_name(tmp_path: Path) -> None:
    with pytest.raises(ServiceTimesError, match="--only service_times"):
        measured(DEV, tmp_path / "none.json")
    bands = [
        {"share": 0.5, "mean_characters": 20, "quantiles_ms": [10.0] * 200},
        {"share": 0.5, "mean_characters": 60, "quantiles_ms": [20.0] * 200},
    ]
    figure = tmp_path / "serving.json"
    figure.write_text(
        json.dumps({"machine": {"processor": "a test"}, "service_times": {"requests": 9, "bands": bands}})
    )
    work = measured(DEV, figure)
    assert work.times.shape[:2] == (len(DEV.groups), 2)
    assert work.times[:, 0].mean() == pytest.approx(0.010)
    assert work.is_measured
    assert "9 plans on a test" in work.source


def test_log_normal_times_have_the_mean_and_the_tail_that_were_stated() -> None:
    times = log_normal(0.02, 0.06)
    assert times.mean() == pytest.approx(0.02)
    assert times[int(0.99 * len(times))] == pytest.approx(0.06, rel=0.02)
    with pytest.raises(ServiceTimesError, match="no log-normal"):
        log_normal(0.02, 1.0)


def test_the_live_service_plans_by_replicas_that_wait() -> None:
    live = validation._live(0.2, 2.0, 0)

    assert len(live.shots) > 20
    assert live.plans > 0, "by the model: how many, says how busy this machine is"


def test_a_validation_compares_like_with_like_and_a_lagging_generator_makes_it_void() -> None:
    """A live run made of the twin's own figures is found exact; one that is a tenth slower is found outside."""
    arrivals = poisson(50.0, 12.0, seed=1)
    shots = np.column_stack((arrivals, [validation.taken(each) for each in range(len(arrivals))]))
    live = validation.Live(0.5, 12.0, {"p50": 1.0, "p90": 1.0, "p99": 1.0}, 0.0, 50.0, 0.0001, 0.0, shots)
    twin = validation._replayed(live, 0.001, 0.001)
    same = replace(live, latencies=twin.latencies, by_rule=twin.by_rule, plans=twin.plans, queued=twin.queued)
    occupied, overhead = validation.fit(same)
    assert occupied == pytest.approx(0.001, abs=0.0001)
    assert overhead == pytest.approx(0.001, abs=0.0003)
    rows = [row for row in validation._compare(same, occupied, overhead) if "drawn" not in row["what"]]
    assert all(row["holds"] for row in rows)
    slower = replace(same, latencies={name: 1.2 * seconds for name, seconds in twin.latencies.items()})
    assert not any(
        row["holds"] for row in validation._compare(slower, occupied, overhead) if "drawn" not in row["what"]
    )
    assert not same.is_void
    assert replace(same, lag=0.003).is_void


RUN = {"plans by rule": 0.01, "failed requests": 0.002, "p99 of the worst 10 s": 90.0}


def report(fleet: str = "dev", holds: bool = True, scenarios: int = 2) -> dict[str, Any]:
    runs = [RUN, RUN | {"failed requests": 0.03}]
    found = {"holds": holds, "breaks_at": 2.5, "runs": runs, "alarms": [{"key": "saturation", "severity": "page"}]}
    return {
        "trace": "a-day", "peak": 1.0, "seeds": 1, "nodes": [12, 24], "left_out": {"no-chips": "no group"},
        "fleet": fleet, "verdict": "PASS" if holds else "FAIL",
        "scenarios": [{"name": f"fault-{number}", **found} for number in range(scenarios)],
    }  # fmt: skip


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / f"{content['fleet']}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_the_worst_run_of_each_scenario_is_shown_and_a_later_report_takes_the_place(tmp_path: Path) -> None:
    figure = tmp_path / "figure.json"
    first = [str(written(tmp_path, report())), str(written(tmp_path, report("prime-day")))]
    assert verdicts.main([*first, "--figure", str(figure)]) == 0
    assert verdicts.main([str(written(tmp_path, report(holds=False))), "--figure", str(figure)]) == 0
    shown = render("rehearsals", json.loads(figure.read_text(encoding="utf-8")))
    assert "| fault-0 | **FAIL**, 90, breaks at 2.5x, reader 0.01%, failed 0.03%, pages saturation | 90," in shown


@pytest.mark.parametrize(
    ("content", "said"),
    [(report("mine"), "does not ship"), (report(scenarios=1), "one scenario alone"), ({"fleet": "dev"}, "scenarios")],
)
def test_what_is_no_whole_rehearsal_is_refused(
    tmp_path: Path, content: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verdicts.main([str(written(tmp_path, content)), "--figure", str(tmp_path / "figure.json")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "figure.json").exists()
