"""`POST /answer` measured: `peakplan bench answers` writes docs/figures/answers.json and rated.json.

  first    closed loop: the time to the first three options, beside `POST /plan` and then `POST /shop/search`, the two
           ways in turn for every question, so that both see the same machine
  load     open loop at 70% of what a closed loop gets answered by the model; counted from when each question was due
  meets    200 questions kept from tuning: whether all options shown first meet the prices and exclusions of a rule that
           knows the question and not the plan. The sample catalogue has no ratings, so none is asked for
  rated    the same questions, each of which also asks for a rating in one of WAYS, written before any was asked, of the
           sample catalogue with ratings drawn from a seed. The client package's shop searches with the plan. It shows
           that a rating which is asked for reaches the products; what ratings of a real shop do, it does not

The plan cache is off. A figure made beside other work says so with `--shared`.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from peakplan_client import AsyncClient, catalogue
from peakplan_client.answering import Options
from peakplan_client.catalogue import Product
from peakplan_client.errors import PlannerError
from peakplan_client.indexing import build_index
from peakplan_client.mapping import CatalogueMapping, RatingMapping
from peakplan_client.shop import MAPPING, Shop
from peakplan_client.sqlite_products import SqliteProducts

from rehearsal.bench.machine import describe_machine, write_figure
from rehearsal.bench.retrieval import QUESTIONS as HELD_OUT
from rehearsal.server import serving

FIGURE = Path("docs/figures/answers.json")
QUESTIONS = Path("rehearsal/bench/answer_questions.jsonl")
SHARE_OF_CAPACITY = 0.7
_TIMEOUT_SECONDS = 5.0
_SEED = 1
Row = Mapping[str, Any]


def kept_questions() -> list[dict[str, Any]]:
    """Return questions, with the bounds and the pattern of what they exclude: held out ones, and our own file's."""
    rows = []
    for line in HELD_OUT.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["split"] == "test":
            rule = row["right"]["any"][0] if "any" in row["right"] else row["right"]
            bounds = {
                name: rule[name] for name in ("min", "max", "exclude") if name in rule and row["class"] in _STATED
            }
            rows.append({"query": row["query"], **bounds})
    own = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    return rows + own


_STATED = ("price", "exclusion")  # classes whose rule says only what the question says


def meets(product: Product, rule: Row) -> bool:
    """Tell whether a product is within the bounds of a rule and says nothing that it excludes."""
    text = f"{product.name}. {product.description}"
    within = rule.get("min", 0) <= product.price <= rule.get("max", float("inf"))
    return within and not ("exclude" in rule and re.search(rf"\b(?:{rule['exclude']})\b", text, re.IGNORECASE))


async def first_options(client: AsyncClient, query: str, deadline_ms: int = 300) -> tuple[float, Options]:
    """Return after how many milliseconds the first options came, and these. Raises PlannerError."""
    started = time.perf_counter()
    async for event in client.answer(query, deadline_ms=deadline_ms, timeout=_TIMEOUT_SECONDS):
        if isinstance(event, Options):
            taken, options = (time.perf_counter() - started) * 1000, event
    return taken, options


async def sequentially(http: httpx.AsyncClient, query: str) -> float:
    """Return after how many milliseconds the shop's answer came, where plan and search are a request each."""
    started = time.perf_counter()
    plan = (await http.post("/plan", json={"query": query})).json()["plan"]
    (await http.post("/shop/search", json={"query": query, "plan": plan})).raise_for_status()
    return (time.perf_counter() - started) * 1000


async def measure_first(url: str, queries: Sequence[str]) -> dict[str, Any]:
    """Ask every question in both ways, one request at a time, in turn."""
    one, two = [], []
    async with AsyncClient(url) as client, httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_SECONDS) as http:
        for at, query in enumerate(queries):
            for is_answer in (True, False) if at % 2 else (False, True):
                if is_answer:
                    one.append((await first_options(client, query))[0])
                else:
                    two.append(await sequentially(http, query))
    return {"questions": len(queries), "answer": quantiles(one), "plan_then_search": quantiles(two)}


async def capacity(url: str, queries: Sequence[str], at_once: int, seconds: float) -> float:
    """Return answers a second whose plans are the model's, with so many callers who ask again at once."""
    end = time.monotonic() + seconds
    made = 0

    async def caller(number: int) -> None:
        nonlocal made
        rng = random.Random(number)
        async with AsyncClient(url) as client:
            while time.monotonic() < end:
                await first_options(client, rng.choice(queries), 2000)
                made += 1

    await asyncio.gather(*map(caller, range(at_once)))
    return made / seconds


async def under_load(url: str, queries: Sequence[str], rate: float, seconds: float) -> dict[str, Any]:
    """Ask at random times, so many a second on average, whether or not earlier questions were answered."""
    rng = random.Random(_SEED)
    times: list[float] = []
    shown, failed = 0, 0
    started = time.perf_counter()

    async def ask(due: float, client: AsyncClient) -> None:
        nonlocal shown, failed
        try:
            _, options = await first_options(client, rng.choice(queries))
        except PlannerError:
            failed += 1
            return
        times.append((time.perf_counter() - started - due) * 1000)
        shown += bool(options.options)

    async with AsyncClient(url) as client, asyncio.TaskGroup() as asking:
        due = 0.0
        while due < seconds:
            await asyncio.sleep(max(0.0, due - (time.perf_counter() - started)))
            asking.create_task(ask(due, client))
            due += rng.expovariate(rate)
    asked = len(times) + failed
    return {
        "rate": round(rate, 1),
        "asked": asked,
        "failed": failed,
        "with_options": shown,
        "first_ms": quantiles(times),
    }


async def measure_meets(url: str, products: Mapping[str, Product]) -> dict[str, Any]:
    """Return of how many questions all first options meet what was asked, and the other questions."""
    rows = kept_questions()
    sound, three, wrong = 0, 0, []
    async with AsyncClient(url) as client:
        for row in rows:
            _, found = await first_options(client, row["query"], 2000)
            is_sound = bool(found.options) and all(meets(products[each.id], row) for each in found.options)
            sound += is_sound
            three += len(found.options) == 3
            if not is_sound:
                wrong.append(row["query"])
    stated = sum("min" in row or "max" in row or "exclude" in row for row in rows)
    share = round(sound / len(rows), 4)
    return {"questions": len(rows), "with_a_bound": stated, "three": three, "all_meet": share, "wrong": wrong}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": round(median(ordered), 1), "p99": round(ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)], 1)}


async def measure(url: str, arguments: argparse.Namespace, replicas: int) -> dict[str, Any]:
    products = {each.id: each for each in catalogue.read()}
    queries = [row["query"] for row in kept_questions()]
    await measure_first(url, queries[:20])  # warms both ways
    figure = {"meets": await measure_meets(url, products)}
    if arguments.without_times:
        return figure
    figure["first"] = await measure_first(url, queries)
    most = await capacity(url, queries, replicas, arguments.seconds / 2)
    load = await under_load(url, queries, SHARE_OF_CAPACITY * most, arguments.seconds)
    return figure | {"load": {"capacity": round(most, 1), "share": SHARE_OF_CAPACITY, **load}}


RATED = Path("docs/figures/rated.json")
FIRST = 3
_RATING_SEED = 35
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
    return round(random.Random(f"{_RATING_SEED} {product.id}").triangular(_LEAST, _MOST, _MODE), 1)


def rated_shop(folder: Path, products: Mapping[str, Product]) -> Shop:
    """Build the rated catalogue's database and open it."""
    mapping = CatalogueMapping.load(MAPPING).model_copy(update={"rating": RatingMapping(field="rating")})
    columns = [*(field.name for field in fields(Product)), "rating"]
    rows = ((*astuple(product), rating_of(product)) for product in products.values())
    build_index(folder / "rated.sqlite", columns, rows, mapping)
    return Shop(SqliteProducts(folder / "rated.sqlite"), mapping)


async def measure_rated(
    plan: Callable[[str], Awaitable[Any]], shop: Shop, products: Mapping[str, Product]
) -> dict[str, Any]:
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


async def _rated(url: str, shop: Shop, products: Mapping[str, Product]) -> dict[str, Any]:
    async with AsyncClient(url, timeout=60.0, deadline_ms=2000) as client:

        async def plan(query: str) -> Any:
            return (await client.plan(query)).plan

        return await measure_rated(plan, shop, products)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the open loop")
    parser.add_argument("--without-times", action="store_true", help="only whether what is shown meets what was asked")
    parser.add_argument("--shared", action="store_true", help="the machine has other work: the figure says so")
    parser.add_argument("--output", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving({"PEAKPLAN_CACHE_ENTRIES": 0, "PEAKPLAN_SAMPLE_SHOP": 1}) as server,
    ):
        measured = asyncio.run(measure(server.url, arguments, max(len(server.replicas()), 1)))
        products = {each.id: each for each in catalogue.read()}
        rated = asyncio.run(_rated(server.url, rated_shop(Path(folder), products), products))
    given = [("--without-times", arguments.without_times), ("--shared", arguments.shared)]
    command = " ".join(["python -m rehearsal.answers", *(name for name, is_set in given if is_set)])
    figure = {"command": command, "machine": describe_machine(), "shared": arguments.shared, **measured}
    write_figure(arguments.output, figure)
    write_figure(arguments.output.with_name(RATED.name), {"seed": _RATING_SEED, **rated})
    print(json.dumps(figure, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
