"""What rehearsals said of the fleets that ship is kept as it was said, and shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from rehearsal.bench.tables import render
from rehearsal.verdicts import main

RUN = {"plans by rule": 0.01, "failed requests": 0.002, "p99 of the worst 10 s": 90.0}
PAGE = {"key": "saturation", "severity": "page"}


def report(fleet: str = "dev", holds: bool = True, scenarios: int = 2) -> dict[str, Any]:
    worse = RUN | {"failed requests": 0.03}
    found = [
        {"name": f"fault-{n}", "holds": holds, "breaks_at": 2.5, "runs": [RUN, worse], "alarms": [PAGE]}
        for n in range(scenarios)
    ]
    verdict = "PASS" if holds else "FAIL"
    common = {"trace": "a-day", "peak": 1.0, "seeds": 1, "nodes": [12, 24], "left_out": {"no-chips": "no group"}}
    return common | {"fleet": fleet, "verdict": verdict, "scenarios": found}


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / f"{content['fleet']}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_the_worst_run_of_each_scenario_is_shown_and_a_later_report_takes_the_place(tmp_path: Path) -> None:
    figure = tmp_path / "figure.json"
    first = [str(written(tmp_path, report())), str(written(tmp_path, report("prime-day")))]
    assert main([*first, "--figure", str(figure)]) == 0
    assert main([str(written(tmp_path, report(holds=False))), "--figure", str(figure)]) == 0
    shown = render("rehearsals", json.loads(figure.read_text(encoding="utf-8")))
    assert "**FAIL** on a-day" in shown
    measured = "90, breaks at 2.5x, reader 0.01%, failed 0.03%, pages saturation"
    assert f"| fault-0 | **FAIL**, {measured} | {measured} |" in shown
    assert "Not rehearsed: no-chips." in shown


@pytest.mark.parametrize(
    ("content", "said"),
    [(report("mine"), "does not ship"), (report(scenarios=1), "one scenario alone"), ({"fleet": "dev"}, "scenarios")],
)
def test_what_is_no_whole_rehearsal_is_refused(
    tmp_path: Path, content: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(written(tmp_path, content)), "--figure", str(tmp_path / "figure.json")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "figure.json").exists()
