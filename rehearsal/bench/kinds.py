"""Whether plans name the right category of a shop: `python -m rehearsal.bench.kinds` writes docs/figures/kinds.json.

The sample catalogue is learnt anew. kinds_questions.jsonl has questions that name a thing, others that tell only what
it is for, some that are about no product, some about things that the shop has not got, and some needs that nothing in
it meets ("unmet"); each has the categories that are right. Silence counts as wrong. The second set was written before
any vector was trained, the third to sixth with the categories alone in sight. The shop is learnt without each of its
departments, too, and asked for what it then has not got. Then the questions of the retrieval benchmark are searched
with the plans' kinds and without them.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.shop import Shop

from peakplan.shop.intervals import interval
from peakplan.shop.planning import plans_by_model, plans_by_reader
from peakplan.shop.run import Task, learn
from rehearsal.bench.machine import write_figure
from rehearsal.bench.retrieval import DEPTH, SECONDS, Case, all_cases, ndcg
from rehearsal.bench.tables import render
from service.planner.plan import MAX_KINDS, Plan
from service.planner.question import Question
from service.planner.shop.folder import ShopFolder, read_files
from service.planner.shop.kinds import Certainty, Kinds, Thing, write_kinds
from service.planner.shop.meanings import GENERAL_VECTORS, write_meanings
from service.settings import Settings

FIGURE: Final = Path("docs/figures/kinds.json")
QUESTIONS: Final = Path(__file__).with_name("kinds_questions.jsonl")
CLASSES: Final = ("named", "unnamed", "none", "absent", "unmet")
SETS: Final = ("first", "second", "third", "fourth", "fifth", "sixth")
_MANY: Final = 50_000  # categories, for the time that a plan takes
_WORDS: Final = 5000
_TIMED: Final = 500
_SIZE: Final = 128  # numbers of a vector
Paths = dict[str, tuple[str, ...]]  # of categories by id


def questions() -> list[dict[str, Any]]:
    """Return the questions: id, set, class, query, and the paths of the right categories."""
    return [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]


@contextmanager
def learnt(products: Sequence[Product]) -> Iterator[Path]:
    """Yield the shop folder of the sample catalogue, learnt now."""
    with tempfile.TemporaryDirectory(prefix="peakplan-kinds-") as scratch:
        source = Path(scratch) / "sample-products.jsonl"
        source.write_text("".join(json.dumps(asdict(each)) + "\n" for each in products), encoding="utf-8")
        yield learn(Task(source, Path(scratch) / "shop", {}, currency="USD", quiet=True)).output


def category_paths(folder: Path) -> Paths:
    """Return the path of every category by its id."""
    rows = map(json.loads, (folder / "categories.jsonl").read_text(encoding="utf-8").splitlines())
    return {row["id"]: tuple(row["path"]) for row in rows}


def judge(asked: Sequence[dict[str, Any]], plans: Sequence[Plan], paths: Paths) -> dict[str, Any]:
    """Return by class how often the first kind is right, how often any is said and wrong, and the interval."""
    found: dict[str, Any] = {}
    for name in CLASSES:
        mine = [(each, plan) for each, plan in zip(asked, plans, strict=True) if each["class"] == name]
        if not mine:
            continue
        right = [float(_is_right(each, plan, paths)) for each, plan in mine]
        wrong = [float(bool(plan.kinds) and not _is_right(each, plan, paths)) for each, plan in mine]
        found[name] = {"questions": len(mine)} | {
            what: {"share": round(sum(each) / len(each), 4), "interval": [round(end, 4) for end in interval(each)]}
            for what, each in (("right", right), ("wrong", wrong))
        }
    return found


def _by_set(asked: Sequence[dict[str, Any]], plans: Sequence[Plan], paths: Paths) -> dict[str, Any]:
    found = {}
    for name in SETS:
        mine = [(each, plan) for each, plan in zip(asked, plans, strict=True) if each.get("set", SETS[0]) == name]
        found[name] = judge([each for each, _ in mine], [plan for _, plan in mine], paths)
    return found


def _is_right(asked: dict[str, Any], plan: Plan, paths: Paths) -> bool:
    return bool(plan.kinds) and list(paths[plan.kinds[0].id]) in asked["right"]


def left_out(
    asked: Sequence[dict[str, Any]], told: Sequence[Question], products: Sequence[Product], model: Path
) -> dict[str, Any]:
    """Return how often plans name a kind for what only a department has that the shop was learnt without, by class."""
    named: dict[str, list[float]] = {"named": [], "unnamed": []}
    for department in sorted({product.category for product in products}):
        mine = [at for at, each in enumerate(asked) if {path[0] for path in each["right"]} == {department}]
        with learnt([product for product in products if product.category != department]) as folder:
            plans = plans_by_reader([told[at] for at in mine], model, ShopFolder.load(folder).lexicon)
        for at, plan in zip(mine, plans, strict=True):
            named[asked[at]["class"]].append(float(bool(plan.kinds)))
    return {
        name: {
            "questions": len(each),
            "share": round(sum(each) / len(each), 4),
            "interval": [round(end, 4) for end in interval(each)],
        }
        for name, each in named.items()
    }


def search(cases: Sequence[Case], plans: Sequence[Plan], shop: Shop) -> dict[str, Any]:
    """Return nDCG@10 by half, for vague questions and for sorts, with the plans' kinds and without them."""
    pairs = []
    for case, plan in zip(cases, plans, strict=True):
        bare = plan.model_copy(update={"kinds": []})
        hits = [shop.search_plan(each.model_dump(), case.query, DEPTH, SECONDS).hits for each in (plan, bare)]
        pairs.append([ndcg([hit.id for hit in each], case.right) for each in hits])
    found = {}
    for name in ("unseen", "vague, unseen", "test", "dev", "vague", "sorts"):
        mine = [pair for case, pair in zip(cases, pairs, strict=True) if name in (case.split, case.kind)]
        differences = [with_kinds - without for with_kinds, without in mine]
        found[name] = {
            "questions": len(mine),
            "with": round(sum(pair[0] for pair in mine) / len(mine), 4),
            "without": round(sum(pair[1] for pair in mine) / len(mine), 4),
            "difference": round(sum(differences) / len(differences), 4),
            "interval": [round(end, 4) for end in interval(differences)],
        }
    return found


def microseconds() -> tuple[float, float]:
    """Return what naming kinds takes in a shop of 50,000 categories, of eight words and of a need; medians."""
    chance = random.Random(0)
    told = {
        f"word{number}": {chance.randrange(_MANY): chance.random() * 5 for _ in range(100)} for number in range(_WORDS)
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_kinds(folder, [(f"{one:x}", f"Kind {one}") for one in range(_MANY)], told, {}, Certainty(0.5, 0.0, 0.0))
        vectors = np.random.default_rng(0).integers(-127, 127, (_WORDS, _SIZE)).astype(np.int8)
        of_kinds = np.random.default_rng(1).standard_normal((_MANY, _SIZE)).astype(np.float32) / _SIZE**0.5
        write_meanings(folder, list(told), vectors, of_kinds, general=np.load(GENERAL_VECTORS))
        kinds, taken, needing = Kinds(read_files(folder)), list[float](), list[float]()
        for number in range(2 * _TIMED):
            query = " ".join(f"word{chance.randrange(_WORDS)}" for _ in range(8))
            thing = Thing(query, (), query) if number % 2 else Thing(query)
            started = time.thread_time()
            kinds.of([thing], MAX_KINDS)
            (needing if thing.need else taken).append(1e6 * (time.thread_time() - started))
    return round(median(taken), 1), round(median(needing), 1)


def measure(model: Path) -> dict[str, Any]:
    """Return the whole figure, of the reader's plans and the model's."""
    products = list(catalogue.read(catalogue.PRODUCTS))
    cases = all_cases(products)
    asked, shop = questions(), Shop.open(Settings().cache_dir, catalogue.PRODUCTS)
    told = [Question.parse(each["query"]) for each in asked] + [Question.parse(case.query) for case in cases]
    figure: dict[str, Any] = {"command": "python -m rehearsal.bench.kinds"}
    with learnt(products) as folder:
        lexicon, paths = ShopFolder.load(folder).lexicon, category_paths(folder)
        made = plans_by_model(told, model, (lexicon,))
        figure["model"] = made.model_id
        for name, plans in (("reader", plans_by_reader(told, model, lexicon)), ("model", made.plans[0])):
            own, searched = plans[: len(asked)], plans[len(asked) :]
            figure[f"by_{name}"] = _by_set(asked, own, paths) | {"search": search(cases, searched, shop)}
    figure["left_out"] = left_out(asked, told, products, model)
    named, needed = microseconds()
    return figure | {"categories": len(paths), "microseconds": named, "microseconds_need": needed, "many": _MANY}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Settings().model_dir, help="model folder")
    parser.add_argument("--output", type=Path, default=FIGURE)
    given = parser.parse_args()
    figure = measure(given.model)
    write_figure(given.output, figure)
    print(render("kinds", figure))


if __name__ == "__main__":
    main()
