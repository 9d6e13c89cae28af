"""Seeded shoppers drive a real service over HTTP, and tell it what they did: `python -m rehearsal.shoppers URL`.

Each has a need of rehearsal/bench/retrieval_questions.jsonl, of which the right products are known, asks
`POST /answer`, waits as long as they have patience, and reports to `POST /outcomes`. Half of them are in the arm
`treatment`, in which effects can be planted (`--plant buy=1.1`, `--plant click=0.95`, `--plant delay_ms=200`). It says
what really happened, beside which `peakplan value` can be held: it proves the instrument, and no lift of any shop.

What a shopper does with what is shown (`visit`) is pure and seeded, by the click models of Craswell et al. 2008: in the
cascade model a shopper goes down the list until satisfied, in the position-based one each rank is looked at with a
chance of its own. How large the chances are is made up.
"""

import argparse
import asyncio
import hashlib
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import httpx
from peakplan_client import AsyncClient, catalogue
from peakplan_client.answering import Done, More, Option, Options
from peakplan_client.errors import PlannerError
from peakplan_client.plan import Answer

from rehearsal.bench.retrieval import Case, read_cases

ClickModel = Literal["cascade", "position"]
CLICKS_RIGHT, CLICKS_WRONG = 0.6, 0.05  # of products that are looked at
SATISFIED = 0.7  # of the right ones that were clicked
GOES_ON = 0.85  # to the next rank, who is not satisfied yet
ADDS = 0.5  # of the right ones that were clicked
BUYS = 0.5  # of those in the basket
COMES_BACK, COMES_BACK_AFTER_BUYING = 0.15, 0.4
PATIENCE_MS = 4000.0  # the mean of what shoppers wait for a first answer; half of them wait less than 0.7 of it
EXPERIMENT = "seeded"
ARMS = ("control", "treatment")
_MOST_VISITS = 3
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Effects:
    """What is planted in an arm: factors of the chances to click and to buy, and milliseconds before anything shows."""

    click: float = 1.0
    buy: float = 1.0
    delay_ms: float = 0.0


_PLAIN = Effects()


@dataclass(slots=True)
class Visit:
    """What happened after one question, as ranks from 0."""

    left_ms: float | None = None  # after which the shopper had gone, without an answer
    clicked: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)
    bought: list[int] = field(default_factory=list)
    comes_back: bool = False


def visit(
    is_right: Sequence[bool], first_ms: float, rng: random.Random, model: ClickModel, effects: Effects = _PLAIN
) -> Visit:
    """Return what a shopper does with products of which some are right, the first of them shown after `first_ms`."""
    patience = rng.expovariate(1 / PATIENCE_MS)
    if first_ms + effects.delay_ms > patience:
        return Visit(left_ms=patience)
    done = Visit(clicked=_MODELS[model](is_right, rng, effects.click))
    for rank in done.clicked:
        if is_right[rank] and rng.random() < ADDS:
            done.added.append(rank)
            if rng.random() < BUYS * effects.buy:
                done.bought.append(rank)
    done.comes_back = rng.random() < (COMES_BACK_AFTER_BUYING if done.bought else COMES_BACK)
    return done


def _cascade(is_right: Sequence[bool], rng: random.Random, factor: float) -> list[int]:
    clicked = []
    for rank, right in enumerate(is_right):
        if rng.random() < (CLICKS_RIGHT if right else CLICKS_WRONG) * factor:
            clicked.append(rank)
            if right and rng.random() < SATISFIED:
                break
        if rng.random() > GOES_ON:
            break
    return clicked


def _position(is_right: Sequence[bool], rng: random.Random, factor: float) -> list[int]:
    return [
        rank
        for rank, right in enumerate(is_right)
        if rng.random() < 1 / math.log2(rank + 2) and rng.random() < (CLICKS_RIGHT if right else CLICKS_WRONG) * factor
    ]


_MODELS: dict[ClickModel, Callable[[Sequence[bool], random.Random, float], list[int]]] = {
    "cascade": _cascade,
    "position": _position,
}


@dataclass(frozen=True, slots=True)
class Shopping:
    """How shoppers behave, and what is planted in the treatment."""

    seed: int
    model: ClickModel
    planted: Effects


def arm_of(seed: int, shopper: int) -> str:
    """Return a shopper's arm, which a hash of who they are tells."""
    return ARMS[hashlib.sha256(f"{seed} {shopper}".encode()).digest()[0] % len(ARMS)]


class Shoppers:
    """Shoppers at a service; `counts` are what each arm's shoppers did."""

    def __init__(self, client: AsyncClient, http: httpx.AsyncClient, cases: Sequence[Case], how: Shopping) -> None:
        self._client, self._http, self._cases, self._how = client, http, cases, how
        self.counts: dict[str, Counter[str]] = {arm: Counter() for arm in ARMS}

    async def go(self, number: int) -> None:
        """Let one shopper come, and come again for as long as they want. Raises PlannerError, httpx.HTTPError."""
        rng = random.Random(f"{self._how.seed} {number}")
        arm = arm_of(self._how.seed, number)
        self.counts[arm]["shoppers"] += 1
        before = ""
        for _ in range(_MOST_VISITS):
            case = rng.choice(self._cases)
            query_id, options, done = await self._ask(case)
            effects = self._how.planted if arm == "treatment" else Effects()
            right = [option.id in case.right for option in options]
            seen = visit(right, done.first_ms, rng, self._how.model, effects)
            self._count(arm, options, seen)
            events = _events(query_id, arm, options, seen, done.first_ms + effects.delay_ms)
            if before:
                events.append(_event("came_back", before))
                self.counts[arm]["came_back"] += 1
            await self._report(f"shopper-{self._how.seed}-{number}", events)
            if not seen.comes_back:
                break
            before = query_id

    async def _ask(self, case: Case) -> tuple[str, list[Option], Done]:
        """Return the plan's id, the products in their order, and the times."""
        query_id, options, done = "", list[Option](), Done()
        async for event in self._client.answer(case.query, timeout=_TIMEOUT_SECONDS):
            if isinstance(event, Answer):
                query_id = event.request_id
            elif isinstance(event, Options | More):
                options += event.options
            else:
                done = event
        return query_id, options, done

    async def _report(self, client_id: str, events: Sequence[dict[str, Any]]) -> None:
        body = [event | {"client_id": client_id} for event in events]
        (await self._http.post("/outcomes", json=body)).raise_for_status()

    def _count(self, arm: str, options: Sequence[Option], seen: Visit) -> None:
        counts = self.counts[arm]
        counts["asked"] += 1
        counts["left"] += seen.left_ms is not None
        counts["shown"] += seen.left_ms is None
        counts["empty"] += seen.left_ms is None and not options
        counts["clicks"] += len(seen.clicked)
        counts["carts"] += len(seen.added)
        counts["purchases"] += len(seen.bought)


def _events(query_id: str, arm: str, options: Sequence[Option], seen: Visit, shown_ms: float) -> list[dict[str, Any]]:
    """Return what a shop would send after one question."""
    events = [_event("exposure", query_id, experiment=EXPERIMENT, arm=arm)]
    if seen.left_ms is not None:
        return events
    events.append(_event("first_shown", query_id, milliseconds=round(shown_ms, 1), results=len(options)))
    happened: dict[str, Sequence[int]] = {
        "impression": range(len(options)),
        "click": seen.clicked,
        "add_to_cart": seen.added,
        "purchase": seen.bought,
    }
    for name, ranks in happened.items():
        for rank in ranks:
            paid = {"value": options[rank].price, "currency": "USD"} if name == "purchase" else {}
            what = {"object": {"object_id": options[rank].id}, "position": {"ordinal": rank + 1}}
            events.append(_event(name, query_id, **what, **paid))
    return events


def _event(name: str, query_id: str, **attributes: Any) -> dict[str, Any]:
    return {"action_name": name, "query_id": query_id} | ({"event_attributes": attributes} if attributes else {})


async def shop(url: str, shoppers: int, at_once: int, how: Shopping) -> dict[str, dict[str, int]]:
    """Let so many shoppers come, a few at once; return what each arm's did."""
    cases = read_cases(list(catalogue.read()))
    places = asyncio.Semaphore(at_once)
    async with AsyncClient(url) as client, httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_SECONDS) as http:
        crowd = Shoppers(client, http, cases, how)

        async def come(number: int) -> None:
            async with places:
                await crowd.go(number)

        async with asyncio.TaskGroup() as coming:
            for number in range(shoppers):
                coming.create_task(come(number))
    return {arm: dict(counts) for arm, counts in crowd.counts.items()}


def planted(given: Sequence[str]) -> Effects:
    """Return effects as `name=number` says them. Raises ValueError."""
    known = [each.name for each in fields(Effects)]
    values = {}
    for each in given:
        name, _, number = each.partition("=")
        if name not in known:
            raise ValueError(f"{each!r}: no effect {name!r}; there are {', '.join(known)}")
        values[name] = float(number)
    return Effects(**values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="a service with PEAKPLAN_OUTCOMES_DIR")
    parser.add_argument("--shoppers", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", choices=get_args(ClickModel), default="cascade")
    parser.add_argument("--plant", action="append", default=[], metavar="NAME=NUMBER")
    arguments = parser.parse_args()
    try:
        how = Shopping(arguments.seed, arguments.model, planted(arguments.plant))
    except ValueError as error:
        parser.error(str(error))
    try:
        counts = asyncio.run(shop(arguments.url, arguments.shoppers, arguments.at_once, how))
    except* (PlannerError, httpx.HTTPError) as errors:
        print(f"{arguments.url}: {errors.exceptions[0]}", file=sys.stderr)
        sys.exit(1)  # an except* takes no `return`
    print(json.dumps({"experiment": EXPERIMENT, "planted": arguments.plant, "arms": counts}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
