"""Ratings in answers: `python -m rehearsal.rated` writes docs/figures/rated.json.

No catalogue that this project may use has ratings, so this makes one: the sample catalogue, each product rated by
chance from a seed. Each of the 200 questions of rehearsal/answers.py that are kept from tuning also asks for a rating,
in one of the ways below in turn, which were written before any was asked. The plan is that of `POST /plan`; the client
package's shop searches with it. A rule that knows question and rating, but neither plan nor search, judges the first
three. That shows that a rating which is asked for reaches the products; what ratings of a real shop do, it does not.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from peakplan_client import AsyncClient, catalogue
from peakplan_client.catalogue import Product
from peakplan_client.indexing import build_index
from peakplan_client.mapping import CatalogueMapping, RatingMapping
from peakplan_client.shop import MAPPING, Shop
from peakplan_client.sqlite_products import SqliteProducts

from rehearsal.answers import kept_questions, meets
from rehearsal.load.server import serving

FIGURE = Path("docs/figures/rated.json")
FIRST = 3
_SEED = 35
_LEAST, _MOST, _MODE = 1.0, 5.0, 4.4
WAYS = (
    ("{}, at least 4 stars", 4.0),
    ("{} rated 4 or higher", 4.0),
    ("{} with 4.5 stars or better", 4.5),
    ("4+ star {}", 4.0),
    ("{}, 3 stars and up", 3.0),
    ("{}, four stars or more", 4.0),
    ("{} with a rating of at least 3.5", 3.5),
    ("{} rated above 4", 4.0),
    ("{}, minimum 4 stars", 4.0),
    ("{} with no less than 4 stars", 4.0),
)
Asked = Mapping[str, Any]


def questions() -> list[dict[str, Any]]:
    """Return the kept questions, each with a rating that it asks for."""
    made = []
    for place, row in enumerate(kept_questions()):
        way, least = WAYS[place % len(WAYS)]
        made.append(row | {"query": way.format(row["query"]), "rating": least})
    return made


def rating_of(product: Product) -> float:
    """Return the made-up rating of a product, always the same."""
    return round(random.Random(f"{_SEED} {product.id}").triangular(_LEAST, _MOST, _MODE), 1)


def rated_shop(folder: Path, products: Mapping[str, Product]) -> Shop:
    """Build the rated catalogue's database and open it."""
    mapping = CatalogueMapping.load(MAPPING).model_copy(update={"rating": RatingMapping(field="rating")})
    columns = [*(field.name for field in fields(Product)), "rating"]
    rows = ((*astuple(product), rating_of(product)) for product in products.values())
    build_index(folder / "rated.sqlite", columns, rows, mapping)
    return Shop(SqliteProducts(folder / "rated.sqlite"), mapping)


async def measure(plan: Callable[[str], Awaitable[Any]], shop: Shop, products: Mapping[str, Product]) -> dict[str, Any]:
    """Return of how many questions the first three all meet what was asked, and which others there are."""
    rows, sound, three, wrong = questions(), 0, 0, []
    unrated = 0  # questions for which something is shown that is rated worse than asked
    for row in rows:
        hits = shop.search_plan(await plan(row["query"]), row["query"]).hits[:FIRST]
        shown = [products[hit.id] for hit in hits]
        is_rated = all(rating_of(each) >= row["rating"] for each in shown)
        unrated += not is_rated
        is_sound = bool(shown) and is_rated and all(meets(each, row) for each in shown)
        sound, three = sound + is_sound, three + (len(shown) == FIRST)
        if not is_sound:
            wrong.append(row["query"])
    return {
        "questions": len(rows),
        "three": three,
        "all_meet": round(sound / len(rows), 4),
        "rated_worse": unrated,
        "rated_high_enough": {
            str(least): round(sum(rating_of(each) >= least for each in products.values()) / len(products), 2)
            for least in sorted({least for _, least in WAYS})
        },
        "wrong": wrong,
    }


async def _measured(url: str, shop: Shop, products: Mapping[str, Product]) -> dict[str, Any]:
    async with AsyncClient(url, timeout=60.0, deadline_ms=2000) as client:

        async def plan(query: str) -> Any:
            return (await client.plan(query)).plan

        return await measure(plan, shop, products)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=FIGURE)
    given = parser.parse_args()
    products = {each.id: each for each in catalogue.read()}
    with tempfile.TemporaryDirectory() as folder, serving({"PEAKPLAN_CACHE_ENTRIES": 0}) as server:
        figure = asyncio.run(_measured(server.url, rated_shop(Path(folder), products), products))
    figure = {"command": "python -m rehearsal.rated", "seed": _SEED, **figure}
    given.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figure, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
