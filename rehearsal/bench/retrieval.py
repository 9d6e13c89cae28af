"""What a search finds with the plan, and with the raw words: docs/figures/retrieval.json.

`peakplan bench retrieval` writes it.

200 questions of our own over the sample catalogue (retrieval_questions.jsonl), half to tune on (dev), half not (test).
Which products are right is a rule over the product alone, not over what a search found (`is_right`).
Both ways search the same SQLite FTS5 index with the same BM25 weights, raw words by any of them. Definitions:
  recall@10   right products among the first ten, divided by the lesser of all right ones and ten
  nDCG@10     binary gains, against the best order possible
  difference  plan minus raw words, with the 95% interval of a paired bootstrap over questions
"""

import argparse
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.shop import Shop

from peakplan.shop.intervals import interval
from peakplan.shop.planning import plans_by_model, plans_by_reader
from rehearsal.bench.machine import describe_machine, write_figure
from service.engines.protocol import EngineError
from service.planner.question import Question
from service.settings import Settings

FIGURE = Path("docs/figures/retrieval.json")
QUESTIONS = Path(__file__).with_name("retrieval_questions.jsonl")
SORTS = Path(__file__).with_name("sort_questions.jsonl")  # 40 more, of neither half: all want an order by price
UNSEEN = Path(__file__).with_name("unseen_questions.jsonl")  # 784 by four writers who saw the catalogue alone
HALVES = ("dev", "test", "unseen")
DEPTH = 10
SECONDS = 60.0  # of a search, so that a busy machine changes no figure
Plans = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """A question, and the ids of the products that are right for it."""

    split: str
    kind: str
    query: str
    right: frozenset[str]


def is_right(product: Product, rule: dict[str, Any]) -> bool:
    """Tell whether a product is right by a rule, all of whose keys must hold; `any` holds alternatives.

    `style` and `gender` are the catalogue's own; `min` and `max` are prices, both included; `name` is a pattern that
    the name has, `text` are patterns that name or description have, `exclude` is one that neither has.
    """
    if "any" in rule:
        return any(is_right(product, each) for each in rule["any"])
    text = f"{product.name}. {product.description}"
    return (
        ("style" not in rule or product.style in rule["style"])
        and ("gender" not in rule or product.gender == rule["gender"])
        and rule.get("min", -math.inf) <= product.price <= rule.get("max", math.inf)
        and ("name" not in rule or _has(product.name, rule["name"]))
        and all(_has(text, pattern) for pattern in rule.get("text", ()))
        and ("exclude" not in rule or not _has(text, rule["exclude"]))
    )


def _has(text: str, pattern: str) -> bool:
    return re.search(rf"\b(?:{pattern})\b", text, re.IGNORECASE) is not None


def right_products(products: Sequence[Product], rule: dict[str, Any]) -> frozenset[str]:
    """Return the ids of the right products; `order` and `take` keep the first few by price, and what costs the same."""
    right = [product for product in products if is_right(product, rule)]
    if "order" in rule:
        sign = -1 if rule["order"] == "-price" else 1
        right.sort(key=lambda product: sign * product.price)
        last = right[min(rule["take"], len(right)) - 1].price
        right = [product for product in right if sign * product.price <= sign * last]
    return frozenset(product.id for product in right)


def read_cases(products: Sequence[Product], path: Path = QUESTIONS) -> list[Case]:
    """Return the questions with their right products. Raises ValueError where a rule fits none."""
    cases = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        right = right_products(products, row["right"])
        if not right:
            raise ValueError(f"{path}: no product is right for {row['query']!r}: mend its rule")
        cases.append(Case(row["split"], row["class"], row["query"], right))
    return cases


def all_cases(products: Sequence[Product]) -> list[Case]:
    """Return the questions of all files."""
    return [case for path in (QUESTIONS, SORTS, UNSEEN) for case in read_cases(products, path)]


def questions_hash() -> str:
    """Return the SHA-256 of the questions' files: a figure of other questions is stale."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in (QUESTIONS, SORTS, UNSEEN))).hexdigest()


def recall(found: Sequence[str], right: frozenset[str]) -> float:
    """Return the share of the right products among the first ten found, of as many as ten can hold."""
    return len(right.intersection(found[:DEPTH])) / min(DEPTH, len(right))


def ndcg(found: Sequence[str], right: frozenset[str]) -> float:
    """Return the normalised discounted cumulative gain of the first ten found."""
    gain = sum(1 / math.log2(rank + 2) for rank, id_ in enumerate(found[:DEPTH]) if id_ in right)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(DEPTH, len(right))))


def compare(cases: Sequence[Case], plans: Plans, shop: Shop) -> dict[str, Any]:
    """Return the figures of both halves, and those of each class over both."""
    rows = []
    for case, plan in zip(cases, plans, strict=True):
        raw = [hit.id for hit in shop.search_raw(case.query, DEPTH, SECONDS).hits]
        planned = [hit.id for hit in shop.search_plan(plan, case.query, DEPTH, SECONDS).hits]
        rows.append(
            (case, {name: (score(raw, case.right), score(planned, case.right)) for name, score in _SCORES.items()})
        )
    halves = {split: _figures([scores for case, scores in rows if case.split == split]) for split in HALVES}
    kinds = dict.fromkeys(case.kind for case in cases)
    return {
        **halves,
        "classes": {kind: _means([scores for case, scores in rows if case.kind == kind]) for kind in kinds},
    }


_SCORES = {"recall@10": recall, "ndcg@10": ndcg}
_Scores = dict[str, tuple[float, float]]


def _means(rows: Sequence[_Scores]) -> dict[str, Any]:
    def mean(name: str, side: int) -> float:
        return round(sum(row[name][side] for row in rows) / len(rows), 4)

    figures = {name: {"raw": mean(name, 0), "plan": mean(name, 1)} for name in _SCORES}
    return {"questions": len(rows), **figures}


def _figures(rows: Sequence[_Scores]) -> dict[str, Any]:
    figures = _means(rows)
    for name in _SCORES:
        differences = [row[name][1] - row[name][0] for row in rows]
        low, high = interval(differences)
        figures[name] |= {
            "difference": round(sum(differences) / len(rows), 4),
            "interval": [round(low, 4), round(high, 4)],
        }
    return figures


def plans_of_model(questions: Sequence[str], model_dir: Path) -> tuple[str, Plans]:
    """Return the model's id and its plans, from the replicas of the service. Raises EngineError."""
    made = plans_by_model([Question.parse(question) for question in questions], model_dir)
    if made.by_reader:
        raise EngineError(f"the model ended no plan for {made.by_reader} questions")
    return made.model_id, [plan.model_dump() for plan in made.plans[0]]


def measure(model: Path) -> dict[str, Any]:
    """Return the whole figure: the model's plans and the reader's, beside the raw words."""
    settings = Settings()
    cases = all_cases(list(catalogue.read(catalogue.PRODUCTS)))
    shop = Shop.open(settings.cache_dir, catalogue.PRODUCTS)
    questions = [case.query for case in cases]
    model_id, plans = plans_of_model(questions, model)
    read = [plan.model_dump() for plan in plans_by_reader(map(Question.parse, questions), model)]
    return {
        "command": "peakplan bench retrieval",
        "machine": describe_machine(),
        "questions": {"count": len(cases), "sha256": questions_hash()},
        "model": {"id": model_id, **compare(cases, plans, shop)},
        "reader": compare(cases, read, shop),
        "model_over_reader": more_than(cases, plans, read, shop),
    }


def more_than(cases: Sequence[Case], plans: Plans, others: Plans, shop: Shop) -> dict[str, Any]:
    """Return how much more nDCG@10 plans find than others, by half, with the interval."""
    found = {}
    for half in HALVES:
        mine = [each for each in zip(cases, plans, others, strict=True) if each[0].split == half]
        scores = [[_ndcg_of(plan, case, shop) for plan in pair] for case, *pair in mine]
        differences = [one - other for one, other in scores]
        found[half] = {
            "difference": round(sum(differences) / len(differences), 4),
            "interval": [round(end, 4) for end in interval(differences)],
        }
    return found


def _ndcg_of(plan: dict[str, Any], case: Case, shop: Shop) -> float:
    return ndcg([hit.id for hit in shop.search_plan(plan, case.query, DEPTH, SECONDS).hits], case.right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Settings().model_dir, help="model folder")
    parser.add_argument("--output", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    figure = measure(arguments.model)
    write_figure(arguments.output, figure)
    print(json.dumps(figure, indent=1))


if __name__ == "__main__":
    main()
