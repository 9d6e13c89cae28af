"""Tests that our own training material is read completely, with clear errors, and names nothing of dev rows.

The lists of words and currencies that the service has are what the commands make of it.
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from service.planner import amounts
from service.planner.plan_text import FacetSpan
from service.planner.spelling import WORDS_PATH
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.weights.base_weights import BaseWeightsError, ensure_base_weights
from tests.training.judged import CASES, has_the_same_words, is_near
from tests.training.tiny_data import SMALL, write_data
from training.data import rows, written
from training.data.mix import Mix
from training.data.rows import held_out
from training.words import word_list

TEXTS = [text for _, text in written.asked_sentences()]


def test_every_intent_has_sentences_and_none_stands_twice() -> None:
    assert {intent for intent, _ in written.asked_sentences()} == set(shipped_vocabulary().intents)
    assert len({text.lower() for text in TEXTS}) == len(TEXTS) > 2500


def test_a_tenth_is_dev_and_no_run_sees_it() -> None:
    train, dev = (written.asked_examples(split) for split in ("train", "dev"))

    assert len(train) + len(dev) == len(TEXTS)
    assert 0.08 < len(dev) / len(TEXTS) < 0.12
    assert all(held_out(example.query.lower()) for example in dev)
    assert not any(held_out(example.query.lower()) for example in train)


def test_only_the_intent_and_what_follows_from_it_is_known() -> None:
    by_intent = {example.draft.intent: example for example in written.asked_examples("train")}

    assert not any(example.knows_facets or example.knows_vertical for example in by_intent.values())
    assert by_intent["find_product"].knows_sources
    assert by_intent["find_product"].draft.sources == ["catalog"]
    assert not by_intent["ask_product"].knows_sources


def test_a_sentence_under_no_intent_is_named(tmp_path: Path) -> None:
    path = tmp_path / "asked.txt"
    path.write_text("[order_status]\nwhere is it\n[chat]\nhello\n", encoding="utf-8")

    with pytest.raises(ValueError, match=r"asked\.txt:4: 'chat' is no intent"):
        written.asked_sentences(path)


def test_no_sentence_has_the_words_of_a_judged_case() -> None:
    assert not [text for text in TEXTS if has_the_same_words(text)]


@pytest.mark.slow
@pytest.mark.skipif(not CASES.is_file(), reason="the behaviour cases are not beside this checkout")
def test_no_sentence_is_near_identical_to_a_judged_case() -> None:
    assert not [text for text in TEXTS if is_near(text)]


def test_every_line_of_the_files_is_read() -> None:
    products, queries = written.product_names(), written.labelled_queries()

    assert len(products) > 5000
    assert {vertical for _, vertical in products} == set(shipped_vocabulary().verticals)
    assert len(set(products)) == len(products)
    assert len(queries) > 1000
    assert {span.facet for query in queries for span in query.text.spans} == set(written.FACET_LETTERS.values())


def test_a_query_is_words_and_the_spans_on_them(tmp_path: Path) -> None:
    path = tmp_path / "queries.txt"
    path.write_text("# comment\nel best spigen/b iphone_11/l case/t 24/7/f\n", encoding="utf-8")

    (query,) = written.labelled_queries(path)

    assert query.text.words == ("best", "spigen", "iphone", "11", "case", "24/7")
    spans = [FacetSpan("brand", 1, 1), FacetSpan("line", 2, 3), FacetSpan("type", 4, 4), FacetSpan("feature", 5, 5)]
    assert query.text.spans == tuple(spans)
    assert query.vertical == "electronics"


@pytest.mark.parametrize(
    ("line", "words"), [("zz case/t", "vertical"), ("el", "go on with words"), ("el case/w", "names no facet")]
)
def test_a_wrong_query_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "queries.txt"
    path.write_text(f"\n{line}\n", encoding="utf-8")

    with pytest.raises(ValueError, match=rf"queries\.txt:2: .*{words}"):
        written.labelled_queries(path)


def test_a_name_under_no_vertical_is_named(tmp_path: Path) -> None:
    path = tmp_path / "products.txt"
    path.write_text("[zz]\nkettles\n", encoding="utf-8")

    with pytest.raises(ValueError, match=r"products\.txt:2: 'kettles'"):
        written.product_names(path)


def test_what_names_a_dev_category_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products, queries = tmp_path / "products.txt", tmp_path / "queries.txt"
    products.write_text("[hg]\nvase\nflower vases\nkettle descalers\n", encoding="utf-8")
    queries.write_text("hg tall/f vase/t\nhg dualit/b kettle/t\nhg shoes/t red/c\n", encoding="utf-8")
    names, labelled = written.product_names(products), written.labelled_queries(queries)
    monkeypatch.setattr(written, "product_names", lambda: names)
    monkeypatch.setattr(written, "labelled_queries", lambda: labelled)
    mix = Mix(write_data(tmp_path / "data"), replace(SMALL, products=9, written=1.0))

    examples = [e for e, *_ in mix.epoch(random.Random(1)) if e.origin in ("product", "written")]

    known = {e.draft.vertical for e in examples if "vase" in e.query and e.origin == "written"}
    assert known == {None}, "its spans teach, its vertical does not"
    assert any("kettle" in e.query and e.draft.vertical == "home-garden" and e.knows_vertical for e in examples)
    assert {"kettle descalers", "flower vases"} >= {name for name, _ in mix.products}
    assert not any("shoes" in e.query for e in examples), "a dev query with its words in another order"


def test_dev_categories_are_known_in_any_number_and_order(tmp_path: Path) -> None:
    dev = rows.DevCategories(write_data(tmp_path / "data"))

    assert dev.names("Vase")
    assert not dev.names("vase brushes"), "one word alone is too common to bar every name with it"


def test_nothing_that_is_written_has_the_words_of_a_judged_case() -> None:
    assert not [text for text in written_texts() if has_the_same_words(text)]


@pytest.mark.slow
@pytest.mark.skipif(not CASES.is_file(), reason=f"the behaviour cases are not beside this checkout ({CASES})")
def test_nothing_that_is_written_is_near_identical_to_a_judged_case() -> None:
    assert not [text for text in written_texts() if is_near(text)]


def written_texts() -> list[str]:
    """Return our product names and queries."""
    names = [name for name, _ in written.product_names()]
    queries = [" ".join(query.text.words) for query in written.labelled_queries()]
    return sorted({*names, *queries})


def test_the_service_has_the_list_that_our_data_makes() -> None:
    try:
        tokenizer = ensure_base_weights(Settings().cache_dir) / "tokenizer.json"
    except BaseWeightsError as error:
        pytest.skip(str(error))
    message = f"run `python -m training.words {tokenizer}`"
    assert WORDS_PATH.read_text(encoding="ascii") == word_list(tokenizer), message


def test_the_currencies_are_what_the_command_writes() -> None:
    pytest.importorskip("babel", reason="training's packages are not installed")
    from training.currencies import lines

    assert amounts.MONEY_PATH.read_text(encoding="utf-8").splitlines() == list(lines())


def test_every_currency_of_a_territory_has_a_name_in_each_language() -> None:
    for language in ("en", "es", "de", "fr"):
        named = {code for codes in amounts.names(language).values() for code in codes}
        assert named >= amounts.codes() - {"XCG"}


def test_a_sign_of_several_currencies_is_certain_where_the_locale_says_it() -> None:
    assert amounts.certain(amounts.signs()["kr"], "SE") == "SEK"
    assert amounts.certain(amounts.signs()["kr"], None) is None
    assert amounts.certain(amounts.signs()["₹"], None) == "INR"
    assert amounts.code_of("mxn") == "MXN"
    assert amounts.code_of("try") is None
