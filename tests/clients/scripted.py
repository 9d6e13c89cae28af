"""Endpoints that answer by a script, and what they answer. No tests in here."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

import httpx

FIRST, SECOND = "http://first", "http://second"
PLAN = {
    "mode": "keyword", "intent": "find_product", "vertical": "footwear", "facets": {"type": ["boots"]},
    "exclude": {"brand": ["nike"]}, "price": {"min": None, "max": 80.0, "currency": "USD"}, "rating": {"min": 4},
    "sort": "price_asc", "offers": ["in_stock"], "queries": ["red boots"], "parts": [], "sources": ["catalog"],
    "a_field_of_tomorrow": 1,
}  # fmt: skip
BODY = {"request_id": "r1", "plan": PLAN, "source": "model", "degraded": False, "timing_ms": {"total": 40.0}}
OK = httpx.Response(200, json=BODY)
Handler = Callable[[httpx.Request], httpx.Response]


def problem(status: int, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    document = {"type": "about:blank", "title": "T", "status": status, "detail": "what", "request_id": "r9", **fields}
    content = json.dumps(document).encode()
    return httpx.Response(
        status, content=content, headers={"content-type": "application/problem+json", **(headers or {})}
    )


class Fake:
    """Endpoints that answer by a script; `asked` keeps every request."""

    def __init__(self, **answers: list[httpx.Response | type[httpx.TransportError]]) -> None:
        self._answers = answers
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answers = self._answers[request.url.host]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, httpx.Response):
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        raise answer("scripted", request=request)

    @property
    def hosts(self) -> list[str]:
        return [request.url.host for request in self.asked]


class Clock:
    """The client's clock. It moves where the client sleeps, and where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.paused: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.now += seconds


def waits(request: httpx.Request) -> float:
    """Return how long the client waits for an answer."""
    timeouts: dict[str, float] = request.extensions["timeout"]
    assert len(set(timeouts.values())) == 1
    return timeouts["read"]


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body in pieces, for either client; those that are numbers move the clock instead.

    `fails`: an error ends it. `closed` tells whether its reader is done with it.
    """

    def __init__(self, pieces: Iterable[bytes | float], clock: Clock | None = None, *, fails: bool = False) -> None:
        self._pieces, self._clock, self._fails, self.closed = pieces, clock, fails, False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
            elif self._clock is not None:
                self._clock.now += piece
        if self._fails:
            raise httpx.ReadError("gone")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True
