from pathlib import Path

import pytest

from rehearsal.bench import batching, neuron_loop
from rehearsal.bench.serving_tables import render_neuron_loop
from tests.tiny_model import QUESTIONS, plan_request

MACHINE = {"processor": "a processor", "cores": 2, "torch": "2"}


def test_every_size_plans_every_question_with_the_tokens_of_the_model_alone(tiny_model_dir: Path) -> None:
    model = batching.load(tiny_model_dir, tiny_model_dir, "float32", "cpu", slots=3)

    rows = batching.figures(model, [plan_request(query) for query in QUESTIONS], (1, 3))

    assert [(row["batch"], row["identical_to_alone"]) for row in rows] == [(1, len(QUESTIONS)), (3, len(QUESTIONS))]
    assert all(row["plans_per_second"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in rows)


def test_the_emulated_loop_s_tokens_are_greedy_s(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neuron_loop, "requests", lambda *_: [plan_request(query) for query in QUESTIONS])

    run = neuron_loop.measure(tiny_model_dir, tiny_model_dir, 24, len(QUESTIONS), compare=True)

    assert run["finished"] == run["identical_to_greedy"] == len(QUESTIONS)
    table = render_neuron_loop({"command": "make", "machine": MACHINE, "runs": {"24": run}})
    assert f"| 24 | {len(QUESTIONS)} | {run['forwards']} " in table
