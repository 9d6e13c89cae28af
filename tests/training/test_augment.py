"""Augmented questions keep gold labels: every example is plan text that its own question's grammar admits."""

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from service.decoding.constraint import GrammarCompiler
from service.planner.amounts import read_amounts
from service.planner.completion import plan_from_draft
from service.planner.grammar import plan_grammar
from service.planner.plan_text import FacetSpan, parse, render
from service.planner.vocabulary import shipped_vocabulary
from tests.training.tiny_data import SMALL, write_data
from training.data import augment
from training.data.augment import Attribute, Category, expand, misspell, phrases, split_templates, spoken_price, wrap
from training.data.examples import Example, MarkedText
from training.data.mix import Mix
from training.data.rows import LabelledQuery

VOCABULARY = shipped_vocabulary()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "tiny")


def _questions(category: Category, count: int = 400) -> list[Example]:
    rng = random.Random(5)
    return [augment.category_question(category, ["acme"], rng) for _ in range(count)]


def test_a_category_has_its_attributes_and_those_of_dev_rows_are_absent(data: Path) -> None:
    found = augment.described_categories(data)

    assert [category.name for category in found] == ["lamps", "kettles", "rugs"]
    assert {category.vertical for category in found} == {"home-garden"}
    assert found[0].attributes == (
        Attribute("color", "color", ("red", "rose gold")),
        Attribute("age group", "audience", ("0-6 months",)),
        Attribute("base material", "material", ("polyester pe",)),
    )


def test_a_question_names_its_category_and_what_is_said_of_it(data: Path) -> None:
    category = augment.described_categories(data)[0]
    known = {(each.facet, value) for each in category.attributes for value in each.values} | {("brand", "acme")}
    questions = _questions(category)

    for example in questions:
        words = [word.text for word in example.question().words]
        named = {(span.facet, " ".join(words[span.first : span.last + 1])) for span in example.draft.spans}
        assert named <= known | {("type", "lamps")}
        assert ("type", "lamps") in named
        assert example.knows_vertical
        assert not example.knows_facets
        assert example.draft.vertical == "home-garden"
    queries = " | ".join(example.query for example in questions)
    assert "lamps for 0-6 months" in queries  # after the name, too
    assert "0-6 months lamps" in queries
    assert "base material" in queries  # asked for, with no value
    assert {"find_product", "ask_product"} == {example.draft.intent for example in questions}


def test_every_question_is_admitted_by_its_grammar(data: Path, plan_tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(plan_tokenizer.to_str(), 2)
    for example in _questions(augment.described_categories(data)[0], 60):
        constraint = compiler.compile(plan_grammar(example.question(), VOCABULARY))
        text = render(example.draft, example.question(), VOCABULARY)
        constraint.accept(plan_tokenizer.encode(text, add_special_tokens=False).ids)
        assert constraint.finished(), (example, text)


def test_an_epoch_holds_as_many_as_are_asked_for(data: Path) -> None:
    mix = Mix(data, replace(SMALL, attributes=17))

    assert sum(example.origin == "attribute" for example, *_ in mix.epoch(random.Random(1))) == 17


def test_a_taxonomy_without_attributes_says_which_file(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data")
    with gzip.open(folder / "taxonomy_attributes.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(json.dumps({"handle": "color", "name": "Color", "values": [], "ext": []}) + "\n")

    with pytest.raises(ValueError, match=r"taxonomy_attributes\.jsonl\.gz"):
        augment.described_categories(folder)


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
