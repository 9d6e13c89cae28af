import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.fleet.instances import catalogue
from infra.fleet.rules import MEDUSA_RANKS
from service.decoding.tree import MedusaTree
from service.engines.neuron.configuration import (
    CANDIDATES,
    TENSOR_PARALLEL,
    WEIGHT_LAYOUT,
    Chip,
    CompileSettings,
    ConfigurationError,
    MedusaShape,
    arguments_of,
    chain,
    forward_shape,
    neuron_arguments,
)

OURS = Path(__file__).parents[3] / "models" / "qp-smollm2-135m"
TREE = ((0,), (1,), (0, 0), (0, 1), (0, 0, 0))
MODEL = MedusaShape(num_heads=4, tree=TREE)
SETTINGS = CompileSettings(max_prompt_tokens=384, max_new_tokens=96)


def problems(model: MedusaShape = MODEL, **changes: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        neuron_arguments(model, SETTINGS.model_copy(update=changes))
    return str(caught.value)


def test_the_arguments_are_those_that_nxdi_reads() -> None:
    assert neuron_arguments(MODEL, SETTINGS) == {
        "target": "inf2",
        "batch_size": 1,
        "tp_degree": 1,
        "torch_dtype": "bfloat16",
        "padding_side": "right",
        "seq_len": 512,
        "max_length": 512,
        "max_context_length": 384,
        "max_new_tokens": 96,
        "enable_bucketing": True,
        "context_encoding_buckets": [32, 64, 128, 384],
        "is_medusa": True,
        "medusa_speculation_length": 6,
        "num_medusa_heads": 4,
        "medusa_tree": [[0], [1], [0, 0], [0, 1], [0, 0, 0]],
        "on_device_sampling_config": {"top_k": 10, "global_topk": 10},
        "save_sharded_checkpoint": True,
    }


def test_the_plain_graph_has_the_chain_s_rows_and_nothing_of_medusa_s() -> None:
    arguments = neuron_arguments(MODEL, SETTINGS.model_copy(update={"graph": "chain", "speculation_length": 13}))

    assert (arguments["speculation_length"], arguments["medusa_tree"]) == (13, [[0], [0] * 2, [0] * 3, [0] * 4])
    assert arguments["token_generation_buckets"] == [512], "one graph of all positions"
    assert not {"is_medusa", "medusa_speculation_length", "on_device_sampling_config"} & arguments.keys()
    assert forward_shape(arguments).is_chain
    assert forward_shape(arguments).rows == 13
    assert not forward_shape(neuron_arguments(MODEL, SETTINGS)).is_chain


def test_the_weights_layout_is_chosen_on_request_alone() -> None:
    assert WEIGHT_LAYOUT not in neuron_arguments(MODEL, SETTINGS)
    assert neuron_arguments(MODEL, SETTINGS.model_copy(update={"weight_layout": True}))[WEIGHT_LAYOUT]


@pytest.mark.parametrize("chip", TENSOR_PARALLEL)
def test_the_compiler_s_target_is_the_chip(chip: Chip) -> None:
    """NxDI passes --target from this argument alone; without it trn1's artifacts would be the baking host's inf2."""
    assert neuron_arguments(MODEL, SETTINGS.model_copy(update={"chip": chip}))["target"] == chip


@pytest.mark.parametrize(
    ("longest", "rows", "buckets"),
    [(384, 13, [32, 64, 128, 384]), (384, 48, [64, 128, 384]), (100, 13, [32, 64, 100]), (20, 13, [20])],
    ids=["ordinary", "none that a tree holds", "none beyond the longest", "one"],
)
def test_short_prompts_have_short_graphs(longest: int, rows: int, buckets: list[int]) -> None:
    changes = {"max_prompt_tokens": longest, "speculation_length": rows, "sequence_length": 640}
    arguments = neuron_arguments(MODEL, SETTINGS.model_copy(update=changes))

    assert (arguments["context_encoding_buckets"], arguments["enable_bucketing"]) == (buckets, len(buckets) > 1)


def test_the_shipped_model_compiles_as_the_fleets_have_it() -> None:
    tree = json.loads((OURS / "medusa_tree.json").read_text(encoding="utf-8"))

    arguments = neuron_arguments(MedusaShape(4, tuple(map(tuple, tree))), SETTINGS)

    assert arguments["medusa_speculation_length"] == len(tree) + 1
    assert forward_shape(arguments).needed(384, 96) <= arguments["seq_len"]


def test_numbers_that_the_fleet_checks_too_are_the_same() -> None:
    assert catalogue().tensor_parallel == TENSOR_PARALLEL
    assert MEDUSA_RANKS == CANDIDATES


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (MedusaShape(0, TREE), {}, "num_medusa_heads 0"),
        (MedusaShape(4, ()), {}, "medusa_tree is empty"),
        (MedusaShape(2, TREE), {}, "needs 3 heads, and there are 2"),
        (MedusaShape(4, ((0,), (0,))), {}, "listed twice"),
        (MedusaShape(4, ((1, 0),)), {}, "hangs from [1], which is not a choice"),
        (MedusaShape(4, ((0,), (10,))), {}, "asks for rank 10: a head makes 10 guesses"),
        (
            replace(MODEL, attention_heads=9, key_value_heads=3),
            {"tensor_parallel": 2},
            "3 key and value heads, nor they",
        ),
        (MODEL, {"tensor_parallel": 16}, "tensor_parallel 16 is not possible on inf2: choose one of 1, 2, 4, 8, 24"),
        (MODEL, {"chip": "trn1", "tensor_parallel": 4}, "not possible on trn1"),
        (MODEL, {"sequence_length": 490}, "may touch 491 cache positions"),
        (MODEL, {"speculation_length": 5}, "5 rows a step: the tree's 5 nodes and the root need 6"),
        (MODEL, {"context_buckets": (6, 384)}, "context bucket 6 equals the rows of a step"),
        (MODEL, {"context_buckets": (5, 384)}, "context bucket 5: prompts of 6 tokens and less are read as trees"),
        (MODEL, {"context_buckets": (64, 128)}, "the largest context bucket is 128, and max_context_length 384"),
    ],
)
def test_what_nxdi_would_take_silently_is_refused(model: MedusaShape, changes: dict[str, Any], words: str) -> None:
    assert words in problems(model, **changes)


def test_the_cache_bound_is_met_to_the_position() -> None:
    """Check the sum of prompt + answer + heads + 1 + rows: 384 + 96 + 4 + 1 + 6."""
    assert neuron_arguments(MODEL, SETTINGS.model_copy(update={"sequence_length": 491}))["seq_len"] == 491


def test_the_seed_s_tree_of_64_rows_has_the_positions_that_it_needs() -> None:
    """Check 384 + 96 + 4 + 1 + 64 = 549 in the next multiple of 64; 512 were refused."""
    depths = [(rank,) * depth for depth in range(1, 5) for rank in range(10)]
    model = MedusaShape(num_heads=4, tree=tuple(depths))
    rows_of_64 = SETTINGS.model_copy(update={"speculation_length": 64})

    arguments = neuron_arguments(model, rows_of_64)

    assert (arguments["medusa_speculation_length"], arguments["seq_len"], arguments["max_length"]) == (64, 576, 576)
    assert neuron_arguments(MODEL, SETTINGS)["seq_len"] == 512, "more only where it is needed"
    with pytest.raises(ConfigurationError, match="may touch 549"):
        neuron_arguments(model, rows_of_64.model_copy(update={"sequence_length": 512}))


def test_everything_wrong_is_said_at_once() -> None:
    found = problems(MedusaShape(2, TREE), sequence_length=400, tensor_parallel=16)

    assert all(words in found for words in ("16 is not possible", "needs 3 heads", "may touch"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_medusa": False}, "one of is_medusa and speculation_length"),
        ({"speculation_length": 6}, "one of is_medusa and speculation_length"),
        ({"is_continuous_batching": True}, "is_continuous_batching is on"),
        ({"async_mode": True}, "async_mode is on"),
        ({"token_generation_batches": [1, 2]}, "token_generation_batches is on"),
        ({"padding_side": "left"}, "padding_side left"),
        ({"k_cache_transposed": True}, "k_cache_transposed is on"),
        ({"on_device_sampling_config": None}, "on_device_sampling_config is missing"),
        ({"on_device_sampling_config": SimpleNamespace(top_k=1)}, "global_topk 256"),
        ({"on_device_sampling_config": SimpleNamespace(top_k=10, global_topk=64)}, "global_topk 64"),
        ({"max_new_tokens": None}, "max_new_tokens must be given"),
    ],
)
def test_somebody_s_own_neuron_config_is_held_to_the_same(changes: dict[str, Any], words: str) -> None:
    config = SimpleNamespace(**{**neuron_arguments(MODEL, SETTINGS), **changes})

    with pytest.raises(ConfigurationError, match=words):
        forward_shape(arguments_of(config))


def test_a_chain_is_the_best_guess_of_each_head() -> None:
    assert chain(3) == ((0,), (0, 0), (0, 0, 0))
    assert MedusaTree.from_choices(chain(3), 3).parents == (-1, 0, 1, 2)
