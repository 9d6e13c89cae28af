"""A second shop, of real products that people rated: `make bench-second-catalogue` learns and searches WANDS.

42,994 products of Wayfair's with a category path, 480 queries and 233,448 judgements (Chen et al., ECIR 2022; MIT). Its
files are fetched at a pinned commit, and each is checked by the name that git gives its content. One that was brought
by hand is used as it is, if it is the same. The shop folder is learnt by `peakplan shop learn`, searches are measured
by `peakplan shop evaluate`, and the first kind of each plan is compared with the category that the set gives the
query. No part of training reads it. **Not run yet**: where this was written the files could not be reached.
"""

import argparse
import csv
import hashlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from peakplan_client.mapping import normal

from benchmarks.machine import describe_machine
from service.planner.plan import Plan
from service.planner.question import Question
from service.planner.shop.folder import ShopFolder
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from shops.evaluating import evaluate
from shops.intervals import interval
from shops.judgements import read_judgements
from shops.planning import plans_by_model, plans_by_rule
from shops.run import Task, learn
from training.fetch_data import FetchError, Source

FIGURE = Path("docs/figures/second_catalogue.json")
REPOSITORY, REVISION = "wayfair/WANDS", "3b74dcf4ba29ab8ff3e6a50b5b09fc627cb882b5"
FILES = {  # each with its git object, which is the SHA-1 of its length and content
    "product": "a415f7295dc0d90b3163ef606da611a4e9ddeca8",
    "query": "acb3c1f4cf1b775f494225afec79ec2163fc3e03",
    "label": "2c09a0d7b1f77f6040deb5873b5a90b8ef1e3ae9",
}
GRADES = {"Exact": 2, "Partial": 1, "Irrelevant": 0}
MOST_ATTRIBUTES = 40  # those that most products have; the set has thousands
_CHARACTERS = 1 << 20  # of a field


def bring(folder: Path, files: Mapping[str, str] = FILES) -> dict[str, Path]:
    """Return the set's files by name, fetched where they are not in the folder. Raises FetchError."""
    found = {}
    for name, wanted in files.items():
        source = Source(REPOSITORY, REVISION, f"dataset/{name}.csv")
        found[name] = path = source.place(folder)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_download(source.url, path))
        if (got := git_object(path)) != wanted:
            raise FetchError(f"{path} is not that of {REPOSITORY} at {REVISION} (git object {got}, not {wanted})")
    return found


def _download(url: str, path: Path) -> bytes:
    try:
        response = httpx.get(url, follow_redirects=True, timeout=120)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise FetchError(f"{url} cannot be fetched ({error}): bring it as {path}") from error
    return response.content


def git_object(path: Path) -> str:
    """Return the name that git gives a file's content."""
    body = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(body) + body, usedforsecurity=False).hexdigest()


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of one of the set's files, whose cells stand between tabs."""
    csv.field_size_limit(_CHARACTERS)
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t")


def write_products(source: Path, path: Path) -> int:
    """Write the set's products as `peakplan shop learn` reads them; return how many."""
    features = [_features(row["product_features"] or "") for row in rows(source)]
    common = [name for name, _ in Counter(name for each in features for name in each).most_common(MOST_ATTRIBUTES)]
    with path.open("w", encoding="utf-8") as file:
        for row, mine in zip(rows(source), features, strict=True):
            product = {
                "id": row["product_id"],
                "title": row["product_name"],
                "category": [step.strip() for step in _path_of(row).split("/") if step.strip()],
                "description": row["product_description"] or "",
                "rating": float(row["average_rating"]) if row["average_rating"] else None,
                **{f"feature_{name}": mine[name] for name in common if name in mine},
            }
            file.write(json.dumps(product, ensure_ascii=False) + "\n")
    return len(features)


def _path_of(row: Mapping[str, str]) -> str:
    return row.get("category hierarchy") or row.get("category_hierarchy") or row["product_class"] or ""


def _features(text: str) -> dict[str, str]:
    """Return a product's attributes: `name : value|name : value`, the first value of each."""
    found: dict[str, str] = {}
    for pair in text.split("|"):
        name, colon, value = pair.partition(":")
        if colon and name.strip() and value.strip():
            found.setdefault("".join(c if c.isalnum() else "_" for c in name.strip().lower()), value.strip())
    return found


def write_judgements(files: Mapping[str, Path], path: Path) -> dict[str, tuple[str, str]]:
    """Write question, product and grade between tabs; return each query's words and category by its id."""
    asked = {row["query_id"]: (row["query"], row["query_class"] or "") for row in rows(files["query"])}
    with path.open("w", encoding="utf-8") as file:
        for row in rows(files["label"]):
            query, _ = asked[row["query_id"]]
            file.write(f"{' '.join(query.split())}\t{row['product_id']}\t{GRADES[row['label']]}\n")
    return asked


def first_kinds(asked: Sequence[tuple[str, str]], plans: Sequence[Plan]) -> dict[str, Any]:
    """Return how often the first kind is the category that the set gives a query, and how often it is another."""
    told = [(normal(category), plan) for (_, category), plan in zip(asked, plans, strict=True) if category]
    right = [float(bool(plan.kinds) and normal(plan.kinds[0].name) == category) for category, plan in told]
    wrong = [float(bool(plan.kinds)) - each for each, (_, plan) in zip(right, told, strict=True)]
    shares = {
        what: {"share": round(sum(each) / len(each), 4), "interval": [round(end, 4) for end in interval(each)]}
        for what, each in (("right", right), ("wrong", wrong))
    }
    return {"queries": len(told), **shares}


def measure(files: Mapping[str, Path], model: Path, *, with_model: bool) -> dict[str, Any]:
    """Learn the shop, and return what searches find in each way and how often the first kind is right."""
    with tempfile.TemporaryDirectory(prefix="peakplan-second-") as scratch:
        products, judged = Path(scratch) / "products.jsonl", Path(scratch) / "judgements.tsv"
        count = write_products(files["product"], products)
        asked = list(write_judgements(files, judged).values())
        folder = learn(Task(products, Path(scratch) / "shop", {"category": "category"}, quiet=True)).output
        found = evaluate(
            read_judgements([judged]), products, folder, Path(scratch), model_dir=model, with_model=with_model
        ).summary()
        lexicon, questions = ShopFolder.load(folder).lexicon, [Question.parse(query) for query, _ in asked]
        kinds = {"rules": first_kinds(asked, plans_by_rule(questions, Vocabulary.load(model), lexicon))}
        if with_model:
            kinds["model"] = first_kinds(asked, plans_by_model(questions, model, (lexicon,)).plans[0])
    found = {name: found[name] for name in ("questions", "model", "ways", "notes")}
    return {"command": "make bench-second-catalogue", "machine": describe_machine(), "products": count,
            "search": found, "first_kind": kinds}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that keeps the files")
    parser.add_argument("--model", type=Path, default=Settings().model_dir)
    parser.add_argument("--rules-alone", action="store_true", help="plans by rule alone: no model is loaded")
    parser.add_argument("--output", type=Path, default=FIGURE)
    given = parser.parse_args()
    try:
        files = bring(given.data)
    except FetchError as error:
        sys.exit(f"error: {error}")
    text = json.dumps(measure(files, given.model, with_model=not given.rules_alone), indent=1)
    given.output.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
