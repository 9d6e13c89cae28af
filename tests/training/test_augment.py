"""Augmented questions keep gold labels: every example is plan text that its own question's grammar admits."""

import random
from collections.abc import Callable

import pytest

from service.planner.fallback.reading.amounts import Amounts
from service.planner.fallback.reading.en.data import PHRASES
from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.tokens import Words
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
VALUES = {facet: ["pale green"] for facet in phrases()["follow_ups"]}

FORMS: dict[str, Callable[[random.Random], Example]] = {
    "sentence": lambda rng: augment.sentence(QUERY, rng),
    "question": lambda rng: augment.product_question(QUERY, rng),
    "price": lambda rng: augment.with_price(QUERY, rng),
    "negation": lambda rng: augment.with_negation(QUERY, "material", "leather", rng),
    "slip": lambda rng: augment.with_slip(QUERY, rng),
    "follow_up": lambda rng: augment.follow_up(QUERY, VALUES, rng),
    "new_topic": lambda rng: augment.new_topic(augment.keyword(QUERY), [QUERY.text] * 3, rng),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reads_back_as_it_was_meant(form: str) -> None:
    misread = 0
    for seed in range(150):
        example = FORMS[form](random.Random(seed))
        question = example.question()
        text = render(example.draft, question, VOCABULARY)
        draft = parse(text, question, VOCABULARY)
        said = ENGLISH.phrases(example.query)

        assert [question.surface(s.first, s.last).lower() for s in draft.spans] == [
            question.surface(s.first, s.last).lower() for s in example.draft.spans
        ], (example, text)
        assert [span.refused for span in draft.spans] == [span.refused for span in example.draft.spans]
        misread += not example.history and (said.price_min, said.price_max) != example.price
    assert misread <= 0.05 * 150, "the rules read nearly all prices as they were written"


def test_a_sentence_keeps_the_labels_of_its_query() -> None:
    example = augment.sentence(QUERY, random.Random(3))
    question = example.question()

    found = {span.facet: question.surface(span.first, span.last) for span in example.draft.spans}
    assert found["type"] == "running shoes"
    assert found["brand"] == "nike"


def test_a_follow_up_replaces_what_was_asked_before() -> None:
    for seed in range(200):
        example = augment.follow_up(QUERY, VALUES, random.Random(seed))
        question = example.question()
        colours = [question.surface(s.first, s.last) for s in example.draft.spans if s.facet == "color"]
        assert len(colours) <= 1, example
        assert example.history


def test_a_bound_of_before_stays_in_force_as_it_was_said() -> None:
    misread = bounded = 0
    for seed in range(300):
        example = augment.follow_up(QUERY, VALUES, random.Random(seed))
        said, before = ENGLISH.phrases(example.query), ENGLISH.phrases(example.history[-1])
        if (said.price_min, said.price_max) == (None, None) != (before.price_min, before.price_max):
            bounded += before.price_min is not None
            misread += (before.price_min, before.price_max) != example.price
    assert bounded > 10
    assert misread <= 0.05 * 300, "the rules read nearly all prices as they were written"


def test_a_new_topic_keeps_nothing_of_the_history() -> None:
    example = augment.new_topic(augment.keyword(QUERY), [MarkedText.plain("blue kettle")], random.Random(0))
    question = example.question()

    assert all(question.words[span.first].utterance == len(question.utterances) - 1 for span in example.draft.spans)


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
        assert value in [amount.value for amount in Amounts(PHRASES).find(Words(text), frozenset(), None)], text


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
