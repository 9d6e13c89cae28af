"""Tests that questions of a category follow the taxonomy, and that none is from a dev row's category."""

import gzip
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from service.decoding.constraint import GrammarCompiler
from service.planner.grammar import plan_grammar
from service.planner.plan_text import render
from service.planner.vocabulary import shipped_vocabulary
from tests.training.tiny_data import SMALL, write_data
from training.data import attributes
from training.data.attributes import Attribute, Category
from training.data.examples import Example
from training.data.mix import Mix

VOCABULARY = shipped_vocabulary()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "tiny")


def _questions(category: Category, count: int = 400) -> list[Example]:
    rng = random.Random(5)
    return [attributes.question(category, ["acme"], rng) for _ in range(count)]


def test_a_category_has_its_attributes_and_those_of_dev_rows_are_absent(data: Path) -> None:
    found = attributes.categories(data)

    assert [category.name for category in found] == ["lamps", "kettles", "rugs"]
    assert {category.vertical for category in found} == {"home-garden"}
    assert found[0].attributes == (
        Attribute("color", "color", ("red", "rose gold")),
        Attribute("age group", "audience", ("0-6 months",)),
        Attribute("base material", "material", ("polyester pe",)),
    )


def test_a_question_names_its_category_and_what_is_said_of_it(data: Path) -> None:
    category = attributes.categories(data)[0]
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
    for example in _questions(attributes.categories(data)[0], 60):
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
        attributes.categories(folder)
