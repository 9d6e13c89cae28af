"""A kind head learns to point at what meets a need from states alone, and is written as the service loads it."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from service.decoding.kind_head import KindHeadWeights
from service.engines.protocol import GenerationRequest, QuestionMeaning
from service.engines.torch_engine import load
from service.planner.grammar import plan_grammar
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings.engines import EngineConfig
from service.weights.model_folder import load_kind_head
from tests.tiny_model import write_tiny_model
from tests.training.tiny_data import write_data
from training import kind_head
from training.data.own_rows import OwnMix
from training.data.written import asked_sentences
from training.kind_head import (
    Words,
    add_kind_head,
    read_words,
    train_head,
    train_kind_head,
    turned_away_of_ours,
    write_kind_head,
)
from training.needs import Need
from training.settings import KindHeadSettings, TrainingSettings

WIDTH = 8  # of what a head reads: two states of four numbers
WORDS = Words({"boot": 0, "tent": 1, "need": 2}, torch.eye(3), "0" * 16)
NEEDS = [Need(("Boots",), "need this"), Need(("Tents",), "need that")] * 200


@pytest.mark.parametrize("is_public", [True, False])
def test_every_recipe_adds_one_to_its_model(tmp_path: Path, is_public: bool) -> None:
    folder = write_tiny_model(tmp_path / "tiny")
    data = write_data(tmp_path / "data") if is_public else tmp_path
    settings = TrainingSettings(
        data=data,
        cache=tmp_path / "cache",
        work=tmp_path / "work",
        output=tmp_path / "output",
        kind_head=KindHeadSettings(needs=40, named=6, turned_away=4),
        source=None if is_public else partial(OwnMix, tmp_path / "rows", "", 0),
    )
    add_kind_head(settings, folder)

    served = load(EngineConfig(model_dir=folder, cache_dir=tmp_path, dtype="float32", kinds=True))
    question = Question.parse("keep my feet dry")
    request = GenerationRequest(prompt=render_prompt(question), grammar=plan_grammar(question, shipped_vocabulary()))
    meaning = QuestionMeaning.unpacked(served.generate(request).meaning)
    assert meaning is not None
    assert meaning.space == read_words().space
    assert len(meaning.direction) == read_words().vectors.shape[1]


def test_texts_of_ours_that_are_turned_away_ask_for_no_product() -> None:
    found = turned_away_of_ours(shipped_vocabulary())
    assert len(found) > 1000
    by_text = {text: intent for intent, text in asked_sentences()}
    assert not any(shipped_vocabulary().intents[by_text[text]].products for text in found)


def states_of(count: int) -> torch.Tensor:
    """Return states of needs in turn: the first number says which of the two, which no word does."""
    states = 0.1 * torch.randn((count, WIDTH), generator=torch.Generator().manual_seed(1))
    states[:, 0] += torch.tensor([1.0, -1.0]).repeat(count)[:count]
    return states


def test_a_head_learns_what_words_do_not_tell() -> None:
    head = train_head(states_of(len(NEEDS)), NEEDS, WORDS)

    pointed = head(states_of(2)).detach() + WORDS.vectors[2]

    assert pointed[0, 0] > pointed[0, 1]
    assert pointed[1, 1] > pointed[1, 0]


def test_it_is_written_as_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = 200

    def read(_: object, texts: list[str]) -> torch.Tensor:
        assert len(texts) == len(NEEDS) + 2 * others
        states = states_of(len(texts))
        states[len(NEEDS) :, 1] += 2.0  # what is no need
        return states

    monkeypatch.setattr(kind_head, "read_states", read)
    made = train_kind_head(None, NEEDS, ["red boots"] * others, ["hello"] * others, WORDS)  # type: ignore[arg-type]
    write_kind_head(tmp_path, made, WORDS.space)

    loaded = load_kind_head(tmp_path, WIDTH // 2)
    assert loaded is not None
    assert (loaded.space, json.loads((tmp_path / "kind_head.json").read_text())) == ("0" * 16, {"space": "0" * 16})
    assert isinstance(loaded.weights, KindHeadWeights)
    states = states_of(2)
    read_states = loaded.weights.read(states)
    torch.testing.assert_close(loaded.weights.odds(read_states), made.odds(made.read(states)), rtol=0.1, atol=0.1)
    torch.testing.assert_close(
        loaded.weights.direction(read_states), made.direction(made.read(states)), rtol=0.1, atol=0.1
    )
