"""Tests of a model's own plans for a later stage: complete texts, without facets that it is unsure of."""

import math
from pathlib import Path

import pytest

from service.planner.plan_text import parse
from service.planner.question import Question
from service.planner.vocabulary import PRODUCT_INTENTS
from tests.tiny_model import write_tiny_model
from tests.training.tiny_data import write_data
from training.data.mix import Mix
from training.own_plans import Author, OwnPlans, confident_text, read_own_plans, write_own_plans
from training.tuned import GreedyPlan, TunedModel

QUESTIONS = [Question.parse(f"{color} {thing} for men") for color in ("red", "blue") for thing in ("shoes", "lamp")]


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    folder = tmp_path_factory.mktemp("own")
    return Author(write_tiny_model(folder / "tiny", with_heads=False), folder / "cache")


def plans(model: TunedModel) -> list[tuple[Question, GreedyPlan]]:
    return [(question, plan) for question in QUESTIONS if (plan := model.greedy(question)) is not None]


def test_probabilities_of_what_was_legal_sum_to_one(author: Author) -> None:
    model = TunedModel(author.model_dir, author.cache)
    question, plan = plans(model)[0]

    for position, legal in enumerate(plan.legal):
        if legal is not None and legal.size < 100:
            assert math.isclose(sum(model.probability(plan, position, int(token)) for token in legal), 1, rel_tol=1e-4)
            assert model.probability(plan, position) == max(model.probability(plan, position, int(t)) for t in legal)
        elif legal is None:
            assert model.probability(plan, position) == 1
    assert parse(model.text(plan.tokens), question)


def test_a_facet_goes_where_its_probability_is_too_low(author: Author) -> None:
    model = TunedModel(author.model_dir, author.cache)
    some = 0
    for question, plan in plans(model):
        draft = parse(model.text(plan.tokens), question)
        everything, nothing = (confident_text(model, question, plan, least) for least in (0.0, 1.01))
        assert everything is not None
        assert nothing is not None
        assert parse(everything, question) == draft
        assert parse(nothing, question).spans == []
        assert parse(nothing, question).intent == draft.intent
        some += len(draft.spans)
    assert some, "no plan has a facet"


def test_own_plans_are_written_once_and_read_as_examples(author: Author, tmp_path: Path) -> None:
    mix, output = Mix(write_data(tmp_path / "data")), tmp_path / "own_plans.jsonl"
    own = OwnPlans(queries=24, p_min=0.0)

    write_own_plans(own, author, mix, output, seed=1, processes=2)

    written = output.read_text(encoding="utf-8")
    examples = read_own_plans(output)
    assert 1 <= len(examples) <= 24
    assert all(not example.knows_vertical and example.draft.vertical is None for example in examples)
    assert {example.origin for example in examples} == {"own"}
    assert any(example.draft.intent in PRODUCT_INTENTS for example in examples)
    assert sorted(path.name for path in tmp_path.glob("own_plans*")) == ["own_plans.jsonl"]
    write_own_plans(OwnPlans(queries=2), author, mix, output, seed=2, processes=1)
    assert output.read_text(encoding="utf-8") == written
