"""A later turn reads only what its prompt adds to an earlier one, and every token and draft is as without that."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.decoding.interruption import ForwardStoppedError
from service.engines.batch import Batch
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch.engine import TorchModel, load
from service.engines.torch.forward import build_forward
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig
from service.weights.model_folder import LoadedModel, ModelFolderError, load_model
from tests.decoding.test_prompt_tags import random_tagger
from tests.engines.torch.test_engine import write_kind_head, write_prefill_head
from tests.tiny_model import HIDDEN, write_tiny_model

WORDS = "red running shoes for women under 40 dollars nike what about in blue size 10 leather bag queen duvet".split()
ROOM = 2**20
Make = Callable[..., TorchModel]


def request(*utterances: str, caller: str = "", **more: Any) -> GenerationRequest:
    """Return what the planner asks an engine for a conversation, the plan cut short: random plans are long."""
    task = PlanTask(Question.parse(utterances[-1], utterances[:-1]), shipped_vocabulary(), caller=caller)
    return replace(task.request("medusa"), **({"max_tokens": 24} | more))


def conversation(seed: int, turns: int = 4) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 7))) for _ in range(turns)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model with everything that drafts or reads from the prompt's states."""
    folder = write_tiny_model(tmp_path_factory.mktemp("prefix"))
    write_kind_head(write_prefill_head(folder))
    found = load_model(folder, folder)
    phrases = [tuple(found.tokenizer.encode(f" {word}").ids) for word in ("find", "type", "price")]
    return replace(found, prompt_tagger=random_tagger(phrases, HIDDEN, seed=1))


@pytest.fixture(scope="module")
def make(loaded: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Make:
    try:
        forward = build_forward(loaded, "int8", tmp_path_factory.mktemp("kernels"))
    except ModelFolderError as error:
        pytest.skip(f"the int8 kernels cannot run here: {error}")

    def model(prefix_cache_bytes: int = ROOM) -> TorchModel:
        return TorchModel(loaded, forward, 384, slots=3, prefix_cache_bytes=prefix_cache_bytes)

    return model


@pytest.fixture(scope="module")
def plain(make: Make) -> TorchModel:
    return make(0)


def same(found: object, expected: GenerationResult) -> int:
    """Check that two results differ in nothing but time and what was cached; return how many tokens were."""
    assert isinstance(found, GenerationResult)
    assert replace(found, seconds=0, cached_tokens=0) == replace(expected, seconds=0)
    return found.cached_tokens


@pytest.mark.parametrize("strategy", ["medusa", "autoregressive"])
def test_a_turn_reads_only_its_new_tokens_and_changes_nothing(make: Make, plain: TorchModel, strategy: str) -> None:
    model, meanings = make(), set()
    for seed in range(3):
        utterances, before = conversation(seed), 0
        for turn in range(1, len(utterances) + 1):
            asked = request(*utterances[:turn], strategy=strategy)
            expected = plain.generate(asked)
            cached = same(model.generate(asked), expected)
            assert before <= cached < expected.prompt_tokens
            before = expected.prompt_tokens
            meanings.add(expected.meaning)
        assert same(model.generate(asked), expected) == before - 1, "the first choice needs the last token's scores"
    assert "" not in meanings
    assert model.prefixes is not None
    assert len(model.prefixes) == 3, "a conversation is kept once"


def test_a_conversation_that_forks_shares_what_was_said_before(make: Make, plain: TorchModel) -> None:
    model, told = make(), []
    for last in (("in blue",), ("under 40",), ("in blue", "queen")):
        asked = request("red shoes", *last)
        expected = plain.generate(asked)
        told.append((same(model.generate(asked), expected), expected.prompt_tokens))
    alone = plain.generate(request("red shoes")).prompt_tokens
    assert alone <= told[1][0] < told[1][1]
    assert told[2][0] == told[0][1], "the first way is still known"


def test_the_bound_holds_and_the_least_recently_used_prompt_goes(make: Make, plain: TorchModel) -> None:
    """Each under a salt of its own, so that none shares its first token with another."""
    one = make()
    one.generate(request("red shoes", caller="0"))
    assert one.prefixes is not None
    room = 3 * one.prefixes.bytes
    model = make(room)
    asked = [request("red shoes", caller=str(number)) for number in range(4)]
    cached = []
    for number in (0, 1, 2, 0, 3, 0, 1, 3):
        cached.append(same(model.generate(asked[number]), plain.generate(asked[number])) > 0)
        assert model.prefixes is not None
        assert model.prefixes.bytes <= room
    assert cached == [False, False, False, True, False, True, False, True], "3 took the place of 1"
    small = make(room // 3 - 1)
    assert [same(small.generate(asked[0]), plain.generate(asked[0])) for _ in range(2)] == [0, 0]
    assert small.prefixes is not None
    assert small.prefixes.bytes == 0, "a prompt that does not fit drives out no other"


def test_what_one_caller_asked_saves_another_nothing(make: Make) -> None:
    model = make()
    model.generate(request("red shoes", caller="a shop"))
    assert model.generate(request("red shoes", "in blue", caller="another")).cached_tokens == 0
    assert model.generate(request("red shoes", "in blue")).cached_tokens == 0
    assert model.generate(request("red shoes", "in blue", caller="a shop")).cached_tokens > 0


def test_what_is_cancelled_is_not_kept(make: Make, plain: TorchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    asked, later = request("red shoes"), request("red shoes", "in blue")
    assert model.prefixes is not None
    assert model.generate(asked, lambda: True).stop_reason == "cancelled"
    assert model.generate(replace(asked, deadline=0.0)).stop_reason == "cancelled"
    assert len(model.prefixes) == 0
    model.generate(asked)

    def stopped(_: object) -> None:
        raise ForwardStoppedError

    monkeypatch.setattr(model._llama, "forward_batch", stopped)
    assert model.generate(later).stop_reason == "cancelled", "after the known prefix was put into the slot"
    monkeypatch.undo()
    assert len(model.prefixes) == 1
    assert same(model.generate(later), plain.generate(later)) > 0


def test_a_batch_shares_the_prompts_of_all_its_slots(make: Make, plain: TorchModel) -> None:
    model = make()
    batch = Batch[tuple[int, int]](model)
    talks = [conversation(seed) for seed in range(10, 14)]
    for turn in range(1, 5):
        for number, utterances in enumerate(talks):
            batch.add((number, turn), request(*utterances[:turn]))
    ended: dict[tuple[int, int], object] = {}
    while len(batch):
        ended |= dict(batch.step())
    cached = {key: same(ended[key], plain.generate(request(*talks[key[0]][: key[1]]))) for key in ended}
    assert len(cached) == 16
    assert all(cached[number, 4] > cached[number, 1] for number in range(4))


def test_a_trace_tells_the_whole_prompt_s_cost(make: Make) -> None:
    model = make()
    model.generate(request("red shoes"))
    assert model.generate(request("red shoes", "in blue", trace=True)).cached_tokens == 0


def test_torch_s_own_kernels_keep_no_prompts_and_say_so(
    loaded: LoadedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """How torch rounds depends on how many rows a forward has."""
    model = TorchModel(loaded, build_forward(loaded, "float32", tmp_path, "torch"), 384, prefix_cache_bytes=ROOM)
    assert "no prefix cache" in caplog.text
    assert [model.generate(request("red shoes")).cached_tokens for _ in range(2)] == [0, 0]


def test_a_replica_begins_without_the_prompts_of_its_warm_up(tiny_model_dir: Path) -> None:
    config = EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="auto", prefix_cache_bytes=ROOM)
    model = load(config)
    if model.prefixes is None:
        pytest.skip("the int8 kernels cannot run here")
    assert len(model.prefixes) == 0
    assert [model.generate(request("red shoes")).cached_tokens > 0 for _ in range(2)] == [False, True]
