"""A way to ask that is the same for both clients and a clock that stands still."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from peakplan_client import Answer, AsyncClient, Client

from tests.clients.scripted import FIRST, SECOND, Clock, Handler


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    return clock


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Callable[..., Answer]:
    """Return a function that asks through one client or the other: `ask(fake, client options, call options)`."""

    def ask(fake: Handler, query: str = "red boots", *, history: list[str] | None = None, **options: Any) -> Answer:
        own = {name: options.pop(name) for name in ("traceparent", "tracestate") if name in options}
        endpoints = options.pop("endpoints", [FIRST, SECOND])
        if request.param == "sync":
            with Client(endpoints, transport=httpx.MockTransport(fake), **options) as client:
                return client.plan(query, history or (), **own)

        async def once() -> Answer:
            async with AsyncClient(endpoints, transport=httpx.MockTransport(fake), **options) as client:
                return await client.plan(query, history or (), **own)

        return asyncio.run(once())

    return ask
