"""Augmented questions keep gold labels: every example is plan text that its own question's grammar admits."""

import random
from collections.abc import Callable

import pytest

from service.planner.amounts import read_amounts
from service.planner.completion import plan_from_draft
from service.planner.plan_text import FacetSpan, parse, render
from service.planner.vocabulary import shipped_vocabulary
from training.data import augment
from training.data.examples import Example, MarkedText
from training.data.phrases import expand, misspell, phrases, split_templates, spoken_price, wrap
from training.data.rows import LabelledQuery

VOCABULARY = shipped_vocabulary()
QUERY = LabelledQuery(
    MarkedText(
        ("nike", "red", "running", "shoes", "women"),
        (FacetSpan("brand", 0, 0), FacetSpan("color", 1, 1), FacetSpan("type", 2, 3), FacetSpan("audience", 4, 4)),
    )
)

FORMS: dict[str, Callable[[random.Random], Example]] = {
    "sentence": lambda rng: augment.sentence(QUERY, rng),
    "question": lambda rng: augment.product_question(QUERY, rng),
    "price": lambda rng: augment.with_price(QUERY, rng),
    "negation": lambda rng: augment.with_negation(QUERY, "material", "leather", rng),
    "slip": lambda rng: augment.with_slip(QUERY, rng),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reads_back_as_it_was_meant(form: str) -> None:
    misread = 0
    for seed in range(150):
        example = FORMS[form](random.Random(seed))
        question = example.question()
        text = render(example.draft, question, VOCABULARY)
        draft = parse(text, question, VOCABULARY)
        price = plan_from_draft(draft, question, VOCABULARY).price

        assert [question.surface(s.first, s.last).lower() for s in draft.spans] == [
            question.surface(s.first, s.last).lower() for s in example.draft.spans
        ], (example, text)
        assert [span.refused for span in draft.spans] == [span.refused for span in example.draft.spans]
        misread += (price.min, price.max) != example.price
    assert misread <= 0.05 * 150, "nearly all prices are parsed as they were written"


def test_a_sentence_keeps_the_labels_of_its_query() -> None:
    example = augment.sentence(QUERY, random.Random(3))
    question = example.question()

    found = {span.facet: question.surface(span.first, span.last) for span in example.draft.spans}
    assert found["type"] == "running shoes"
    assert found["brand"] == "nike"


def test_a_slip_says_which_word_was_meant() -> None:
    examples = [augment.with_slip(QUERY, random.Random(seed)) for seed in range(40)]
    slips = [(example, example.slip) for example in examples if example.slip]

    assert slips
    for example, (wrong, meant) in slips:
        words = [word.text for word in example.question().words]
        assert wrong in words
        assert meant not in words
        assert meant in QUERY.text.words


def test_a_refused_value_is_marked_and_bare() -> None:
    example = augment.with_negation(QUERY, "material", "leather", random.Random(0))
    question = example.question()

    [refused] = [span for span in example.draft.spans if span.refused]
    assert (refused.facet, question.surface(refused.first, refused.last)) == ("material", "leather")


def test_spoken_prices_name_their_value() -> None:
    for seed in range(300):
        text, value = spoken_price(random.Random(seed))
        assert value in [amount.value for amount in read_amounts(text)], text


def test_templates_of_dev_and_train_are_apart() -> None:
    for templates in [*phrases()["support_keyword"].values(), phrases()["out_of_scope"]]:
        train, dev = split_templates(templates, "train"), split_templates(templates, "dev")
        assert not set(train) & set(dev)
        assert len(train) + len(dev) == len(templates)


def test_wrap_joins_punctuation_to_the_last_word() -> None:
    wrapped = wrap("do you have X?", QUERY.text)

    assert str(wrapped) == "do you have nike red running shoes women?"
    assert wrapped.spans[0] == FacetSpan("brand", 3, 3)


def test_expand_picks_one_of_each_choice() -> None:
    assert expand("{a|a} order{ now|}", random.Random(1)) in ("a order now", "a order")


def test_misspell_changes_the_word() -> None:
    assert any(misspell("running", random.Random(seed)) != "running" for seed in range(5))
