import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from service.decoding.prefill_head import MOST_POSITIONS
from service.engines.meaning import QuestionMeaning
from service.engines.protocol import GenerationRequest, RequestRefusedError
from service.engines.torch.engine import TorchModel, load
from service.planner.plan_text import parse
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig
from service.weights.model_folder import ModelFolderError
from tests.tiny_model import HIDDEN, MAX_TOKENS, MODEL_ID, QUESTIONS, plan_request, write_tiny_model


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


def test_a_draft_model_is_another_server_s(model: TorchModel) -> None:
    with pytest.raises(RequestRefusedError, match="no draft model"):
        model.generate(plan_request("red shoes", strategy="draft"))


def test_what_older_folders_hold_besides_is_not_read(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "older")
    (folder / "early_exit.json").write_text("no longer read", encoding="utf-8")
    (folder / "early_exit.safetensors").write_bytes(b"nor this")

    model = load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    assert model.strategies == ("autoregressive", "medusa")


@pytest.mark.parametrize("strategy", ["medusa", "autoregressive"])
def test_a_trace_shows_every_step_in_text(model: TorchModel, strategy: str) -> None:
    result = model.generate(plan_request("red running shoes for women under 40", strategy=strategy, trace=True))
    assert len(result.steps) == result.forwards > 1
    assert "".join(text for step in result.steps for text in step.emitted) == result.text
    for step in result.steps:
        assert all(-1 <= node.parent < index for index, node in enumerate(step.nodes))
        assert 0 < step.draft_milliseconds + step.forward_milliseconds <= step.milliseconds + 0.01
    assert model.generate(plan_request("red shoes")).steps == []


def test_the_deadline_and_a_cancellation_stop_it(model: TorchModel) -> None:
    late = model.generate(plan_request("red shoes", deadline=0.0))
    left = model.generate(plan_request("red shoes"), lambda: True)
    assert (late.stop_reason, left.stop_reason) == ("cancelled", "cancelled")
    assert late.forwards == left.forwards == 0


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


def test_limits_on_tokens(model: TorchModel) -> None:
    short = model.generate(plan_request("red running shoes for women under 40", max_tokens=2))
    assert (short.stop_reason, short.plan_tokens) == ("length", 2)
    assert model.generate(plan_request("red shoes", max_tokens=10 * MAX_TOKENS)).stop_reason == "finished"


def test_what_it_will_never_answer_is_refused_without_quoting_it(model: TorchModel) -> None:
    with pytest.raises(RequestRefusedError, match="384 are the most"):
        model.generate(plan_request("👟" * 512))
    with pytest.raises(RequestRefusedError) as caught:
        model.generate(GenerationRequest(prompt="secret", grammar="start: secret"))
    assert "secret" not in str(caught.value)
    assert model.generate(plan_request("red shoes")).stop_reason == "finished"


def test_a_model_without_heads_decodes_greedily_only(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "headless", with_heads=False)
    with pytest.raises(ModelFolderError, match="PEAKPLAN_STRATEGY=autoregressive"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    model = load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32", strategy="autoregressive"))
    assert (model.id, model.strategies) == (MODEL_ID, ("autoregressive",))
    with pytest.raises(RequestRefusedError, match="no Medusa heads"):
        model.generate(plan_request("red shoes"))


def test_a_tree_that_needs_more_heads_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "deep")
    (folder / "medusa_tree.json").write_text("[[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]]", encoding="utf-8")
    with pytest.raises(ModelFolderError, match="needs 4 heads"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))


def write_prefill_head(folder: Path, width: int = HIDDEN, **card: object) -> Path:
    """Write a head that always considers plans likely to begin with " find"."""
    shapes = {"around": (1, 3 * width), "mean": (1, width), "position": (MOST_POSITIONS, 1), "bias": (1,)}
    shapes |= {"copy": (2, 1), "alone": (2, 1), "summary": (2, width), "first": (2, width), "prior": (2,)}
    state = {name: torch.zeros(shape) for name, shape in shapes.items()}
    state["prior"] = torch.tensor([20.0, 0.0])
    save_file(state, folder / "prefill_head.safetensors")
    text = json.dumps({"phrases": [" find", " ask"], "p_min": 0.9, **card})
    (folder / "prefill_head.json").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("query", QUESTIONS)
def test_a_prefill_head_drafts_with_the_prompt_and_changes_no_token(
    model: TorchModel, tmp_path: Path, query: str
) -> None:
    guessing = load(
        EngineConfig(
            model_dir=write_prefill_head(write_tiny_model(tmp_path / "guess")), cache_dir=tmp_path, dtype="float32"
        )
    )

    guessed, plain = guessing.generate(plan_request(query, trace=True)), model.generate(plan_request(query))

    assert guessed.tokens == plain.tokens
    assert guessed.steps[0].nodes[0].token_text == " find"


def test_a_prefill_head_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_prefill_head(write_tiny_model(tmp_path / "wide"), width=HIDDEN * 2)
    with pytest.raises(ModelFolderError, match=f"embeddings of {HIDDEN * 2}, and the base's are {HIDDEN}"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    write_prefill_head(folder, phrases=[" find"])
    with pytest.raises(ModelFolderError, match="1 phrases, and weights for 2"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    write_prefill_head(folder, p_min=2)
    with pytest.raises(ModelFolderError, match="p_min"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    (write_prefill_head(folder) / "prefill_head.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=r"prefill_head\.safetensors"):
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

    assert (told.tokens, plain.meaning) == (plain.tokens, "")
    meaning = QuestionMeaning.unpacked(told.meaning)
    assert meaning is not None
    assert meaning.space == "0" * 16
    assert meaning.direction == pytest.approx([torch.nn.functional.gelu(states[-1, 0]).item()], rel=2e-3, abs=1e-3)
    assert meaning.odds == pytest.approx(states[1:-1, 0].mean().item(), rel=2e-3, abs=1e-3)


def test_nobody_without_a_shop_waits_for_a_kind_head(tmp_path: Path) -> None:
    folder = write_kind_head(write_tiny_model(tmp_path / "kinds"))
    told = load(EngineConfig(model_dir=folder, cache_dir=tmp_path, dtype="float32")).generate(plan_request("red shoes"))
    assert told.meaning == ""


def test_a_kind_head_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    folder = write_kind_head(write_tiny_model(tmp_path / "wide"), width=HIDDEN * 2)
    with pytest.raises(ModelFolderError, match=f"states of {HIDDEN * 2}, and the base's are {HIDDEN}"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    write_kind_head(folder, space="")
    with pytest.raises(ModelFolderError, match="space"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    (write_kind_head(folder) / "kind_head.safetensors").unlink()
    with pytest.raises(ModelFolderError, match=r"kind_head\.safetensors"):
        load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
