from pathlib import Path

import pytest

from rehearsal.bench import neuron_loop
from rehearsal.bench.tables import render
from tests.conformance.neuron import nxdi_on_cpu
from tests.tiny_model import QUESTIONS, plan_request


def test_without_nxdi_s_source_the_reason_says_how_to_get_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nxdi_on_cpu.SOURCE_VARIABLE, raising=False)
    assert "PEAKPLAN_NXDI_SOURCE names no NxDI source: run `peakplan bench neuron-conformance" in nxdi_on_cpu.why_not()

    monkeypatch.setenv(nxdi_on_cpu.SOURCE_VARIABLE, "nowhere")
    assert "nowhere holds no neuronx_distributed_inference" in nxdi_on_cpu.why_not()


def test_the_emulated_loop_s_tokens_are_greedy_s(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neuron_loop, "requests", lambda *_: [plan_request(query) for query in QUESTIONS])

    run = neuron_loop.measure(tiny_model_dir, tiny_model_dir, 24, len(QUESTIONS), compare=True)

    assert run["finished"] == run["identical_to_greedy"] == len(QUESTIONS)
    machine = {"processor": "a processor", "cores": 2, "torch": "2"}
    table = render("neuron_loop", {"command": "make", "machine": machine, "runs": {"24": run}})
    assert f"| 24 | {run['forwards']} " in table
    assert f" | {len(QUESTIONS)} of {len(QUESTIONS)} |" in table
