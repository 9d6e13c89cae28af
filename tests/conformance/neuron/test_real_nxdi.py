"""Our loop over the real NxDI source, in its CPU mode: `peakplan bench neuron-conformance <checkouts>` runs this.

Elsewhere it is skipped: NxDI's source is not ours to ship, and it is made for another transformers than ours.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rehearsal.bench.neuron_loop import requests
from service.decoding.generation import RunningGeneration, step
from service.decoding.medusa import MedusaProposer
from service.decoding.tree import MedusaTree
from service.engines.neuron.configuration import Chip, CompileSettings, MedusaShape, neuron_arguments
from service.engines.neuron.hugging_face import MedusaGenerator, Unconstrained
from service.engines.neuron.nxdi import Nxdi
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from tests.conformance.neuron import nxdi_on_cpu
from tests.conformance.neuron import random_models as neuron
from tests.engines.neuron import published_tree

pytestmark = [
    pytest.mark.skipif(bool(nxdi_on_cpu.why_not()), reason=nxdi_on_cpu.why_not()),
    pytest.mark.filterwarnings("ignore"),  # NxDI's own, by the dozen
]
PLANS = 4
MODELS = 3


@pytest.fixture(scope="module")
def version() -> str:
    return nxdi_on_cpu.import_nxdi()


@pytest.fixture(scope="module")
def models(version: str, tmp_path_factory: pytest.TempPathFactory) -> list[neuron.RandomModel]:
    folder: Path = tmp_path_factory.mktemp(f"nxdi-{version}")
    return [neuron.random_model(folder / str(seed), seed) for seed in range(MODELS)]


@pytest.fixture(scope="module")
def runs(models: list[neuron.RandomModel]) -> dict[str, neuron.Runs]:
    return neuron.compare(models)


@pytest.mark.parametrize("graph", neuron.KINDS)
def test_our_loop_is_greedy_on_every_kind_of_graph(runs: dict[str, neuron.Runs], graph: str) -> None:
    assert (runs[f"our loop, {graph}"].identical, runs[f"our loop, {graph}"].of) == (MODELS, MODELS)


def test_the_tree_is_worth_it(runs: dict[str, neuron.Runs]) -> None:
    assert min(runs["our loop, tree"].tokens_per_forward) > 2


def test_the_published_tree_of_64_rows_is_greedy_in_few_steps(models: list[neuron.RandomModel]) -> None:
    """Check 4 heads and 63 nodes of depth 4, compiled with the positions that fit them."""
    for each in models:
        model = nxdi_on_cpu.cpu_model(each.folder, neuron.neuron_arguments(published_tree.CHOICES))
        tokens, forwards = neuron.ours(model, each, published_tree.CHOICES)

        assert tokens == each.greedy
        assert len(tokens) / forwards > 3


def test_nxdi_s_own_loop_loses_what_it_moved(runs: dict[str, neuron.Runs]) -> None:
    assert runs["NxDI's loop, tree"].identical < MODELS


@pytest.mark.skipif(not nxdi_on_cpu.has_xla(), reason="torch-xla is not installed: peakplan bench neuron-conformance")
def test_xla_s_graphs_are_exact_and_write_each_cache_once(models: list[neuron.RandomModel]) -> None:
    """A step scatters its rows into the keys and values of two layers, and gathers none of them."""
    runs, operations = neuron.compare_on_xla(models[:1])

    assert [each.identical for each in runs.values()] == [1, 1]
    for counts in operations.values():
        assert counts["scatter"] == 4


def test_the_shipped_model_plans_greedy_s_tokens_under_its_grammar(version: str) -> None:
    """Over the real NxDI in float32, with drafts, moves and the planner's own grammar; greedy is our own forward's."""
    assert version
    asked = requests(SHIPPED_MODEL, PLANS)

    found = neuron.plan_shipped(SHIPPED_MODEL, Settings().cache_dir, asked)

    assert found["identical_to_greedy"] == found["finished"] == found["questions"] == PLANS
    assert found["forwards"] < 5


def test_scripts_that_call_generate_get_greedy_s_tokens(models: list[neuron.RandomModel]) -> None:
    each = models[0]
    model: Any = nxdi_on_cpu.cpu_model(each.folder, neuron.neuron_arguments(neuron.TREE))
    # CPU mode wants prompts as long as the cache, which the real configuration must not have.
    model.neuron_config.max_context_length = neuron.SEQUENCE // 4
    model.neuron_config.context_encoding_buckets = [neuron.SEQUENCE // 4]

    with torch.inference_mode():
        target = neuron.target_of(model, each, neuron.TREE)
        output = MedusaGenerator(model, target._lm_head, target._heads).generate(
            torch.tensor([each.prompt]), assistant_model=model, max_new_tokens=neuron.NEW_TOKENS
        )

    assert output.tolist() == [each.prompt + each.greedy]


@pytest.mark.parametrize("chip", ["inf2", "trn1"])
def test_every_graph_is_compiled_for_its_chip_and_prompts_go_to_the_shortest(
    models: list[neuron.RandomModel], chip: Chip
) -> None:
    settings = CompileSettings(
        chip=chip, tensor_parallel=1, max_prompt_tokens=384, max_new_tokens=neuron.NEW_TOKENS, dtype="float32"
    )
    shape = MedusaShape(neuron.HEADS, neuron.TREE)

    prompts, trees = Nxdi().model(models[0].folder, neuron_arguments(shape, settings)).models

    assert all(f" --target {chip} " in graph.compiler_args for graph in (prompts, trees))
    assert [_bucket(prompts, length) for length in (11, 27, 31, 33, 100, 384)] == [32, 32, 32, 64, 128, 384]
    assert trees.neuron_config.buckets == [512]


def _bucket(wrapper: Any, prompt_tokens: int) -> int:
    """Return the length that NxDI pads a prompt of so many tokens to."""
    ones = torch.ones(1, prompt_tokens, dtype=torch.int32)
    return int(wrapper.pad_inputs(ones, ones, ones, torch.zeros(1))[0].shape[1])


def test_angles_stay_float32_where_weights_are_bfloat16(models: list[neuron.RandomModel]) -> None:
    """NxDI casts every buffer of a loaded model; Hugging Face's frequencies, which it takes for Medusa, are one."""
    arguments = neuron.neuron_arguments(neuron.TREE) | {"torch_dtype": "bfloat16", "on_cpu": True}
    nxdi_on_cpu.cpu_model(models[0].folder, neuron.neuron_arguments(neuron.TREE))  # makes the process group
    far = torch.tensor([[400]])

    instance = Nxdi().model(models[0].folder, arguments).models[1].get_model_instance()
    instance.load_module()
    rope = instance.module.layers[0].self_attn.rotary_emb
    width = neuron.HIDDEN // 4
    cos, sin = rope(torch.zeros(1, 1, 1, width), far)

    angles = 400 / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    found = torch.atan2(sin.double(), cos.double())[0, 0, : width // 2]
    difference = torch.remainder(found - angles + torch.pi, 2 * torch.pi) - torch.pi
    assert instance.module.embed_tokens.weight.dtype is torch.bfloat16
    assert difference.abs().max() < 1e-4


@pytest.mark.parametrize("changes", [{"batch_size": 2}, {"max_prompt_tokens": 13, "max_new_tokens": 48}])
def test_no_graph_of_prompts_is_made_that_nothing_uses(
    models: list[neuron.RandomModel], changes: dict[str, int]
) -> None:
    settings = CompileSettings(max_prompt_tokens=384, max_new_tokens=48, speculation_length=48, dtype="float32")
    shape = MedusaShape(neuron.HEADS, neuron.TREE)

    made = Nxdi().model(models[0].folder, neuron_arguments(shape, settings.model_copy(update=changes))).models

    assert [graph.tag for graph in made] == ["medusa_speculation_model"]


def test_our_graph_holds_no_product_with_the_vocabulary(models: list[neuron.RandomModel]) -> None:
    graph = nxdi_on_cpu.cpu_model(models[0].folder, neuron.neuron_arguments(neuron.TREE)).models[0].model

    wide = [name for name, weight in graph.named_parameters() if neuron.VOCABULARY in weight.shape]
    assert wide == ["embed_tokens.weight"]


def test_sequences_of_one_graph_share_its_steps(models: list[neuron.RandomModel]) -> None:
    """Check three sequences in two places of a batch, the third where the first has ended: each has its own tokens."""
    each = models[0]
    arguments = neuron.neuron_arguments(neuron.TREE) | {"batch_size": 2}
    prompts = [each.prompt, each.prompt[:5], [*each.prompt, *each.prompt[::-1]]]
    tree = MedusaTree.from_choices(neuron.TREE, neuron.HEADS)
    alone = nxdi_on_cpu.cpu_model(each.folder, neuron.neuron_arguments(neuron.TREE))
    with torch.inference_mode():
        expected = [neuron.ours(alone, replace(each, prompt=prompt), neuron.TREE)[0] for prompt in prompts]
        model = nxdi_on_cpu.cpu_model(each.folder, arguments)
        found: dict[int, list[int]] = {}
        slots: dict[int, tuple[int, RunningGeneration]] = {}
        while len(found) < len(prompts):
            for place in {0, 1} - set(slots):
                if len(found) + len(slots) < len(prompts):
                    number = len(found) + len(slots)
                    target = neuron.target_of(model, each, neuron.TREE, sequence=place)
                    constraint = Unconstrained(neuron.VOCABULARY, ())
                    limit = neuron.NEW_TOKENS // 2 if number == 0 else neuron.NEW_TOKENS
                    running = RunningGeneration(
                        target, MedusaProposer(target, tree), prompts[number], constraint, limit
                    )
                    slots[place] = number, running
            for place in [place for place, (_, running) in slots.items() if not running.goes_on()]:
                number, running = slots.pop(place)
                found[number] = running.result().tokens
            step([running for _, running in slots.values()])

    assert expected[0] == each.greedy
    assert found == {0: expected[0][: neuron.NEW_TOKENS // 2], 1: expected[1], 2: expected[2]}
