"""The training questions of plan version 2: plans keep the contract, dev is apart, and no judged case is among them."""

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from service.planner.fallback.reading.en.reader import ENGLISH
from service.planner.fallback.reading.tokens import Words
from tests.training.judged import CASES, has_the_same_words, is_near
from training.data import behaviour_text
from training.data.behaviour import COUNTS, Row, misread, rows
from training.data.behaviour_phrases import closed_phrase
from training.data.behaviour_plans import SEARCHLESS, empty_plan, problems, sentence_plan
from training.data.behaviour_text import FOLDER, read_lines

LEAST_ROWS = 12_000
LEAST_OF_A_CLASS = 500
NO_PRICE = {"min": None, "max": None, "currency": None}


@pytest.fixture(scope="module")
def made() -> list[Row]:
    return rows()


def by_kind(made: list[Row], kind: str) -> list[Row]:
    return [row for row in made if row.kind == kind]


def test_there_are_enough_of_every_class_and_none_twice(made: list[Row]) -> None:
    counts = Counter(row.kind for row in made)
    assert len(made) >= LEAST_ROWS
    assert set(counts) == set(COUNTS)
    assert min(counts.values()) >= LEAST_OF_A_CLASS, counts
    assert len({row.key for row in made}) == len(made)


def test_the_same_seed_makes_the_same_rows(made: list[Row]) -> None:
    assert [row.key for row in rows(0)] == [row.key for row in made]


def test_every_plan_keeps_the_contract(made: list[Row]) -> None:
    broken = [(row.question, found) for row in made if (found := problems(row.history, row.question, row.plan))]
    assert not broken, broken[:5]


def test_dev_has_a_tenth_of_every_class_and_no_family_of_training(made: list[Row]) -> None:
    families: dict[str, set[str]] = defaultdict(set)
    for row in made:
        families[row.split].add(row.family)
    assert not families["train"] & families["dev"]
    for kind in COUNTS:
        dev = sum(row.split == "dev" for row in by_kind(made, kind))
        assert 0.05 <= dev / len(by_kind(made, kind)) <= 0.2, (kind, dev)
    train, dev_keys = ({row.key for row in made if row.split == split} for split in ("train", "dev"))
    assert not train & dev_keys


def test_closed_phrases_are_read_as_they_were_made() -> None:
    """The rules are not their own judge: sentences are made from the meaning, and nearly all are read back."""
    assert len(misread()) < 0.005 * LEAST_ROWS, misread()[:20]


def test_follow_ups_have_a_history_and_nothing_else_has(made: list[Row]) -> None:
    assert all(bool(row.history) == (row.kind == "followup") for row in made)


def test_what_searches_nothing(made: list[Row]) -> None:
    for kind in SEARCHLESS:
        assert {row.plan["intent"] for row in by_kind(made, kind)} == {kind}
    assert not any(
        row.plan["intent"] in SEARCHLESS for kind in ("vague_find", "ask_product") for row in by_kind(made, kind)
    )


def test_several_things_are_parts_and_one_thing_with_an_and_is_not(made: list[Row]) -> None:
    for kind, intent in (("multi", "find_product"), ("compare", "compare_products")):
        parted = [row for row in by_kind(made, kind) if row.plan["parts"]]
        assert 0.6 <= len(parted) / len(by_kind(made, kind)) < 1, "traps are among them"
        assert {row.plan["intent"] for row in parted} == {intent}
        for row in parted:
            first_queries = [part["queries"][0] for part in row.plan["parts"]]
            assert row.plan["queries"] == first_queries[:3]


def test_a_misspelling_is_a_facet_as_typed_and_right_in_some_query(made: list[Row]) -> None:
    for row in by_kind(made, "spelling"):
        wrong = row.family.removeprefix("spelling: ")
        values = {word for found in row.plan["facets"].values() for value in found for word in Words(value).texts}
        queries = [set(Words(query).texts) for query in row.plan["queries"]]
        assert set(Words(wrong).texts) <= values | queries[0], row
        assert any(not set(Words(wrong).texts) <= query for query in queries), row


def test_other_languages_are_searched_as_they_stand(made: list[Row]) -> None:
    for row in by_kind(made, "language"):
        plan = row.plan
        assert (plan["queries"], plan["facets"], plan["vertical"]) == ([row.question.lower()], {}, None)
        assert plan["sources"] == ["catalog"]


def test_no_query_holds_what_a_closed_phrase_said(made: list[Row]) -> None:
    """Numbers of a price, and words such as "cheapest", leave the queries; the thing's own numbers stay."""
    for row in by_kind(made, "sort_offers"):
        said = {"cheapest", "newest", "priciest", "bestselling", "discounted", "clearance"}
        for query in row.plan["queries"]:
            assert not said & set(Words(query).texts), row
    for row in by_kind(made, "number_with_price"):
        spans = [row.question[slice(*price.span)] for price in ENGLISH.phrases(row.question).prices]
        assert spans, row
        assert not any(span.lower() in query for span in spans for query in row.plan["queries"]), row


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"intent": "haggle"}, "intent"),
        ({"vertical": "aa"}, "vertical aa"),
        ({"sort": "random"}, "sort"),
        ({"sources": ["web"]}, "sources"),
        ({"queries": []}, "queries and sources"),
        ({"queries": ["a", "b", "c", "d"]}, "one to three"),
        ({"queries": ["red shoes", "red shoes"]}, "one to three"),
        ({"facets": {"color": ["green"]}}, "'green' stands nowhere"),
        ({"facets": {"flavour": ["red"]}}, "flavour"),
        ({"facets": {"brand": ["nike"]}}, "wanted and refused"),
        ({"queries": ["nike shoes"]}, "'nike' is searched for"),
        (
            {"parts": [{"facets": {}, "exclude": {}, "price": NO_PRICE, "queries": ["shoes"]}]},
            "1 parts",
        ),
        ({"price": {"min": 9, "max": 3, "currency": None}}, "price"),
        ({"price": {"min": None, "max": 3, "currency": "bucks"}}, "currency"),
        ({"rating": {"min": 7}}, "rating"),
        ({"flavour": None}, "fields"),
    ],
)
def test_the_validator_names_what_is_broken(change: dict[str, Any], words: str) -> None:
    plan = empty_plan("find_product", "keyword") | {
        "facets": {"color": ["red"], "type": ["shoes"]}, "exclude": {"brand": ["nike"]}, "queries": ["red shoes"],
    }  # fmt: skip
    assert problems((), "red shoes not nike", plan) == []
    assert any(words in problem for problem in problems((), "red shoes not nike", plan | change))


def test_a_line_becomes_a_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vague.txt").write_text(
        "[multi find_product]\naa red/c1 dress/t1 under $40 and black/c2 heels/t2 not nike/-b2\n", encoding="utf-8"
    )
    monkeypatch.setattr(behaviour_text, "FOLDER", tmp_path)
    (line,) = read_lines("vague.txt")
    plan = sentence_plan(line.pieces, line.section[1], line.vertical)
    assert [part["queries"] for part in plan["parts"]] == [["red dress"], ["black heels"]]
    assert [part["price"]["max"] for part in plan["parts"]] == [40, None]
    assert [part["exclude"] for part in plan["parts"]] == [{}, {"brand": ["nike"]}]
    assert (plan["price"]["max"], plan["vertical"]) == (None, "apparel-accessories")


@pytest.mark.parametrize(
    ("text", "words"),
    [("zz lamp/t", "begin with a vertical"), ("hg", "go on with words"), ("hg lamp/j", "names no facet")],
)
def test_a_wrong_line_is_named(text: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vague.txt").write_text(f"[vague_find find_product]\n{text}\n", encoding="utf-8")
    monkeypatch.setattr(behaviour_text, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=rf"vague\.txt:2: .*{words}"):
        list(read_lines("vague.txt"))


def test_an_unknown_slot_is_named() -> None:
    with pytest.raises(ValueError, match=r"no slot is called \{colour\}"):
        closed_phrase("colour", random.Random(0), {})


def test_the_data_is_small_enough_to_commit() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1_500_000


@pytest.mark.skipif(not CASES.is_file(), reason=f"the behaviour cases are not beside this checkout ({CASES})")
def test_no_row_is_near_identical_to_a_judged_case(made: list[Row]) -> None:
    """By the newest utterance, and by the whole conversation."""
    near = [row for row in made if any(map(is_near, texts_of(row)))]
    assert not near, f"list in left_out.txt, or reword their lines: {[(row.newest_digest, row.key) for row in near]}"


def test_no_row_has_the_words_of_a_judged_case(made: list[Row]) -> None:
    same = [row for row in made if any(map(has_the_same_words, texts_of(row)))]
    assert not same, f"list in left_out.txt, or reword their lines: {[(row.newest_digest, row.key) for row in same]}"


def texts_of(row: Row) -> set[str]:
    return {row.question, " ".join([*row.history, row.question])}
