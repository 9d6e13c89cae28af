import json

import pytest

from rehearsal.bench import neuron, nxdi_on_cpu


def test_without_nxdi_s_source_the_command_says_how_to_get_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(nxdi_on_cpu.SOURCE_VARIABLE, raising=False)

    assert neuron.main([]) == 2

    assert (
        "PEAKPLAN_NXDI_SOURCE names no NxDI source: run `peakplan bench neuron-conformance" in capsys.readouterr().err
    )


def test_a_folder_without_nxdi_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nxdi_on_cpu.SOURCE_VARIABLE, "nowhere")

    assert "nowhere holds no neuronx_distributed_inference" in nxdi_on_cpu.why_not()


def test_our_loop_had_greedy_s_tokens_from_every_graph() -> None:
    figures = json.loads(neuron.OUTPUT.read_text(encoding="utf-8"))

    ours = {name: runs for name, runs in figures["runs"].items() if name.startswith("our loop, ")}
    assert ours
    assert all(runs["identical"] == runs["of"] == neuron.MODELS for runs in ours.values())
