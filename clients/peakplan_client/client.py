"""`Client` and `AsyncClient`: plans over HTTP, within one deadline for everything that a call does.

Whatever can be right another time (no connection, 429, 5xx) is tried again: first at the next endpoint, then after a pause,
and never past the call's `timeout`. Both clients drive `_Call`, which knows no input or output.
"""

import asyncio
import random
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx
from pydantic import ValidationError

from peakplan_client.errors import (
    InvalidRequestError,
    PlannerError,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from peakplan_client.plan import Answer, Problem
from peakplan_client.tracing import trace_headers

DEADLINE_MS = 300
TIMEOUT_SECONDS = 1.0
NETWORK_SECONDS = 0.1  # what the way there and back may take beyond the deadline that the service keeps
COOL_DOWN_SECONDS = 5.0  # an endpoint that failed is asked last for so long
_FIRST_PAUSE_SECONDS = 0.02
_LEAST_DEADLINE_MS, _MOST_DEADLINE_MS = 10, 2000  # of the service
_MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Send:
    """Send this request, and give it up at `until` (on the monotonic clock)."""

    request: httpx.Request
    until: float


@dataclass(frozen=True, slots=True)
class _Sleep:
    seconds: float


_Step = _Send | _Sleep
_Outcome = httpx.Response | httpx.TransportError | None


class _Endpoints:
    """The endpoints in the order to ask them: as given, those that failed of late last."""

    def __init__(self, urls: str | Sequence[str]) -> None:
        given = [urls] if isinstance(urls, str) else list(urls)
        self.urls = [httpx.URL(url.rstrip("/") + "/plan") for url in given]
        if not self.urls or any(url.scheme not in ("http", "https") or not url.host for url in self.urls):
            raise ValueError(f"{urls!r} names no endpoint such as http://127.0.0.1:8080")
        self.not_before = dict.fromkeys(self.urls, 0.0)

    def by_readiness(self) -> list[httpx.URL]:
        now = time.monotonic()
        return sorted(self.urls, key=lambda url: self.not_before[url] > now)


class _Call:
    """One call: which requests are sent, how long to wait between them, and what their answers mean."""

    def __init__(self, endpoints: _Endpoints, body: dict[str, Any], headers: dict[str, str], timeout: float) -> None:
        self._endpoints = endpoints
        self._body = body
        self._headers = headers
        self._end = time.monotonic() + timeout
        self._error = UnavailableError("There was no time to ask the planner: give the call a longer timeout.")

    def steps(self) -> Generator[_Step, _Outcome, Answer]:
        """Yield what to do next; take a response, or why there is none. Raises PlannerError."""
        pause = _FIRST_PAUSE_SECONDS
        ready_at = dict.fromkeys(self._endpoints.urls, 0.0)
        while True:
            for url in self._endpoints.by_readiness():
                if time.monotonic() < ready_at[url]:
                    continue
                if (send := self._send(url)) is None:
                    raise self._error
                outcome = yield send
                if isinstance(outcome, httpx.Response) and outcome.status_code == httpx.codes.OK:
                    self._endpoints.not_before[url] = 0.0
                    return _answer(outcome)
                self._error = _error(outcome, url)
                now = time.monotonic()
                self._endpoints.not_before[url] = now + COOL_DOWN_SECONDS
                ready_at[url] = now + (self._error.retry_after or 0)
            wait = max(pause * random.uniform(0.5, 1.5), min(ready_at.values()) - time.monotonic())
            if time.monotonic() + wait + _LEAST_DEADLINE_MS / 1000 >= self._end:
                raise self._error
            yield _Sleep(wait)
            pause *= 2

    def _send(self, url: httpx.URL) -> _Send | None:
        """Return the next request, which asks the service for no more time than is left; None where none is."""
        now = time.monotonic()
        deadline_ms = min(self._body["deadline_ms"], int((self._end - now) * 1000))
        if deadline_ms < _LEAST_DEADLINE_MS:
            return None
        request = httpx.Request("POST", url, json={**self._body, "deadline_ms": deadline_ms}, headers=self._headers)
        return _Send(request, min(self._end, now + deadline_ms / 1000 + NETWORK_SECONDS))


class _Base:
    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        token: str | None = None,
        deadline_ms: int = DEADLINE_MS,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Take endpoints in order of preference, such as "http://127.0.0.1:8080".

        `deadline_ms` is what the service has for a plan, `timeout` what a whole call may take, in seconds.
        """
        if not _LEAST_DEADLINE_MS <= deadline_ms <= _MOST_DEADLINE_MS:
            raise ValueError(f"deadline_ms must be from {_LEAST_DEADLINE_MS} to {_MOST_DEADLINE_MS}, not {deadline_ms}")
        self._endpoints = _Endpoints(endpoints)
        self._headers = {"accept": "application/json", "user-agent": "peakplan-client"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._deadline_ms = deadline_ms
        self._timeout = timeout

    def _call(
        self,
        query: str,
        history: Sequence[str],
        deadline_ms: int | None,
        timeout: float | None,
        trace: dict[str, str],
    ) -> _Call:
        body: dict[str, Any] = {"query": query, "deadline_ms": deadline_ms or self._deadline_ms}
        if history:
            body["history"] = list(history)
        return _Call(self._endpoints, body, {**self._headers, **trace}, timeout or self._timeout)


class Client(_Base):
    """A client for threads: `Client("http://127.0.0.1:8080").plan("red boots under $80").plan`. Safe to share."""

    def __init__(self, endpoints: str | Sequence[str], **options: Any) -> None:
        """Take what `_Base` takes, and `transport`, an httpx transport, for proxies and tests."""
        self._http = httpx.Client(transport=options.pop("transport", None))
        super().__init__(endpoints, **options)

    def plan(
        self,
        query: str,
        history: Sequence[str] = (),
        *,
        deadline_ms: int | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Answer:
        """Return the plan of the newest utterance after `history`, newest last. Raises PlannerError."""
        steps = self._call(query, history, deadline_ms, timeout, trace_headers(traceparent, tracestate)).steps()
        outcome: _Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                answer: Answer = done.value
                return answer
            if isinstance(step, _Sleep):
                outcome = time.sleep(step.seconds)
            else:
                outcome = self._send(step)

    def _send(self, step: _Send) -> httpx.Response | httpx.TransportError:
        step.request.extensions["timeout"] = httpx.Timeout(max(0.001, step.until - time.monotonic())).as_dict()
        try:
            response = self._http.send(step.request, stream=True)
            with response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if time.monotonic() > step.until or len(body) > _MAX_ANSWER_BYTES:
                        raise httpx.ReadTimeout("the answer does not end", request=step.request)
            return _whole(response, bytes(body))
        except httpx.TransportError as error:
            return error

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Base):
    """The same for asyncio: `await AsyncClient(...).plan(...)`."""

    def __init__(self, endpoints: str | Sequence[str], **options: Any) -> None:
        """Take what `Client` takes, with an asynchronous `transport`."""
        self._http = httpx.AsyncClient(transport=options.pop("transport", None))
        super().__init__(endpoints, **options)

    async def plan(
        self,
        query: str,
        history: Sequence[str] = (),
        *,
        deadline_ms: int | None = None,
        timeout: float | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Answer:
        """Return the plan of the newest utterance after `history`, newest last. Raises PlannerError."""
        steps = self._call(query, history, deadline_ms, timeout, trace_headers(traceparent, tracestate)).steps()
        outcome: _Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                answer: Answer = done.value
                return answer
            outcome = await asyncio.sleep(step.seconds, None) if isinstance(step, _Sleep) else await self._send(step)

    async def _send(self, step: _Send) -> httpx.Response | httpx.TransportError:
        left = max(0.001, step.until - time.monotonic())
        step.request.extensions["timeout"] = httpx.Timeout(left).as_dict()
        try:
            async with asyncio.timeout(left):
                return await self._http.send(step.request)
        except TimeoutError:
            return httpx.ReadTimeout("the answer does not end", request=step.request)
        except httpx.TransportError as error:
            return error

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _whole(response: httpx.Response, body: bytes) -> httpx.Response:
    """Return the response with its decoded body."""
    headers = [(name, value) for name, value in response.headers.items() if name != "content-encoding"]
    return httpx.Response(response.status_code, headers=headers, content=body, request=response.request)


def _answer(response: httpx.Response) -> Answer:
    try:
        return Answer.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise UnexpectedAnswerError(
            f"{response.request.url} answered 200, but {where} is no plan's ({first['msg']}): is this a planner, and no "
            "older than version 2?",
            status=200,
        ) from error


def _error(outcome: _Outcome, url: httpx.URL) -> UnavailableError:
    """Return what to raise if no other attempt is made. Raises PlannerError where none would help."""
    if not isinstance(outcome, httpx.Response):
        return UnavailableError(f"{url} cannot be reached or is too slow ({type(outcome).__name__}: {outcome}).")
    status, problem = outcome.status_code, _problem(outcome)
    told = f"{url} answered {status}: {(problem.detail or problem.title) if problem else outcome.reason_phrase}"
    if status in (401, 403):
        raise UnauthorizedError(f"{told} Give the client the right `token`.", status=status, problem=problem)
    if status == 429:
        return RateLimitedError(told, status=status, problem=problem, retry_after=_retry_after(outcome))
    if status >= 500:
        return UnavailableError(told, status=status, problem=problem, retry_after=_retry_after(outcome))
    kind: type[PlannerError] = InvalidRequestError if problem else UnexpectedAnswerError
    raise kind(told, status=status, problem=problem)


def _problem(response: httpx.Response) -> Problem | None:
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of Retry-After; a date, which this service never sends, counts as none."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:
        return None
