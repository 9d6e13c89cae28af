"""Fake engines inside the test's own loop: no process, no model, full control over answers and failures."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.pool import ReplicaPool
from tests.fake_models import result


class FakeEngine:
    """An engine that answers after `seconds` when `hold` is not set, or once `let_go` is called; fails when told to."""

    def __init__(
        self, name: str = "fake", *, hold: bool = False, text: str | None = None, seconds: float = 0.0
    ) -> None:
        self.name = name
        self.seconds = seconds
        self.served: list[GenerationRequest] = []
        self.cancelled = 0
        self.starts = 0
        self.start_failures = 0
        self.closed = False
        self._text = text
        self._up = False
        self._failed = asyncio.Event()
        self._gate = asyncio.Event()
        if not hold:
            self._gate.set()

    @property
    def model_id(self) -> str:
        return "fake"

    @property
    def kernel(self) -> str:
        return "fake"

    @property
    def available(self) -> bool:
        return self._up

    async def start(self) -> None:
        await asyncio.sleep(0)
        self.starts += 1
        if self.start_failures:
            self.start_failures -= 1
            raise EngineUnavailableError(f"{self.name} does not start")
        self._failed.clear()
        self._up = True

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        self.served.append(request)
        gate, failed = (asyncio.ensure_future(event.wait()) for event in (self._gate, self._failed))
        try:
            await asyncio.wait({gate, failed}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            gate.cancel()
            failed.cancel()
        if self._failed.is_set():
            raise EngineUnavailableError(f"{self.name} died")
        return result() if self._text is None else result(self._text)

    async def failed(self) -> None:
        await self._failed.wait()

    async def close(self) -> None:
        self.closed = True
        self._up = False

    def fail(self) -> None:
        self._up = False
        self._failed.set()

    def hold(self) -> None:
        self._gate.clear()

    def let_go(self) -> None:
        self._gate.set()


LONG = 30.0  # seconds; no test waits for it


async def settle() -> None:
    """Let every task that can run now, run."""
    for _ in range(20):
        await asyncio.sleep(0)


def request(seconds: float = LONG, prompt: str = "") -> GenerationRequest:
    return GenerationRequest(prompt=prompt, grammar="", deadline=time.monotonic() + seconds)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(*engines: FakeEngine) -> AsyncIterator[ReplicaPool]:
    """Run a pool of these engines."""
    pool = ReplicaPool(engines)
    await pool.start()
    yield pool
    await pool.close()
