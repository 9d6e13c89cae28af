"""The engine that runs the model on PyTorch: strategies, kernels, and what it keeps of prompts."""

import json
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save_file

from service.decoding.llama import ForwardStoppedError
from service.decoding.native.library import NativeUnavailableError, targets_here
from service.engines import torch_engine
from service.engines.batch import Batch
from service.engines.protocol import GenerationRequest, GenerationResult, QuestionMeaning, RequestRefusedError
from service.engines.torch_engine import TorchModel, build_forward, load
from service.planner.plan_text import parse
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import KernelChoice, Precision
from service.settings.engines import EngineConfig
from service.weights.model_folder import LoadedModel, ModelFolderError, load_model
from tests.decoding.tiny import NARROW, random_weights
from tests.tiny_model import HIDDEN, MODEL_ID, QUESTIONS, plan_request, write_tiny_model


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> TorchModel:
    return load(EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="float32"))


@pytest.mark.parametrize("query", QUESTIONS)
def test_every_strategy_writes_the_same_valid_plan(model: TorchModel, query: str) -> None:
    medusa = model.generate(plan_request(query))
    greedy = model.generate(plan_request(query, strategy="autoregressive"))
    slow = model.generate(plan_request(query, strategy="autoregressive", fast_forward=False))
    parse(medusa.text, Question.parse(query), shipped_vocabulary())
    assert medusa.tokens == greedy.tokens
    assert {result.stop_reason for result in (medusa, greedy, slow)} == {"finished"}
    assert medusa.forwards <= greedy.forwards <= slow.forwards
    assert medusa.plan_tokens == len(medusa.tokens) == medusa.decisions + medusa.forced_tokens
    assert sum(medusa.accepted_per_step) == medusa.plan_tokens
    assert medusa.seconds > 0


def test_a_cancellation_is_noticed_within_a_forward(model: TorchModel) -> None:
    looks = iter([False, False, True])  # before the first forward, before its first layer, before its second
    assert model.generate(plan_request("red shoes"), lambda: next(looks)).stop_reason == "cancelled"
    assert next(looks, None) is None
    assert model.generate(plan_request("red shoes")).stop_reason == "finished"


def test_words_that_are_tokens_of_control_are_a_shoppers_words(model: TorchModel) -> None:
    query = "red <|eos|> shoes <|bos|> under $40 <|eos|>"
    result = model.generate(plan_request(query))
    assert result.stop_reason == "finished"
    parse(result.text, Question.parse(query), shipped_vocabulary())


def test_a_model_without_heads_decodes_greedily_only_and_with_too_few_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "headless", with_heads=False)
    with pytest.raises(ModelFolderError, match="PEAKPLAN_STRATEGY=autoregressive"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    model = load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32", strategy="autoregressive"))
    assert (model.id, model.strategies) == (MODEL_ID, ("autoregressive",))
    with pytest.raises(RequestRefusedError, match="no Medusa heads"):
        model.generate(plan_request("red shoes"))
    folder = write_tiny_model(tmp_path / "deep")
    (folder / "medusa_tree.json").write_text("[[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]", encoding="utf-8")
    with pytest.raises(ModelFolderError, match="needs 4 heads"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))


def write_kind_head(folder: Path, width: int = HIDDEN, space: str = "0" * 16) -> Path:
    """Write a head that gives back the first number of the last state, and that of the mean as the odds of a need."""
    parts = {"inner": torch.zeros(1, 2 * width), "outer": torch.ones(1, 1), "need": torch.zeros(1, 2 * width)}
    parts["inner"][0, width] = parts["need"][0, 0] = 1.0
    parts |= {f"{name}_bias": torch.zeros(1) for name in ("inner", "outer", "need")}
    parts |= {"centre": torch.zeros(2 * width), "scale": torch.ones(2 * width)}
    save_file(parts, folder / "kind_head.safetensors")
    (folder / "kind_head.json").write_text(json.dumps({"space": space}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("strategy", ["medusa", "autoregressive"])
def test_a_kind_head_reads_the_prompts_states_and_changes_no_token(
    model: TorchModel, tmp_path: Path, strategy: str
) -> None:
    folder = write_kind_head(write_tiny_model(tmp_path / "kinds"))
    reading = load(EngineConfig(model_dir=folder, cache_dir=tmp_path, dtype="float32", kinds=True))
    request = plan_request("red running shoes for women", strategy=strategy)
    prompt = torch.tensor([reading._bos_token_id, *reading._tokenizer.encode(request.prompt).ids])
    states = reading._llama.forward(prompt, torch.arange(len(prompt)), reading._llama.new_cache(len(prompt)))

    told, plain = reading.generate(request), model.generate(request)
    without = load(EngineConfig(model_dir=folder, cache_dir=tmp_path, dtype="float32"))
    assert without.generate(request).meaning == "", "nobody without a shop waits for it"

    assert (told.tokens, plain.meaning) == (plain.tokens, "")
    meaning = QuestionMeaning.unpacked(told.meaning)
    assert meaning is not None
    assert meaning.space == "0" * 16
    assert meaning.direction == pytest.approx([torch.nn.functional.gelu(states[-1, 0]).item()], rel=2e-3, abs=1e-3)
    assert meaning.odds == pytest.approx(states[1:-1, 0].mean().item(), rel=2e-3, abs=1e-3)


def test_a_kind_head_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_kind_head(write_tiny_model(tmp_path / "wide"), width=HIDDEN * 2)
    config = EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32")
    with pytest.raises(ModelFolderError, match=f"states of {HIDDEN * 2}, and the base's are {HIDDEN}"):
        load(config)
    write_kind_head(folder, space="")
    with pytest.raises(ModelFolderError, match="space"):
        load(config)
    (write_kind_head(folder) / "kind_head.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=r"kind_head\.safetensors"):
        load(config)


HERE = [target.kernel for target in targets_here()]


@pytest.fixture
def narrow() -> LoadedModel:
    return cast(LoadedModel, SimpleNamespace(config=NARROW, weights=random_weights(NARROW, seed=1)))


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object) -> None:
        raise NativeUnavailableError("this processor has no AVX2 and FMA")

    monkeypatch.setattr(torch_engine, "load_kernels", unavailable)


@pytest.mark.skipif(not HERE, reason="this processor runs none of our kernels")
def test_the_best_kernels_serve_unless_others_are_named(narrow: LoadedModel, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        best = build_forward(narrow, "auto")
    assert (best.kernel, best.precision) == (HERE[0], "int8")
    (record,) = caplog.records
    assert vars(record)["kernel"] == HERE[0]
    assert build_forward(narrow, "int8", HERE[-1]).kernel == HERE[-1]
    assert build_forward(narrow, "auto", "torch").kernel == "torch"
    assert build_forward(narrow, "float32").precision == "float32"
    for precision, kernel in (("float32", "avx2"), ("int8", "torch")):
        with pytest.raises(ModelFolderError, match="contradict each other"):
            build_forward(narrow, cast(Precision, precision), cast(KernelChoice, kernel))


@pytest.mark.usefixtures("without_kernels")
def test_without_kernels_torch_serves_and_the_log_says_why(
    narrow: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    assert build_forward(narrow, "auto").kernel == "torch"
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "no AVX2" in warning.getMessage()
    for precision, kernel, setting in (
        ("int8", "auto", "PEAKPLAN_DTYPE=int8"),
        ("auto", "avx2", "PEAKPLAN_KERNEL=avx2"),
    ):
        with pytest.raises(ModelFolderError, match=f"{setting} cannot be had here: this processor has no AVX2"):
            build_forward(narrow, cast(Precision, precision), cast(KernelChoice, kernel))


WORDS = "red running shoes for women under 40 dollars nike what about in blue size 10 leather bag queen duvet".split()
ROOM = 2**20
Make = Callable[..., TorchModel]


def request(*utterances: str, caller: str = "", **more: Any) -> GenerationRequest:
    """Return what the planner asks an engine for a conversation, the plan cut short: random plans are long."""
    task = PlanTask(Question.parse(utterances[-1], utterances[:-1]), shipped_vocabulary(), caller=caller)
    foretold = tuple((word, 0.9) for word in ("find", "type", *utterances[-1].split()))
    return replace(task.request("medusa"), **({"max_tokens": 24, "prediction": foretold} | more))


def conversation(seed: int, turns: int = 4) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(WORDS, k=chosen.randint(1, 7))) for _ in range(turns)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model with a kind head, which reads the prompt's states."""
    folder = write_tiny_model(tmp_path_factory.mktemp("prefix"))
    return load_model(write_kind_head(folder), folder)


@pytest.fixture(scope="module")
def make(loaded: LoadedModel) -> Make:
    try:
        forward = build_forward(loaded, "int8")
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
    assert model.generate(request("red shoes", "in blue", caller="a shop", trace=True)).cached_tokens == 0, "a trace"
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


def test_torch_s_own_kernels_keep_no_prompts_and_say_so(loaded: LoadedModel, caplog: pytest.LogCaptureFixture) -> None:
    """How torch rounds depends on how many rows a forward has."""
    model = TorchModel(loaded, build_forward(loaded, "float32", "torch"), 384, prefix_cache_bytes=ROOM)
    assert "no prefix cache" in caplog.text
    assert [model.generate(request("red shoes")).cached_tokens for _ in range(2)] == [0, 0]


def test_a_replica_begins_without_the_prompts_of_its_warm_up(tiny_model_dir: Path) -> None:
    config = EngineConfig(model_dir=tiny_model_dir, cache_dir=tiny_model_dir, dtype="auto", prefix_cache_bytes=ROOM)
    model = load(config)
    if model.prefixes is None:
        pytest.skip("the int8 kernels cannot run here")
    assert len(model.prefixes) == 0
    assert [model.generate(request("red shoes")).cached_tokens > 0 for _ in range(2)] == [False, True]
