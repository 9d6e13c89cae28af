"""The model's vocabulary on the outside: `GET /vocabulary`, the OpenAPI document, its page, other origins, the shop."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from starlette.types import Message

from service.api.page import page_routes
from service.planner.plan import Plan
from service.planner.question import MAX_HISTORY_WORDS
from service.planner.vocabulary import FILE_NAME, shipped_vocabulary
from service.telemetry.names import DegradedReason
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import until
from tests.planner.test_vocabulary import GROCER, write

pytestmark = pytest.mark.anyio

SHOES = {"mode": "keyword", "intent": "find_product", "queries": ["red shoes"]}
SHOP = "https://shop.example"


async def test_the_vocabulary_is_the_model_folders() -> None:
    async with talking_to() as client:
        served = (await client.get("/vocabulary")).json()
    assert served == json.loads(shipped_vocabulary().model_dump_json())
    assert served["verticals"]["sporting-goods"]["name"] == "Sporting Goods"


async def test_openapi_and_plans_follow_a_shops_own_vocabulary(tmp_path: Path) -> None:
    async with talking_to(model_dir=write(tmp_path, GROCER)) as client:
        schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
        served = (await client.get("/vocabulary")).json()
    plan = schemas["Plan"]["properties"]
    assert plan["intent"]["enum"] == list(served["intents"]) == ["find_product", "ask_product", "recipe"]
    assert plan["vertical"]["enum"] == ["fresh-food", None]
    assert plan["sources"]["items"]["enum"] == ["shelf", "labels"]
    assert schemas["Part"]["properties"]["exclude"]["propertyNames"] == {"enum": ["diet", "type"]}
    (example,) = schemas["Plan"]["examples"]
    assert Plan.model_validate(example).sources == ["shelf"]
    assert set(example["facets"]) <= {"diet", "type"}


async def test_operations_have_names_that_people_would_choose() -> None:
    async with talking_to() as client:
        document = (await client.get("/openapi.json")).json()
    named = {path: operation["operationId"] for path, item in document["paths"].items() for operation in item.values()}
    wanted = {"/plan": "plan", "/trace": "trace", "/vocabulary": "vocabulary", "/healthz": "health"}
    assert named.items() >= {**wanted, "/readyz": "readiness"}.items()
    history = document["components"]["schemas"]["PlanRequest"]["properties"]["history"]
    assert "newest 8 messages" in history["description"]
    assert f"{MAX_HISTORY_WORDS} words" in history["description"]


async def test_a_folder_without_a_vocabulary_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=FILE_NAME):
        async with talking_to(model_dir=tmp_path):
            pass


async def test_the_documentation_needs_no_other_host() -> None:
    pytest.importorskip("fastapi_offline")
    async with talking_to() as client:
        page = await client.get("/docs")
        parts = [await client.get(path) for path in ("/docs.js", "/swagger-ui-bundle.js", "/swagger-ui.css")]
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text
    assert [part.status_code for part in parts] == [200] * 3


@pytest.mark.parametrize(("origin", "allowed"), [(SHOP, True), ("https://other.example", False)])
async def test_pages_of_allowed_origins_may_ask(origin: str, allowed: bool) -> None:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    async with talking_to(http={"cors_origins": f"{SHOP}, http://localhost:3000"}) as client:
        before = await client.options("/plan", headers=asked)
        answer = await client.post("/plan", json={"query": "red shoes"}, headers={"origin": origin})
        problem = await client.post("/plan", json={}, headers={"origin": origin})
    assert before.status_code == (200 if allowed else 400)
    assert answer.status_code == 200
    assert_problem(problem, 422)
    for response in (before, answer, problem):
        assert response.headers.get("access-control-allow-origin") == (origin if allowed else None)


async def test_without_the_setting_no_origin_is_allowed() -> None:
    async with talking_to() as client:
        answer = await client.post("/plan", json={"query": "red shoes"}, headers={"origin": SHOP})
    assert "access-control-allow-origin" not in answer.headers


async def test_the_shop_says_why_it_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = pytest.importorskip("peakplan_client.catalogue")

    async def search(**settings: Any) -> dict[str, Any]:
        async with talking_to(cache_dir=tmp_path, **settings) as client:
            response = await client.post("/shop/search", json={"query": "red shoes", "plan": SHOES})
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
    catalogue = pytest.importorskip("peakplan_client.catalogue")
    kept = [
        catalogue.Product(str(price), "Red Shoes", "sneaker", "footwear", "They are red.", price, None)
        for price in (30.0, 90.0)
    ]
    monkeypatch.setattr(catalogue, "read", lambda _: iter(kept))
    plan = SHOES | {"price": {"min": None, "max": 50, "currency": "USD"}}
    async with talking_to(cache_dir=tmp_path) as client:
        answer = (await client.post("/shop/search", json={"query": "red shoes", "plan": plan})).json()
        refused = await client.post("/shop/search", json={"query": "red shoes", "plan": {"intent": 1}})
    assert [hit["price"] for hit in answer["by_plan"]] == [30.0]
    assert {hit["price"] for hit in answer["by_words"]} == {30.0, 90.0}
    assert_problem(refused, 422)


async def test_the_page_explains_every_reason_of_a_plan_without_the_model() -> None:
    async with talking_to() as client:
        script = (await client.get("/plan.js")).text
    (reasons,) = re.findall(r"const REASONS = \{(.*?)\n\};", script, re.DOTALL)
    assert set(re.findall(r"^  (\w+): ", reasons, re.MULTILINE)) == set(get_args(DegradedReason))


async def test_a_page_that_may_not_call_is_told_which_setting_would_let_it(caplog: pytest.LogCaptureFixture) -> None:
    asking = {"origin": SHOP, "access-control-request-method": "POST"}
    async with talking_to(http={"cors_origins": "https://other.example"}) as client:
        for _ in range(3):
            assert (await client.options("/plan", headers=asking)).status_code == 400
        await client.options("/plan", headers=asking | {"origin": "https://other.example"})
    (told,) = [record for record in caplog.records if record.message == "origin_refused"]
    assert (vars(told)["origin"], "PEAKPLAN_CORS_ORIGINS" in vars(told)["reason"]) == (SHOP, True)
    async with talking_to() as client:
        refused = assert_problem(await client.options("/plan", headers=asking), 405)
        assert "PEAKPLAN_CORS_ORIGINS" in refused["detail"]
        plain = assert_problem(await client.request("OPTIONS", "/plan"), 405)
    assert "PEAKPLAN_CORS_ORIGINS" not in plain["detail"]


async def test_a_file_is_sent_in_pieces_to_so_many_readers_at_once(tmp_path: Path) -> None:
    (tmp_path / "large.js").write_bytes(b"x" * 300_000)
    (route,) = [route for route in page_routes(tmp_path) if route.path == "/large.js"]
    may_read = asyncio.Event()

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def ask(messages: list[Message], *, slowly: bool) -> None:
        async def send(message: Message) -> None:
            messages.append(message)
            if slowly:
                await may_read.wait()

        scope: dict[str, Any] = {"type": "http", "method": "GET", "headers": [], "state": {"request_id": "x"}}
        await route.app(scope, never, send)

    readers: list[list[Message]] = [[] for _ in range(32)]
    reading = [asyncio.create_task(ask(messages, slowly=True)) for messages in readers]
    await until(lambda: all(readers))
    refused: list[Message] = []
    await ask(refused, slowly=False)
    assert refused[0]["status"] == 503
    assert (b"retry-after", b"1") in refused[0]["headers"]
    may_read.set()
    await asyncio.gather(*reading)
    for first, *pieces in readers:
        assert first["status"] == 200
        assert max(len(piece.get("body", b"")) for piece in pieces) < 100_000
        assert sum(len(piece.get("body", b"")) for piece in pieces) == 300_000
