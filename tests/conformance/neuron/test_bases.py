"""Every architecture over the real NxDI source, with our graph in the classes that NxDI has for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from service.engines.neuron.configuration import WEIGHT_LAYOUT, GraphKind
from service.engines.neuron.nxdi import Nxdi
from service.planner.vocabulary import FILE_NAME
from service.settings.choices import SHIPPED_MODEL
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, QUERY, hidden_size, transformers_greedy, write_base, write_heads
from tests.conformance.neuron import nxdi_on_cpu
from tests.conformance.neuron import random_models as neuron
from tests.tiny_model import plan_request

pytestmark = [
    pytest.mark.skipif(bool(nxdi_on_cpu.why_not()), reason=nxdi_on_cpu.why_not()),
    pytest.mark.filterwarnings("ignore"),  # NxDI's own, by the dozen
]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_its_plans_have_transformers_tokens(architecture: str, tmp_path: Path) -> None:
    nxdi_on_cpu.import_nxdi()
    base = write_base(tmp_path / architecture, architecture)
    heads = write_heads(tmp_path / "heads", hidden_size(base))
    beside = {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    made = import_model(base, tmp_path / "made", heads, beside=beside)
    expected = transformers_greedy(base)
    request = replace(plan_request(QUERY), max_tokens=48)

    over_nxdi, over_ours = neuron.shipped_model(made.folder, tmp_path, tmp_path / "checkpoint")
    plan = over_nxdi.generate(request)
    ours = over_ours.generate(request)

    assert plan.tokens == expected[: len(plan.tokens)]
    assert plan.tokens == ours.tokens
    assert plan.stop_reason == "finished" or len(plan.tokens) > 40


@pytest.mark.parametrize("architecture", ["llama-2", "qwen2", "qwen3", "smollm3"])
def test_every_one_is_compiled_for_its_chip(architecture: str, tmp_path: Path) -> None:
    """NxDI's own arguments for Qwen2 name no target."""
    nxdi_on_cpu.import_nxdi()
    base = write_base(tmp_path / architecture, architecture)
    arguments = neuron.neuron_arguments(neuron.TREE) | {"target": "trn1", "max_context_length": 64}

    graphs = Nxdi().model(base, arguments).models

    assert all(" --target trn1" in graph.compiler_args for graph in graphs)
    assert {graph.priority_model_idx for graph in graphs} == {None}


@pytest.mark.parametrize("kind", neuron.KINDS)
def test_a_step_chooses_the_weights_layout_where_it_is_asked_to(kind: GraphKind, tmp_path: Path) -> None:
    nxdi_on_cpu.import_nxdi()
    base = write_base(tmp_path / "base", "llama-2")
    arguments = neuron.neuron_arguments(neuron.TREE, kind) | {"max_context_length": 64, WEIGHT_LAYOUT: True}

    first = [graph.priority_model_idx for graph in Nxdi().model(base, arguments).models]

    assert first == [None, 0]
