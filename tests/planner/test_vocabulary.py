"""Tests that a vocabulary file is read with errors that name file, key and clash, and that plan text follows it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llguidance
import pytest
from tokenizers import Tokenizer

from service.planner.grammar import plan_grammar
from service.planner.plan_text import PlanDraft, parse, render
from service.planner.question import Question
from service.planner.vocabulary import FILE_NAME, Vocabulary, VocabularyError, shipped_vocabulary
from service.settings import Settings
from service.settings.choices import SHIPPED_MODEL
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from tests.planner.walks import byte_tokenizer

GROCER: dict[str, Any] = {
    "intents": {
        "find_product": {"word": "find", "products": True, "sources": ["shelf"]},
        "ask_product": {"word": "ask", "products": True},
        "recipe": {"word": "cook", "sources": []},
    },
    "verticals": {"fresh-food": {"word": "Fresh", "name": "Fresh food"}},
    "facets": {"diet": {"word": "Diet"}, "type": {"word": "Type"}},
    "sources": {"shelf": {"word": "shelf"}, "labels": {"word": "labels"}},
}
SAUCE = Question.parse("vegan pasta sauce")


def write(folder: Path, vocabulary: Any) -> Path:
    (folder / FILE_NAME).write_text(json.dumps(vocabulary), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "text",
    [
        " find Diet vegan Type pasta sauce Fresh",
        " Ask labels shelf Type sauce Any",
        " find One Diet vegan Two Not Type sauce Foreign",
        " cook",
    ],
)
def test_plan_text_and_grammar_follow_a_shops_own_vocabulary(tmp_path: Path, text: str) -> None:
    vocabulary = Vocabulary.load(write(tmp_path, GROCER))
    matcher = llguidance.LLMatcher(byte_tokenizer(), plan_grammar(SAUCE, vocabulary))

    assert matcher.consume_tokens(byte_tokenizer().tokenize_str(text)), matcher.get_error()
    assert matcher.is_accepting()
    assert render(parse(text, SAUCE, vocabulary), SAUCE, vocabulary) == text
    assert plan_grammar(SAUCE, vocabulary) != plan_grammar(SAUCE, shipped_vocabulary()), "each has a grammar of its own"


def test_a_vocabulary_may_have_products_alone(tmp_path: Path) -> None:
    alone = GROCER | {"intents": {"find_product": GROCER["intents"]["find_product"]}}
    vocabulary = Vocabulary.load(write(tmp_path, alone))
    matcher = llguidance.LLMatcher(byte_tokenizer(), plan_grammar(SAUCE, vocabulary))

    assert matcher.consume_tokens(byte_tokenizer().tokenize_str(" find Diet vegan Fresh")), matcher.get_error()
    assert render(PlanDraft("keyword", "find_product"), SAUCE, vocabulary) == " find Any"


def change(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(vocabulary: dict[str, Any]) -> None:
        table = vocabulary
        for key in path[:-1]:
            table = table[key]
        table[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (change("facets", "diet", "word", to="Type"), r"facets\.type\.word: 'Type' is already facets\.diet\.word"),
        (change("facets", "diet", "word", to="Find"), r"facets\.diet\.word: 'Find' is already intents\.find_product"),
        (
            change("facets", "diet", "word", to="Any"),
            r"facets\.diet\.word: 'Any' is already a word of plan text",
        ),
        (change("facets", "diet", "word", to="diet"), r"facets\.diet\.word: 'diet' must be one word with a capital"),
        (change("intents", "recipe", "word", to="To Cook"), r"intents\.recipe\.word: 'To Cook' must be one lower-case"),
        (change("intents", "recipe", "sources", to=["web"]), r"intents\.recipe\.sources: 'web' is no key of sources"),
        (change("intents", "recipe", "sources", to=["shelf"] * 2), r"intents\.recipe\.sources: 'shelf' stands twice"),
        (change("intents", "recipe", to={"word": "cook"}), r"intents\.recipe\.sources: 'null' is for intents about"),
        (change("intents", "find_product", "products", to=False), r"intents\.find_product: .* must be true"),
        (change("sources", to={"shelf": {}}), r"intents\.ask_product\.sources: .*no source has a word"),
        (change("sources", "start", to={}), r"sources\.start: 'start' is a name of the grammar"),
        (change("verticals", "Fresh Food", to={"word": "Food", "name": "Food"}), r"verticals\.Fresh Food: .*pattern"),
        (change("verticals", "fresh-food", to={"word": "Fresh"}), r"verticals\.fresh-food\.name: Field required"),
        (change("colours", to={}), r"colours: Extra inputs are not permitted"),
    ],
)
def test_errors_name_file_key_and_clash(tmp_path: Path, changed: Callable[[dict[str, Any]], None], words: str) -> None:
    vocabulary = json.loads(json.dumps(GROCER))
    changed(vocabulary)

    with pytest.raises(VocabularyError, match=rf"{FILE_NAME}: {words}"):
        Vocabulary.load(write(tmp_path, vocabulary))


def test_a_key_may_stand_once(tmp_path: Path) -> None:
    text = '{"facets": {"diet": {"word": "Diet"}, "diet": {"word": "Food"}}}'
    (tmp_path / FILE_NAME).write_text(text, encoding="utf-8")

    with pytest.raises(VocabularyError, match="diet: stands twice"):
        Vocabulary.load(tmp_path)


def test_a_missing_or_broken_file_says_where_to_find_one(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"models/qp-smollm2-135m/vocabulary\.json"):
        Vocabulary.load(tmp_path)
    (tmp_path / FILE_NAME).write_text("{", encoding="utf-8")
    with pytest.raises(VocabularyError, match=r"vocabulary\.json: .*line 1"):
        Vocabulary.load(tmp_path)


def test_every_shipped_word_is_one_token_of_the_shipped_model() -> None:
    try:
        tokenizer = Tokenizer.from_file(str(ensure_base_weights(Settings().cache_dir) / "tokenizer.json"))
    except BaseWeightsError as error:
        pytest.skip(str(error))

    shipped_vocabulary().check_tokens(tokenizer)


def test_a_word_of_several_tokens_is_named(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(json.dumps(_SPLITTING))

    with pytest.raises(VocabularyError, match=r"vocabulary\.json: .*: 'Any' is 4 tokens"):
        Vocabulary.load(write(tmp_path, GROCER)).check_tokens(tokenizer)


def test_everything_shipped_is_described() -> None:
    vocabulary = Vocabulary.load(SHIPPED_MODEL)
    tables = (vocabulary.intents, vocabulary.verticals, vocabulary.facets, vocabulary.sources)

    assert all(entry.description for table in tables for entry in table.values())


_SPLITTING = {
    "version": "1.0",
    "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
    "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None, "truncation": None,
    "padding": None,
}  # fmt: skip
