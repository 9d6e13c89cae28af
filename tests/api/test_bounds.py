"""What stands beside the planner is bounded too: readers of a page's files, searches of the sample shop."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message

from service.api.page import page_routes
from service.api.shop import SampleShop, ShopAnswer, ShopRequest
from service.gateway.request_queue import CapacityError
from service.planner.plan import Plan
from tests.fake_engines import settle, until

pytestmark = pytest.mark.anyio
ASKED = ShopRequest(query="red shoes", plan=Plan(mode="keyword", intent="find_product"))


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


async def test_few_searches_of_the_shop_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    shop = SampleShop(tmp_path)
    monkeypatch.setattr(shop, "_open", object)  # which would download its products
    monkeypatch.setattr(shop, "_search", lambda _: may_end.wait() and ShopAnswer())
    inside = [asyncio.create_task(shop.search(ASKED)) for _ in range(8)]
    await settle()
    with pytest.raises(CapacityError):
        await shop.search(ASKED)
    may_end.set()
    assert await asyncio.gather(*inside) == [ShopAnswer()] * 8
    assert await shop.search(ASKED) == ShopAnswer()


async def test_a_reload_takes_the_shop_from_nobody_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, opened = threading.Event(), []
    shop = SampleShop(tmp_path)
    monkeypatch.setattr(shop, "_open", lambda: opened.append(object()) or opened[-1])

    def search(_: ShopRequest) -> ShopAnswer:
        may_end.wait()
        return shop._asked("", lambda it: ShopAnswer(reason=str(opened.index(it))))

    monkeypatch.setattr(shop, "_search", search)
    inside = [asyncio.create_task(shop.search(ASKED)) for _ in range(3)]
    await settle()
    shop.renew()
    may_end.set()
    assert [answer.reason for answer in await asyncio.gather(*inside)] == ["0"] * 3
    assert (await shop.search(ASKED)).reason == "1"
