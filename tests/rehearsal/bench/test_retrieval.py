"""What retrieval figures are made of: measures, rules of right products, questions, and the sample shop's mapping."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.shop import MAPPING, Shop

from peakplan.shop.run import Task, learn
from rehearsal.bench import retrieval
from rehearsal.bench.retrieval import Case, compare, is_right, ndcg, read_cases, recall, right_products


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


def test_recall_counts_what_ten_can_hold_and_ndcg_is_that_of_the_textbook() -> None:
    assert recall(["a", "x"], frozenset("ab")) == 0.5
    assert recall([str(at) for at in range(10)], frozenset(map(str, range(40)))) == 1
    assert recall([*"xxxxxxxxxx", "a"], frozenset("a")) == 0
    assert ndcg(["a", "b"], frozenset("ab")) == 1
    assert ndcg(["x", "a"], frozenset("a")) == pytest.approx(0.63093, abs=1e-5)
    assert ndcg([], frozenset("a")) == 0


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


def test_a_rule_that_fits_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"split": "dev", "class": "c", "query": "a hat", "right": {"style": ["hat"]}}))
    with pytest.raises(ValueError, match="no product is right for 'a hat'"):
        read_cases(PRODUCTS, path)


def test_the_figure_is_of_these_questions_and_unseen_ones_are_others() -> None:
    figure = json.loads(retrieval.FIGURE.read_text(encoding="utf-8"))
    assert figure["questions"]["sha256"] == retrieval.questions_hash(), "run `peakplan bench retrieval`"
    assert len(read_cases(list(catalogue.read()))) == 200, "each has right products"
    files = (retrieval.QUESTIONS, retrieval.SORTS, retrieval.UNSEEN)
    read = [[json.loads(line) for line in file.read_text("utf-8").splitlines()] for file in files]
    asked, sorts, unseen = ({row["query"].lower() for row in rows} for rows in read)
    assert (len(asked), len(sorts)) == (200, 40)
    assert len(unseen & (asked | sorts)) <= 2  # "wall clock" comes to many a mind
    assert all(row["class"].endswith(", unseen") and row["split"] == "unseen" for row in read[2])


NAME = "sample-products.jsonl"
COMMAND = f"peakplan shop learn {NAME} --currency USD"


def test_the_sample_shop_s_mapping_is_what_the_command_learns(tmp_path: Path) -> None:
    source = tmp_path / NAME
    source.write_text("".join(json.dumps(asdict(each)) + "\n" for each in catalogue.read()), encoding="utf-8")
    task = Task(source, tmp_path / "shop", {}, currency="USD", quiet=True, command=COMMAND)
    learnt = (learn(task).output / "mapping.yaml").read_text(encoding="utf-8")
    assert MAPPING.read_text(encoding="utf-8") == learnt, f"take the mapping of `{COMMAND}`"
