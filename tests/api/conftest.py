"""Fixtures: an app over engines inside the test, called without a network."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from service.api.app import create_app, wire
from service.gateway.pool import ReplicaPool
from service.settings import Settings
from tests.fake_engines import FakeEngine

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Run headless Chromium. It is imported here, because most tests of this folder do not need it."""
    from tests.api.test_page_visit import running_chromium

    with running_chromium() as chromium:
        yield chromium


@contextlib.asynccontextmanager
async def talking_to(*engines: Any, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a service over these engines."""
    chosen = Settings(replicas=1, **settings)
    pool = ReplicaPool(engines or [FakeEngine()])
    await pool.start()
    services = wire(pool, chosen)
    transport = httpx.ASGITransport(create_app(services, chosen), raise_app_exceptions=False)
    hooks = {"response": [_let_it_be_told]}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", event_hooks=hooks) as client:
        yield client
    await services.close()


async def _let_it_be_told(_: httpx.Response) -> None:
    """Wait one event-loop iteration, after which logs and metrics have the answer."""
    await asyncio.sleep(0)
