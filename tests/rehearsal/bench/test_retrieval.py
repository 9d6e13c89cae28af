"""What retrieval figures are made of: measures, rules of right products, and questions that are whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.shop import Shop

from peakplan.shop.intervals import interval
from rehearsal.bench import retrieval
from rehearsal.bench.retrieval import Case, compare, is_right, ndcg, read_cases, recall, right_products
from rehearsal.bench.tables import render


def product(id_: str, name: str, price: float, style: str = "boot", gender: str | None = None) -> Product:
    return Product(id_, name, style, "footwear", f"A {name.lower()} for the rain.", price, gender)


PRODUCTS = [
    product("a", "Red Leather Boots", 120, gender="F"),
    product("b", "Red Boots", 60),
    product("c", "Reduced Boots", 60, gender="M"),
    product("d", "Red Socks", 9, style="socks"),
]


@pytest.mark.parametrize(
    ("rule", "right"),
    [
        ({"style": ["boot"]}, "abc"),
        ({"name": "red"}, "abd"),
        ({"text": ["red", "boots?"]}, "ab"),
        ({"text": ["rain"], "exclude": "leather"}, "bcd"),
        ({"gender": "F"}, "a"),
        ({"min": 60, "max": 60}, "bc"),
        ({"any": [{"style": ["socks"]}, {"min": 100}]}, "ad"),
        ({"order": "price", "take": 2}, "bcd"),  # two cost the same
        ({"order": "-price", "take": 1}, "a"),
    ],
)
def test_a_rule_says_which_products_are_right(rule: dict[str, Any], right: str) -> None:
    assert right_products(PRODUCTS, rule) == frozenset(right)
    if "order" not in rule:
        assert [is_right(each, rule) for each in PRODUCTS] == [each.id in right for each in PRODUCTS]


def test_recall_counts_what_ten_can_hold() -> None:
    assert recall(["a", "x"], frozenset("ab")) == 0.5
    assert recall([str(at) for at in range(10)], frozenset(map(str, range(40)))) == 1
    assert recall([*"xxxxxxxxxx", "a"], frozenset("a")) == 0


def test_ndcg_is_that_of_the_textbook() -> None:
    assert ndcg(["a", "b"], frozenset("ab")) == 1
    assert ndcg(["x", "a"], frozenset("a")) == pytest.approx(0.63093, abs=1e-5)
    assert ndcg([], frozenset("a")) == 0


def test_an_interval_is_seeded_and_holds_the_mean() -> None:
    differences = [0.0, 0.5, 1.0, 0.2] * 10
    low, high = interval(differences, 1000)

    assert low < sum(differences) / len(differences) < high
    assert (low, high) == interval(differences, 1000)
    assert interval([0.3] * 5, 100) == pytest.approx((0.3, 0.3))


def test_plans_are_compared_with_raw_words_and_the_table_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "products.jsonl"
    rows = [
        {"id": p.id, "name": p.name, "style": p.style, "category": p.category, "desc": p.description} for p in PRODUCTS
    ]
    path.write_text("\n".join(json.dumps({**row, "price": p.price}) for row, p in zip(rows, PRODUCTS, strict=True)))
    cases = [Case(split, "price", "red boots over 100", frozenset("a")) for split in retrieval.HALVES]
    plans = [{"queries": ["red boots"], "price": {"min": 100}}] * 3
    figures = compare(cases, plans, Shop.open(tmp_path / "cache", path))

    assert figures["test"]["ndcg@10"] == {
        "raw": pytest.approx(0.6309, abs=1e-4),
        "plan": 1.0,
        "difference": pytest.approx(0.3691, abs=1e-4),
        "interval": pytest.approx([0.3691, 0.3691], abs=1e-4),
    }
    table = render("retrieval", {"command": "c", "reader": figures, "model": {"id": "m", **figures}})
    assert "| held out | 1 | recall@10 | 1.000 | 1.000 (+0.000, +0.000 to +0.000) |" in table
    assert "| by writers who saw the catalogue alone | 1 | recall@10 | 1.000 | 1.000 (+0.000, " in table
    assert "| nDCG@10 by class |" in table
    assert "| price, both halves | 3 | 0.631 | 1.000 | 1.000 |" in table


def test_the_questions_are_two_hundred_in_two_halves_and_none_twice() -> None:
    rows = [json.loads(line) for line in retrieval.QUESTIONS.read_text(encoding="utf-8").splitlines()]

    assert len(rows) == len({row["query"] for row in rows}) == len({row["id"] for row in rows}) == 200
    halves = [{row["class"] for row in rows if row["split"] == split} for split in ("dev", "test")]
    assert halves[0] == halves[1]
    assert 95 <= sum(row["split"] == "test" for row in rows) <= 105
    known = {"style", "gender", "min", "max", "name", "text", "exclude", "any", "order", "take"}
    assert all(set(row["right"]) <= known for row in rows)
    sorts = [json.loads(line) for line in retrieval.SORTS.read_text(encoding="utf-8").splitlines()]
    assert len({row["query"] for row in sorts}) == len(sorts) == 40
    assert all(set(row["right"]) <= known and row["right"]["take"] for row in sorts)


def test_every_question_has_right_products_in_the_catalogue() -> None:
    assert len(read_cases(list(catalogue.read()))) == 200


def test_a_rule_that_fits_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"split": "dev", "class": "c", "query": "a hat", "right": {"style": ["hat"]}}))
    with pytest.raises(ValueError, match="no product is right for 'a hat'"):
        read_cases(PRODUCTS, path)


def test_the_figure_is_of_these_questions() -> None:
    figure = json.loads(retrieval.FIGURE.read_text(encoding="utf-8"))

    assert figure["questions"]["sha256"] == retrieval.questions_hash(), (
        "questions changed: run `peakplan bench retrieval`"
    )


def test_unseen_questions_have_classes_of_their_own_and_none_is_one_of_the_others() -> None:
    files = (retrieval.QUESTIONS, retrieval.SORTS, retrieval.UNSEEN)
    others, sorts, unseen = ([json.loads(line) for line in each.read_text("utf-8").splitlines()] for each in files)
    assert len(unseen) == 784
    assert {row["split"] for row in unseen} == {"unseen"}
    assert all(row["class"].endswith(", unseen") for row in unseen)
    asked = {row["query"].lower() for row in (*others, *sorts)}
    assert len(asked.intersection(row["query"].lower() for row in unseen)) <= 2  # "wall clock" comes to many a mind
