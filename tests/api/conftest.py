"""An app over engines inside the test, spoken to without a network."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from service.api.app import create_app, wire
from service.gateway.pool import ReplicaPool
from service.settings import Settings
from tests.fake_engines import FakeEngine


@contextlib.asynccontextmanager
async def talking_to(*engines: Any, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service over these engines."""
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
    """Logs and metrics are told of a request a turn of the event loop after its answer."""
    await asyncio.sleep(0)
