"""The sample shop's mapping is learnt by `peakplan shop learn`: `python -m rehearsal.bench.sample_shop` writes it.

`--check` fails where the file is not what the command learns now. `--compare` says what the plans of the rules find
with it, and with the mapping that a person wrote (shop_by_hand.yaml).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from peakplan_client import catalogue
from peakplan_client.catalogue import Product
from peakplan_client.mapping import CatalogueMapping
from peakplan_client.shop import MAPPING, Shop

from peakplan.shop.planning import plans_by_rule
from peakplan.shop.run import Task, learn
from rehearsal.bench.retrieval import DEPTH, SECONDS, Case, Plans, ndcg, read_cases
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings

BY_HAND = Path(__file__).with_name("shop_by_hand.yaml")
_NAME = "sample-products.jsonl"
_COMMAND = f"peakplan shop learn {_NAME} --currency USD"


def learnt(products: Sequence[Product]) -> str:
    """Return the text of the mapping that the command learns of the sample catalogue."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / _NAME
        source.write_text("".join(json.dumps(asdict(each)) + "\n" for each in products), encoding="utf-8")
        task = Task(source, Path(folder) / "shop", {}, currency="USD", quiet=True, command=_COMMAND)
        return (learn(task).output / "mapping.yaml").read_text(encoding="utf-8")


def found(cases: Sequence[Case], plans: Plans, shop: Shop) -> dict[str, float]:
    """Return nDCG@10 of both halves of the questions."""
    scores: dict[str, list[float]] = {"dev": [], "test": []}
    for case, plan in zip(cases, plans, strict=True):
        hits = shop.search_plan(plan, case.query, DEPTH, SECONDS).hits
        scores[case.split].append(ndcg([hit.id for hit in hits], case.right))
    return {split: sum(each) / len(each) for split, each in scores.items()}


def compare(cache: Path) -> dict[str, dict[str, float]]:
    """Return nDCG@10 of the rules' plans with the shipped mapping and with the one by hand, by half."""
    cases = read_cases(list(catalogue.read()))
    questions = [Question.parse(case.query) for case in cases]
    plans = [plan.model_dump() for plan in plans_by_rule(questions, shipped_vocabulary())]
    shop = Shop.open(cache)
    mappings = {"learnt": CatalogueMapping.load(MAPPING), "by hand": CatalogueMapping.load(BY_HAND)}
    return {name: found(cases, plans, shop.with_mapping(mapping)) for name, mapping in mappings.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail where the file is stale")
    what.add_argument("--compare", action="store_true", help="nDCG@10 with both mappings")
    parser.add_argument("--cache", type=Path, default=Settings().cache_dir)
    arguments = parser.parse_args()
    if arguments.compare:
        for name, halves in compare(arguments.cache).items():
            print(name, " ".join(f"{half} {score:.4f}" for half, score in halves.items()))
        return 0
    text = learnt(list(catalogue.read()))
    if arguments.check and MAPPING.read_text(encoding="utf-8") != text:
        print(f"{MAPPING} is not what `{_COMMAND}` learns: python -m rehearsal.bench.sample_shop", file=sys.stderr)
        return 1
    if not arguments.check:
        MAPPING.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
