"""The shipped model behind the forward contract, and in batches: what the engine's loop needs of a device."""

import json
from collections.abc import Iterator

import pytest
import torch

from rehearsal.bench import batching, neuron_loop
from service.settings import Settings

pytestmark = pytest.mark.slow
QUESTIONS = 150
IN_BATCHES, BATCH = 60, 8


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_plan_takes_few_forwards_and_none_is_lost_or_other_than_greedy_s() -> None:
    settings = Settings()
    tree = json.loads((settings.model_dir / "medusa_tree.json").read_text(encoding="utf-8"))

    run = neuron_loop.measure(settings.model_dir, settings.cache_dir, len(tree) + 1, QUESTIONS, compare=True)

    assert run["forwards"] < run["greedy_forwards"] / 2
    assert run["finished"] == run["identical_to_greedy"] == QUESTIONS


def test_rows_beyond_the_tree_s_copy_the_question_and_save_forwards() -> None:
    settings = Settings()

    tree = json.loads((settings.model_dir / "medusa_tree.json").read_text(encoding="utf-8"))

    run = neuron_loop.measure(settings.model_dir, settings.cache_dir, 32, 60, compare=True)
    alone = neuron_loop.measure(settings.model_dir, settings.cache_dir, len(tree) + 1, 60, compare=False)

    assert run["forwards"] < alone["forwards"]
    assert run["finished"] == run["identical_to_greedy"] == 60


def test_plans_of_a_batch_are_those_of_the_model_alone() -> None:
    settings = Settings()
    model = batching.load(settings.model_dir, settings.cache_dir, "float32", "cpu", BATCH)
    asked = neuron_loop.requests(settings.model_dir, IN_BATCHES)

    found = batching.run(model, asked, BATCH)

    assert [each.tokens for each in found.results] == [model.generate(request).tokens for request in asked]
