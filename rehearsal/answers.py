"""`POST /answer` measured: `python -m rehearsal.answers` writes docs/figures/answers.json.

  first    closed loop: the time to the first three options, beside `POST /plan` and then `POST /shop/search`, the two
           ways in turn for every question, so that both see the same machine
  load     open loop at 70% of what a closed loop gets answered by the model; counted from when each question was due
  meets    200 questions kept from tuning: whether all options shown first meet the prices and exclusions of a rule that
           knows the question and not the plan. The sample catalogue has no ratings, so none is asked for

The plan cache is off. A figure made beside other work says so with `--shared`.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from peakplan_client import AsyncClient, catalogue
from peakplan_client.answering import Options
from peakplan_client.catalogue import Product
from peakplan_client.errors import PlannerError

from rehearsal.bench.machine import describe_machine
from rehearsal.bench.retrieval import QUESTIONS as HELD_OUT
from rehearsal.load.server import serving

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the open loop")
    parser.add_argument("--without-times", action="store_true", help="only whether what is shown meets what was asked")
    parser.add_argument("--shared", action="store_true", help="the machine has other work: the figure says so")
    parser.add_argument("--output", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    with serving({"PEAKPLAN_CACHE_ENTRIES": 0, "PEAKPLAN_SAMPLE_SHOP": 1}) as server:
        measured = asyncio.run(measure(server.url, arguments, max(len(server.replicas()), 1)))
    given = [("--without-times", arguments.without_times), ("--shared", arguments.shared)]
    command = " ".join(["python -m rehearsal.answers", *(name for name, is_set in given if is_set)])
    figure = {"command": command, "machine": describe_machine(), "shared": arguments.shared, **measured}
    arguments.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figure, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
