"""Our loop over the real NxDI source, in its CPU mode: all architectures, int8 weights, and two ranks with shards.

`peakplan bench neuron-conformance <checkouts>` runs this.

Elsewhere it is skipped: NxDI's source is not ours to ship, and it is made for another transformers than ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.multiprocessing.spawn import ProcessRaisedException, spawn

from rehearsal.bench.neuron_loop import requests
from service.decoding.generation import RunningGeneration
from service.decoding.medusa import MedusaProposer
from service.decoding.tree import MedusaTree
from service.engines.neuron.compilation import quantise_checkpoint, quantised
from service.engines.neuron.configuration import (
    WEIGHT_LAYOUT,
    Chip,
    CompileSettings,
    ConfigurationError,
    GraphKind,
    MedusaShape,
    neuron_arguments,
)
from service.engines.neuron.hugging_face import MedusaGenerator, Unconstrained
from service.engines.neuron.nxdi import Nxdi, architecture_problems
from service.planner.vocabulary import FILE_NAME
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from service.weights.checkpoint import read_config, weight_files
from service.weights.importing import import_model
from tests.bases import ARCHITECTURES, QUERY, hidden_size, transformers_greedy, write_base, write_heads
from tests.conformance.neuron import nxdi_on_cpu
from tests.conformance.neuron import random_models as neuron
from tests.engines.neuron.fake_compiled import PUBLISHED_TREE, shared
from tests.tiny_model import plan_request

pytestmark = [
    pytest.mark.skipif(bool(nxdi_on_cpu.why_not()), reason=nxdi_on_cpu.why_not()),
    pytest.mark.filterwarnings("ignore"),  # NxDI's own, by the dozen
]
PLANS = 4
MODELS = 3


@pytest.fixture(scope="module", autouse=True)
def version() -> str:
    return nxdi_on_cpu.import_nxdi()


@pytest.fixture(scope="module")
def models(version: str, tmp_path_factory: pytest.TempPathFactory) -> list[neuron.RandomModel]:
    folder: Path = tmp_path_factory.mktemp(f"nxdi-{version}")
    return [neuron.random_model(folder / str(seed), seed) for seed in range(MODELS)]


@pytest.mark.parametrize(
    ("kind", "tree", "tokens_a_forward"),
    [("tree", neuron.TREE, 2), ("chain", neuron.TREE, 0), ("tree", PUBLISHED_TREE, 3)],
    ids=["tree", "chain", "the published tree of 64 rows"],
)
def test_our_loop_is_greedy_on_every_kind_of_graph_and_a_tree_is_worth_it(
    models: list[neuron.RandomModel], kind: GraphKind, tree: Sequence[Sequence[int]], tokens_a_forward: int
) -> None:
    for each in models:
        graph = nxdi_on_cpu.cpu_model(each.folder, neuron.neuron_arguments(tree, kind))
        tokens, forwards = neuron.ours(graph, each, tree)

        assert tokens == each.greedy
        assert len(tokens) / forwards > tokens_a_forward


def test_nxdi_s_own_loop_loses_what_it_moved(models: list[neuron.RandomModel]) -> None:
    arguments = neuron.neuron_arguments(neuron.TREE)
    found = [
        nxdi_on_cpu.stock_generate(
            nxdi_on_cpu.cpu_model(each.folder, arguments, stock=True), each.prompt, neuron.NEW_TOKENS
        )
        for each in models
    ]
    assert found != [each.greedy for each in models]


@pytest.mark.skipif(not nxdi_on_cpu.has_xla(), reason="torch-xla is not installed: peakplan bench neuron-conformance")
@pytest.mark.parametrize("kind", neuron.KINDS)
def test_xla_s_graphs_are_exact_and_write_each_cache_once(models: list[neuron.RandomModel], kind: GraphKind) -> None:
    """A step scatters its rows into the keys and values of two layers, and gathers none of them."""
    model = nxdi_on_cpu.cpu_model(models[0].folder, neuron.neuron_arguments(neuron.TREE, kind))
    operations = nxdi_on_cpu.on_xla(model)

    assert neuron.ours(model, models[0], neuron.TREE)[0] == models[0].greedy
    assert operations["scatter"] == 4


def test_the_shipped_model_plans_greedy_s_tokens_under_its_grammar(tmp_path: Path) -> None:
    """Over the real NxDI in float32, with drafts, moves and the planner's own grammar; greedy is our own forward's."""
    asked = requests(SHIPPED_MODEL, PLANS)
    nxdi, ours = neuron.shipped_model(SHIPPED_MODEL, Settings().cache_dir, tmp_path / "checkpoint")

    plans = [nxdi.generate(request) for request in asked]

    assert [each.tokens for each in plans] == [
        ours.generate(replace(request, strategy="autoregressive")).tokens for request in asked
    ]
    assert {each.stop_reason for each in plans} == {"finished"}
    assert sum(each.forwards for each in plans) / PLANS < 5


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
    prompts = [each.prompt, each.prompt[:5], [*each.prompt, *each.prompt[::-1]]]
    limits = [neuron.NEW_TOKENS // 2, neuron.NEW_TOKENS, neuron.NEW_TOKENS]
    alone = nxdi_on_cpu.cpu_model(each.folder, neuron.neuron_arguments(neuron.TREE))

    def starts(model: Any, prompt: list[int], limit: int) -> Callable[[int], RunningGeneration]:
        def start(place: int) -> RunningGeneration:
            target = neuron.target_of(model, each, neuron.TREE, sequence=place)
            proposer = MedusaProposer(target, MedusaTree.from_choices(neuron.TREE, neuron.HEADS))
            return RunningGeneration(target, proposer, prompt, Unconstrained(neuron.VOCABULARY, ()), limit)

        return start

    with torch.inference_mode():
        expected = [neuron.ours(alone, replace(each, prompt=prompt), neuron.TREE)[0] for prompt in prompts]
        model = nxdi_on_cpu.cpu_model(each.folder, neuron.neuron_arguments(neuron.TREE) | {"batch_size": 2})
        found = shared([starts(model, *one) for one in zip(prompts, limits, strict=True)], 2)

    assert expected[0] == each.greedy
    assert found == [tokens[:limit] for tokens, limit in zip(expected, limits, strict=True)]


def imported(base: Path, folder: Path) -> Path:
    """Import a base with random heads as a model folder; return it."""
    heads, beside = write_heads(folder / "heads", hidden_size(base)), {FILE_NAME: SHIPPED_MODEL / FILE_NAME}
    return import_model(base, folder / "made", heads, beside=beside).folder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_its_plans_have_transformers_tokens(architecture: str, tmp_path: Path) -> None:
    """In the classes that NxDI has for it, with our graph."""
    base = write_base(tmp_path / architecture, architecture)
    expected, made = transformers_greedy(base), imported(base, tmp_path)

    over_nxdi, over_ours = neuron.shipped_model(made, tmp_path, tmp_path / "checkpoint")
    plan, ours = (model.generate(replace(plan_request(QUERY), max_tokens=48)) for model in (over_nxdi, over_ours))

    assert plan.tokens == expected[: len(plan.tokens)]
    assert plan.tokens == ours.tokens
    assert plan.stop_reason == "finished" or len(plan.tokens) > 40


@pytest.mark.parametrize("architecture", ["llama-2", "qwen2", "qwen3", "smollm3"])
def test_every_one_is_compiled_for_its_chip(architecture: str, tmp_path: Path) -> None:
    """NxDI's own arguments for Qwen2 name no target."""
    base = write_base(tmp_path / architecture, architecture)
    arguments = neuron.neuron_arguments(neuron.TREE) | {"target": "trn1", "max_context_length": 64}

    graphs = Nxdi().model(base, arguments).models

    assert all(" --target trn1" in graph.compiler_args for graph in graphs)
    assert {graph.priority_model_idx for graph in graphs} == {None}


@pytest.mark.parametrize("kind", neuron.KINDS)
def test_a_step_chooses_the_weights_layout_where_it_is_asked_to(kind: GraphKind, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "llama-2")
    arguments = neuron.neuron_arguments(neuron.TREE, kind) | {"max_context_length": 64, WEIGHT_LAYOUT: True}

    first = [graph.priority_model_idx for graph in Nxdi().model(base, arguments).models]

    assert first == [None, 0]


BIASED = ("llama-biased", "qwen2")


def test_the_scheme_is_nxd_s_own() -> None:
    theirs = import_module("neuronx_distributed.quantization.quantization_utils")
    weight = torch.randn(48, 64) * torch.logspace(-3, 2, 48)[:, None]
    weight[5] = 0

    values, scale = quantised(weight)

    expected = theirs.quantize_per_channel_symmetric(weight, 0)
    torch.testing.assert_close(scale, theirs.extract_q_scale(expected), rtol=1e-6, atol=0)
    assert torch.equal(values, expected.int_repr())


def _multiplied_out(checkpoint: Path) -> None:
    """Replace a quantised checkpoint's weights by what they are multiplied as."""
    for file in weight_files(checkpoint):
        tensors = load_file(file)
        for name in [name for name in tensors if name.endswith(".scale")]:
            tensors[name.removesuffix("scale") + "weight"] = (
                tensors[name.removesuffix("scale") + "weight"] * tensors[name]
            )
            del tensors[name]
        save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name not in BIASED])
def test_int8_plans_are_those_of_the_weights_as_they_are_multiplied(architecture: str, tmp_path: Path) -> None:
    base = write_base(tmp_path / architecture, architecture)
    quantise_checkpoint(base)
    _multiplied_out(base)  # quantised once more it has the same int8 weights
    expected, made = transformers_greedy(base), imported(base, tmp_path)

    over_nxdi, _ = neuron.shipped_model(made, tmp_path, tmp_path / "checkpoint", "int8")
    plan = over_nxdi.generate(replace(plan_request(QUERY), max_tokens=48))

    assert plan.tokens == (expected if plan.stop_reason == "finished" else expected[:48])


@pytest.mark.parametrize("architecture", BIASED)
def test_a_bias_beside_int8_weights_cannot_be_sharded_and_is_refused(architecture: str, tmp_path: Path) -> None:
    made = imported(write_base(tmp_path / architecture, architecture), tmp_path)
    with pytest.raises(NotImplementedError):
        neuron.shipped_model(made, tmp_path, tmp_path / "checkpoint", "int8")
    (problem,) = architecture_problems(read_config(made / "base"), 64, int8=True)
    assert "--int8" in problem


RANKS = 2


def _decode(rank: int, model: neuron.RandomModel, folder: Path) -> None:
    """Decode as one rank of two, which every sum over ranks joins, and leave the tokens in `folder`."""
    store = torch.distributed.FileStore(str(folder / "store"), RANKS)  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS, store=store)
    nxdi_on_cpu.import_nxdi()
    with torch.inference_mode():
        shard = nxdi_on_cpu.cpu_model(model.folder, neuron.neuron_arguments(neuron.TREE))
        tokens, _ = neuron.ours(shard, model, neuron.TREE)
    weights = sum(parameter.numel() for parameter in shard.models[0].model.parameters())
    torch.save((tokens, weights), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("vocabulary", [neuron.VOCABULARY, neuron.VOCABULARY + 1])  # which two ranks do not divide
def test_both_ranks_add_up_to_the_whole_model_s_greedy_tokens(tmp_path: Path, vocabulary: int) -> None:
    model = neuron.random_model(tmp_path / "model", seed=1, vocabulary=vocabulary)
    whole = nxdi_on_cpu.cpu_model(model.folder, neuron.neuron_arguments(neuron.TREE))

    spawn(_decode, args=(model, tmp_path), nprocs=RANKS)  # type: ignore[no-untyped-call]

    for rank in range(RANKS):
        tokens, weights = torch.load(tmp_path / f"{rank}.pt")
        assert tokens == model.greedy
        assert weights < 0.7 * sum(parameter.numel() for parameter in whole.models[0].model.parameters())


def test_key_heads_that_do_not_divide_cannot_be_sharded_as_the_configuration_says(tmp_path: Path) -> None:
    """NxDI copies three key heads to six and then pads them as if they were three still (`gqa.py`, preshard_hook)."""
    model = neuron.random_model(tmp_path / "model", seed=1, attention=(6, 3))

    with pytest.raises(ProcessRaisedException, match="but found"):
        spawn(_decode, args=(model, tmp_path), nprocs=RANKS)  # type: ignore[no-untyped-call]

    shape = MedusaShape(neuron.HEADS, neuron.TREE, attention_heads=6, key_value_heads=3)
    with pytest.raises(ConfigurationError, match="3 key and value heads"):
        neuron_arguments(shape, CompileSettings(tensor_parallel=RANKS, max_prompt_tokens=64, max_new_tokens=48))
