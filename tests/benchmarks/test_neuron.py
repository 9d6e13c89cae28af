import json

import pytest

from benchmarks import candidates, neuron, nxdi_on_cpu
from service.engines.neuron.relocation import KNOWN_SOURCES
from tests.decoding.tiny import compile_grammar, random_model


def test_without_nxdi_s_source_the_command_says_how_to_get_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(nxdi_on_cpu.SOURCE_VARIABLE, raising=False)

    assert neuron.main([]) == 2

    assert "PEAKPLAN_NXDI_SOURCE names no NxDI source: run `make neuron-conformance" in capsys.readouterr().err


def test_a_folder_without_nxdi_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nxdi_on_cpu.SOURCE_VARIABLE, "nowhere")

    assert "nowhere holds no neuronx_distributed_inference" in nxdi_on_cpu.why_not()


def test_the_figures_are_of_the_source_that_the_patch_knows() -> None:
    figures = json.loads(neuron.OUTPUT.read_text(encoding="utf-8"))

    assert KNOWN_SOURCES[figures["nxdi"]] == figures["nxdi_source"]
    ours = {name: runs for name, runs in figures["runs"].items() if name.startswith("our loop, ")}
    assert len(ours) == 3
    assert all(runs["identical"] == runs["of"] == neuron.MODELS for runs in ours.values())


def test_ranks_count_what_a_grammar_passes_over() -> None:
    """Check that rank 0 is legal where every token is; where one letter of two is legal, others may rank above."""
    model = random_model(3)

    assert candidates.ranks(model, [3, 4], compile_grammar("start: /[a-g ]{6}/"), 6) != []
    narrow = candidates.ranks(model, [3, 4], compile_grammar('start: ("f" | "g"){8}'), 8)

    assert len(narrow) == 8
    assert max(narrow) > 0
    assert all(0 <= rank < model.config.vocab_size - 1 for rank in narrow)
