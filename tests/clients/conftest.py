"""A way to ask that is the same for both clients and a clock that stands still."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from peakplan_client import AsyncClient, Client

from tests.clients.scripted import FIRST, SECOND, Clock, Handler


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(time, "sleep", clock.sleep)
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    return clock


@pytest.fixture(params=["sync", "async"])
def using(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a function that asks through one client or the other; of a stream of events it returns the list.

    `using(handler, method, *arguments, client=options of the client, **options of the call)`
    """

    def using(handler: Handler, method: str, *arguments: Any, client: Any = None, **options: Any) -> Any:
        own = {"endpoints": [FIRST, SECOND], "transport": httpx.MockTransport(handler), **(client or {})}
        if request.param == "sync":
            with Client(**own) as blocking:
                found = getattr(blocking, method)(*arguments, **options)
                return list(found) if method == "answer" else found

        async def once() -> Any:
            async with AsyncClient(**own) as waiting:
                found = getattr(waiting, method)(*arguments, **options)
                return [event async for event in found] if method == "answer" else await found

        return asyncio.run(once())

    return using
