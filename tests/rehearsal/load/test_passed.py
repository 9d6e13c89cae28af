"""Plans that pass under load: what is scored, what counts as late, and chance beside worth."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rehearsal.bench.serving_tables import render_passed
from rehearsal.load.client import Sample
from rehearsal.load.passed import ARMS, Answers, _beside
from service.planner.question import Question
from tests.server_process import REPOSITORY
from training.data.cases import Case

CASES = [Case("find", Question.parse(f"red shoes {number}"), (["sort", "newest"],)) for number in range(40)]


def holds(plan: dict[str, Any], wanted: list[Any]) -> bool:
    return bool(plan[wanted[0]] == wanted[1])


def sample(sort: str, latency: float = 0.1, source: str = "model", status: int = 200) -> Sample:
    body = {"source": source, "timing_ms": {"model": 40.0, "queue": 0.5}, "plan": {"sort": sort}}
    return Sample(at=1.0, sent=1.0, ended=1.0 + latency, deadline=0.3, status=status, body=json.dumps(body).encode())


def answered(*samples: Sample) -> Answers:
    answers = Answers(seconds=2.0)
    answers.add(samples, range(len(samples)), CASES, holds)
    return answers


def test_an_answer_passes_if_every_assertion_holds_and_it_came_in_time() -> None:
    summary = answered(
        sample("newest"),
        sample("newest", source="fallback"),
        sample("relevance"),
        sample("newest", latency=0.31),
        sample("newest", latency=0.36, source="fallback"),
        sample("newest", status=503),
    ).summary
    assert (summary["passed_share"], summary["passed_per_second"]) == (0.3333, 1.0)
    assert (summary["model_share"], summary["model_plans_in_time_per_second"]) == (0.5, 1.0)
    assert summary["past_deadline"] == 2


def test_chance_and_worth_are_compared_on_the_same_requests() -> None:
    rng = random.Random(1)
    chance = answered(*(sample("newest" if rng.random() < 0.5 else "relevance") for _ in CASES))
    worth = answered(*(sample("newest") for _ in CASES))
    (more, low, high) = _beside({"chance": chance, "worth": worth})["more_by_worth"]
    assert more == pytest.approx(1 - chance.summary["passed_share"], abs=1e-4)
    assert 0 < low < more < high
    assert _beside({"chance": worth, "worth": worth})["more_by_worth"] == [0.0, 0.0, 0.0]
    load = {"times": 10, "chance": chance.summary, "worth": worth.summary, "more_by_worth": [more, low, high]}
    machine = {"cores": 2, "processor": "a processor"}
    figure = {"command": "x", "machine": machine, "cases": 40, "sets": ["a.jsonl"], "capacity": 9.5, "seconds": 8}
    assert f"| 100.0% | {100 * more:+.1f} points" in render_passed({**figure, "loads": [load]})


def test_the_services_differ_in_who_gets_the_model_alone() -> None:
    assert ARMS == {"chance": {"PEAKPLAN_ROUTING": "off"}, "worth": {"PEAKPLAN_ROUTING": "overload"}}


@pytest.mark.slow
def test_cases_are_replayed_at_two_services_in_turns(tmp_path: Path) -> None:
    check, cases, figure = tmp_path / "check.py", tmp_path / "cases.jsonl", tmp_path / "passed.json"
    check.write_text("def holds(plan, wanted):\n    return plan['intent'] == wanted[1]\n", encoding="utf-8")
    rows = [{"class": "find", "query": f"red shoes {n}", "expect": [["intent", "find_product"]]} for n in range(30)]
    cases.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "rehearsal.load.passed", cases, "--check", check, "--output", figure]
    options = ["--times", 1, 2, "--turns", 2, "--seconds", 1, "--module", "tests.fake_server"]
    done = subprocess.run(
        [*map(str, command), *map(str, options)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(figure.read_text(encoding="utf-8"))
    assert [load["times"] for load in found["loads"]] == [1.0, 2.0]
    for load in found["loads"]:
        assert load["chance"]["requests"] == load["worth"]["requests"] > 10
        assert load["chance"]["passed_share"] > 0.5
    assert "more by worth" in done.stdout
