"""Tests of the draft models of the strategy "draft", from the model folder to the result."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from service.engines.protocol import RequestRefusedError
from service.engines.torch.engine import TorchModel, load
from service.planner.plan_text import parse
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig
from service.weights.model_folder import ModelFolderError
from tests.tiny_model import HIDDEN, QUESTIONS, plan_request, write_tiny_model


def write_exit(model_dir: Path, *, hidden: int = HIDDEN, **card: Any) -> Path:
    """Write a random early exit for a tiny model and return its folder."""
    generator = torch.Generator().manual_seed(1)
    state = {"weight": torch.randn((hidden, hidden), generator=generator) / 8, "bias": torch.zeros(hidden)}
    save_file(state, model_dir / "early_exit.safetensors")
    (model_dir / "early_exit.json").write_text(json.dumps({"layers": 1, **card}), encoding="utf-8")
    return model_dir


def load_drafting(model_dir: Path, draft: Path | None = None) -> TorchModel:
    return load(
        EngineConfig(model_dir=model_dir, cache_dir=model_dir, dtype="float32", strategy="draft", draft_model_dir=draft)
    )


@pytest.fixture(scope="module")
def drafting(tmp_path_factory: pytest.TempPathFactory) -> TorchModel:
    return load_drafting(write_exit(write_tiny_model(tmp_path_factory.mktemp("drafting")), p_min=0.0))


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory) -> TorchModel:
    folder = tmp_path_factory.mktemp("drafted")
    model, smaller = write_tiny_model(folder / "model"), write_tiny_model(folder / "smaller", seed=1, with_heads=False)
    return load_drafting(model, smaller)


@pytest.mark.parametrize("query", QUESTIONS)
@pytest.mark.parametrize("model", ["drafting", "drafted"])
def test_a_draft_writes_the_same_valid_plan(query: str, model: str, request: pytest.FixtureRequest) -> None:
    assert_same_plan(request.getfixturevalue(model), query)


def assert_same_plan(model: TorchModel, query: str) -> None:
    draft = model.generate(plan_request(query, strategy="draft", trace=True))
    greedy = model.generate(plan_request(query, strategy="autoregressive"))

    parse(draft.text, Question.parse(query), shipped_vocabulary())
    assert draft.tokens == greedy.tokens
    assert draft.forwards <= greedy.forwards
    assert draft.draft_forwards > 0 == greedy.draft_forwards
    assert len(draft.steps) == draft.forwards
    assert sum(len(step.emitted) for step in draft.steps) == draft.plan_tokens


def test_an_exit_needs_no_lens(tmp_path: Path) -> None:
    folder = write_exit(write_tiny_model(tmp_path / "bare"))
    (folder / "early_exit.safetensors").unlink()

    assert_same_plan(load_drafting(folder), "red shoes under $40")


def test_a_model_without_a_draft_says_so(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "plain")

    with pytest.raises(ModelFolderError, match=r"no early exit.*PEAKPLAN_STRATEGY=autoregressive"):
        load_drafting(folder)
    model = load(EngineConfig(model_dir=folder, cache_dir=folder, dtype="float32"))
    with pytest.raises(RequestRefusedError, match="has no draft"):
        model.generate(plan_request("red shoes", strategy="draft"))


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ({"layers": 2}, "after 2 layers is not inside a model of 2"),
        ({"layers": 0}, "layers"),
        ({"layer": 1}, "layer"),
        ({"hidden": 32}, "a lens for states of 32"),
    ],
)
def test_an_exit_that_does_not_fit_is_refused(tmp_path: Path, card: dict[str, Any], message: str) -> None:
    folder = write_exit(write_tiny_model(tmp_path / "odd"), **card)

    with pytest.raises(ModelFolderError, match=message):
        load_drafting(folder)


def test_a_file_that_is_no_lens_is_refused(tmp_path: Path) -> None:
    folder = write_exit(write_tiny_model(tmp_path / "odd"))
    save_file({"weight": torch.zeros(HIDDEN, HIDDEN)}, folder / "early_exit.safetensors")

    with pytest.raises(ModelFolderError, match=r"early_exit\.safetensors is no lens"):
        load_drafting(folder)


def test_a_smaller_model_of_other_tokens_is_refused(tmp_path: Path) -> None:
    model, smaller = write_tiny_model(tmp_path / "model"), write_tiny_model(tmp_path / "smaller", seed=1)
    path = tmp_path / "smaller" / "base" / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    first, second = (word for word in vocab if vocab[word] in (20, 21))
    vocab[first], vocab[second] = vocab[second], vocab[first]
    path.write_text(json.dumps(tokenizer), encoding="utf-8")

    with pytest.raises(ModelFolderError, match="other tokens"):
        load_drafting(model, smaller)
