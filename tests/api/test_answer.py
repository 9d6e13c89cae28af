"""`POST /answer`: the plan, three products with their wishes, the others; whatever fails, the plan is there."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from peakplan_client import assigned

from service.api import shop as shop_module
from service.api.answers import EVENTS
from service.api.shop import Options, SampleShop, ShopAnswer, ShopRequest
from service.planner.plan import Plan
from service.settings.groups import AuthSettings, ExperimentSettings, OutcomeSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine, settle, until

pytestmark = pytest.mark.anyio
catalogue = pytest.importorskip("peakplan_client.catalogue")

BOOTS = " Find Color red Type boots Max under $100 Not Material suede Any"
ASKED = {"query": "red boots under $100, not suede"}
ASKED_SHOP: dict[str, Any] = {
    "query": "red shoes", "plan": {"mode": "keyword", "intent": "find_product", "queries": ["red shoes"]}
}  # fmt: skip
NAMES = [
    "Red Boots", "Red Suede Boots", "Boots of Red", "Dear Red Boots", "Rubber Boots", "Red Socks", "Red Garden Boots",
]  # fmt: skip
PRICES = [80.0, 60.0, 99.0, 300.0, 20.0, 5.0, 45.0]
Event = tuple[str, dict[str, Any]]


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the sample shop sell a few things."""
    kept = [
        catalogue.Product(f"p{at}", name, "boot" if "Boots" in name else "socks", "footwear", "Fine.", price, None)
        for at, (name, price) in enumerate(zip(NAMES, PRICES, strict=True))
    ]
    monkeypatch.setattr(shop_module, "OPTIONS_SECONDS", 300.0)  # a busy machine changes no answer
    monkeypatch.setattr(catalogue, "read", lambda _: iter(kept))
    return tmp_path


def events_of(response: httpx.Response) -> list[Event]:
    """Return name and data of each event."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return events


async def answer(*engines: FakeEngine, body: dict[str, Any] = ASKED, **settings: Any) -> list[Event]:
    async with talking_to(*engines, **settings) as client:
        return events_of(await client.post("/answer", json=body))


async def test_the_plan_then_three_products_with_their_wishes_then_the_others(cache_dir: Path) -> None:
    events = await answer(FakeEngine(text=BOOTS), cache_dir=cache_dir)
    assert [name for name, _ in events] == ["plan", "options", "more", "done"]
    plan, options, more, done = (data for _, data in events)
    assert plan["plan"]["price"]["max"] == 100
    assert plan["source"] == "model"
    first, others = options["options"], more["options"]
    assert len(first) == 3
    assert {each["name"] for each in first + others} == {
        "Red Boots", "Boots of Red", "Red Garden Boots", "Rubber Boots", "Red Socks"
    }  # fmt: skip
    wished = {wish["says"] for each in first for wish in each["met"]}
    assert {"boots", "up to 100 USD", "color: red"} <= wished
    assert all(each["unmet"] == [] for each in first)
    (socks,) = [each for each in first + others if each["name"] == "Red Socks"]
    assert [wish["says"] for wish in socks["unmet"]] == ["boots"]
    (rubber,) = [each for each in first + others if each["name"] == "Rubber Boots"]
    assert [wish["says"] for wish in rubber["unknown"]] == ["color: red"]
    (red,) = [each for each in first if each["name"] == "Red Boots"]
    assert [wish["says"] for wish in red["unknown"]] == ["not suede"], "its text names no material"
    assert 0 < done["plan_ms"] <= done["first_ms"] == options["milliseconds"] <= done["total_ms"]


async def test_an_answer_is_of_the_shopper_s_arm_says_which_and_is_kept_as_exposure(cache_dir: Path) -> None:
    trial = ExperimentSettings(name="autumn", arms="control=50,rules=50")
    sources = {"control": "model", "rules": "rules"}
    who = {arm: next(f"b{n}" for n in range(99) if assigned("autumn", trial.shares, f"b{n}") == arm) for arm in sources}
    kept = {"outcomes": OutcomeSettings(dir=cache_dir / "kept"), "experiment": trial}
    async with talking_to(FakeEngine(text=BOOTS), cache_dir=cache_dir, **kept) as client:
        for arm, source in sources.items():
            told = await client.post("/answer", json=ASKED, headers={"x-experiment-unit": who[arm]})
            assert told.headers["x-experiment"] == f"autumn={arm}"
            assert events_of(told)[0][1]["source"] == source
    lines = (cache_dir / "kept/plans.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["arm"] for line in lines] == list(sources)


async def test_events_are_as_the_openapi_document_has_them(cache_dir: Path) -> None:
    async with talking_to(FakeEngine(text=BOOTS), cache_dir=cache_dir) as client:
        document = (await client.get("/openapi.json")).json()
        sent = events_of(await client.post("/answer", json=ASKED))
    stream = document["paths"]["/answer"]["post"]["responses"]["200"]["content"]["text/event-stream"]
    described = {
        each["properties"]["event"]["const"]: each["properties"]["data"]["contentSchema"]["$ref"].rpartition("/")[2]
        for each in stream["x-itemSchema"]["oneOf"]
    }
    assert described == {name: model.__name__ for name, model in EVENTS.items()}
    for name, data in sent:
        schema = document["components"]["schemas"][described[name]]
        assert set(schema.get("required", [])) <= set(data)
        assert set(data) <= set(schema["properties"])


async def test_without_a_shop_the_plan_is_there_and_the_reason() -> None:
    events = await answer(FakeEngine(text=BOOTS), sample_shop=False)
    assert [name for name, _ in events] == ["plan", "options", "done"]
    assert events[0][1]["plan"]["facets"]["type"] == ["boots"]
    assert events[1][1]["options"] == []
    assert "PEAKPLAN_SAMPLE_SHOP turns it on" in events[1][1]["reason"]


async def test_what_is_not_for_the_catalogue_gets_no_products(cache_dir: Path) -> None:
    body = {"query": "where is my order", "deadline_ms": 60}
    events = await answer(FakeEngine(hold=True), body=body, cache_dir=cache_dir)
    plan, options = events[0][1]["plan"], events[1][1]
    assert "catalog" not in plan["sources"]
    assert (options["options"], options["reason"]) == (
        [],
        "This question is not for the catalogue: the plan names other sources.",
    )


async def test_the_plan_leaves_time_for_the_search(cache_dir: Path) -> None:
    """A model that would need the whole deadline gets less; the reader then plans what is searched with."""
    events = await answer(FakeEngine(hold=True), body=ASKED | {"deadline_ms": 60}, cache_dir=cache_dir)
    assert events[0][1]["degraded"]
    assert events[0][1]["reason"] == "deadline"
    assert len(events[1][1]["options"]) == 3


@pytest.mark.parametrize(
    ("path", "body", "broken"), [("/answer", ASKED, "Shop.find"), ("/shop/search", ASKED_SHOP, "Shop.open")]
)
async def test_a_search_that_fails_is_a_fault_and_shows_no_words(
    path: str,
    body: dict[str, Any],
    broken: str,
    cache_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr(f"peakplan_client.shop.{broken}", fails)
    async with talking_to(FakeEngine(text=BOOTS), cache_dir=cache_dir) as client:
        response = await client.post(path, json=body)
        counted = (await client.get("/metrics")).text
    told = events_of(response)[1][1] if path == "/answer" else response.json()
    assert "failed at this search" in told["reason"]
    assert not told.get("by_plan")
    assert 'peakplan_fallbacks_total{reason="fault"} 1.0' in counted
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert "secret" not in response.text + caplog.text


async def test_bad_input_and_rates_are_refused_as_for_a_plan(cache_dir: Path) -> None:
    async with talking_to(cache_dir=cache_dir) as client:
        assert_problem(await client.post("/answer", json={"query": ""}), 422)
        assert_problem(await client.post("/answer", content="{}", headers={"content-type": "text/plain"}), 415)
    async with talking_to(auth=AuthSettings(rate=3), sample_shop=False) as client:
        answers = [await client.post("/answer", json=ASKED) for _ in range(3)]
    assert [each.status_code for each in answers[:1]] == [200]
    assert_problem(answers[-1], 429)  # each counts twice: a plan and a search


class SlowShop:
    """A shop whose searches go on until they are told to end, or to answer."""

    def __init__(self) -> None:
        self.searching = threading.Event()
        self.gave_up = 0

    def find(self, _: object, __: str, timeout: float, given_up: Callable[[], bool]) -> Any:  # noqa: ARG002
        self.searching.set()
        while not given_up():
            threading.Event().wait(0.001)
        self.gave_up += 1
        return SimpleNamespace(found=None)


@pytest.fixture
def slow_shop() -> tuple[SampleShop, SlowShop]:
    shop, slow = SampleShop(Path("nowhere")), SlowShop()
    shop._shop = slow
    return shop, slow


PLAN = Plan(mode="keyword", intent="find_product", queries=["boots"])


async def test_who_leaves_ends_the_search_and_leaves_nothing(slow_shop: tuple[SampleShop, SlowShop]) -> None:
    shop, slow = slow_shop
    waiting = [asyncio.create_task(anext(shop.options("boots", PLAN))) for _ in range(3)]
    await until(slow.searching.is_set)
    for each in waiting:
        each.cancel()
    assert all(
        isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*waiting, return_exceptions=True)
    )
    await until(lambda: shop._inside == 0)
    assert slow.gave_up == 1, "the others had not begun"
    assert not shop._turn.locked()


async def test_a_search_has_its_time_and_no_more(
    slow_shop: tuple[SampleShop, SlowShop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop_module, "OPTIONS_SECONDS", 0.02)
    shop, slow = slow_shop
    found = [each async for each in shop.options("boots", PLAN)]
    assert [type(each) for each in found] == [Options]
    assert "did not answer within 0.02 s" in (found[0].reason if isinstance(found[0], Options) else "") or ""
    await until(lambda: shop._inside == 0)
    assert slow.gave_up == 1


async def test_few_wait_for_the_shop_and_the_others_are_told(slow_shop: tuple[SampleShop, SlowShop]) -> None:
    shop, _ = slow_shop
    waiting = [asyncio.create_task(anext(shop.options("boots", PLAN))) for _ in range(8)]
    await until(lambda: shop._inside == 8)
    (told,) = [each async for each in shop.options("boots", PLAN)]
    assert isinstance(told, Options)
    assert told.reason == "Not now: others search the shop. Ask again."
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_shop_is_opened_once_however_many_wait_and_again_where_it_failed(
    cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    real = catalogue.digest

    def digest(path: Path) -> str:
        opened.append(1)
        if len(opened) == 1:
            raise catalogue.CatalogueError("The sample catalogue cannot be read.")
        return real(path)

    monkeypatch.setattr(catalogue, "digest", digest)
    shop = SampleShop(cache_dir)
    first = [await anext(shop.options("boots", PLAN)) for _ in range(1)]
    assert [each.reason for each in first if isinstance(each, Options)] == ["The sample catalogue cannot be read."]
    found = await asyncio.gather(*(anext(shop.options("boots", PLAN)) for _ in range(4)))
    assert [len(each.options) for each in found] == [3] * 4
    assert len(opened) == 2


async def test_a_reload_takes_the_shop_from_nobody_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, opened = threading.Event(), []
    shop = SampleShop(tmp_path)
    monkeypatch.setattr(shop, "_open", lambda: opened.append(object()) or opened[-1])

    def search(*_: object) -> ShopAnswer:
        may_end.wait()
        return shop._asked("", lambda it: ShopAnswer(reason=str(opened.index(it))))

    monkeypatch.setattr(shop, "_search", search)
    inside = [asyncio.create_task(shop.search(ShopRequest.model_validate(ASKED_SHOP))) for _ in range(3)]
    await settle()
    shop.renew()
    may_end.set()
    assert [answer.reason for answer in await asyncio.gather(*inside)] == ["0"] * 3
    assert (await shop.search(ShopRequest.model_validate(ASKED_SHOP))).reason == "1"


async def test_the_shop_says_why_it_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def search(**settings: Any) -> dict[str, Any]:
        async with talking_to(cache_dir=tmp_path, **settings) as client:
            response = await client.post("/shop/search", json=ASKED_SHOP)
        assert response.status_code == 200
        answer: dict[str, Any] = response.json()
        return answer

    def no_catalogue(_: Path) -> str:
        raise catalogue.CatalogueError("The sample catalogue cannot be read.")

    monkeypatch.setattr(catalogue, "digest", no_catalogue)
    assert "PEAKPLAN_SAMPLE_SHOP" in (await search(sample_shop=False))["reason"]
    answer = await search()
    assert answer["reason"] == "The sample catalogue cannot be read."
    assert answer["by_plan"] == answer["by_words"] == []


async def test_the_shop_is_searched_with_plan_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [
        catalogue.Product(str(price), "Red Shoes", "sneaker", "footwear", "They are red.", price, None)
        for price in (30.0, 90.0)
    ]
    monkeypatch.setattr(catalogue, "read", lambda _: iter(kept))
    plan = ASKED_SHOP["plan"] | {"price": {"min": None, "max": 50, "currency": "USD"}}
    async with talking_to(cache_dir=tmp_path) as client:
        answer = (await client.post("/shop/search", json={"query": "red shoes", "plan": plan})).json()
        refused = await client.post("/shop/search", json={"query": "red shoes", "plan": {"intent": 1}})
    assert [hit["price"] for hit in answer["by_plan"]] == [30.0]
    assert {hit["price"] for hit in answer["by_words"]} == {30.0, 90.0}
    assert_problem(refused, 422)
