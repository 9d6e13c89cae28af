"""`Client` and `AsyncClient`: plans over HTTP, within one deadline for everything that a call does.

Whatever can be right another time (no connection, 429, 5xx) is tried again: first at the next endpoint, then after a
pause, and never past the call's timeout. Both clients drive the same `_Call`, which knows no input or output.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack

import httpx
from pydantic import ValidationError

from peakplan_client.body import ENCODINGS, Body
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
NETWORK_SECONDS = 0.1  # for the way there and back, beyond the deadline that the service keeps
COOL_DOWN_SECONDS = 5.0  # an endpoint that failed is asked last for so long
_FIRST_PAUSE_SECONDS = 0.02
_LEAST_DEADLINE_MS, _MOST_DEADLINE_MS = 10, 2000  # of the service
_MAX_ANSWER_BYTES = 1 << 20
MESSAGES = 8  # of the history, the newest, that the service reads; and as many of each one's last characters
MESSAGE_CHARACTERS = 512


class CallOptions(TypedDict, total=False):
    """What one call may have of its own.

    `deadline_ms` is the service's time for a plan, `timeout` that of the whole call in seconds; `traceparent` and
    `tracestate` are the W3C trace context to go on with.
    """

    deadline_ms: int
    timeout: float
    traceparent: str | None
    tracestate: str | None


@dataclass(frozen=True, slots=True)
class _Send:
    """Send this request, and give it up at `until` (on the monotonic clock)."""

    request: httpx.Request
    until: float


@dataclass(frozen=True, slots=True)
class _Sleep:
    seconds: float


_Outcome = httpx.Response | httpx.RequestError | None


class _Base:
    def __init__(self, endpoints: str | Sequence[str], token: str | None, deadline_ms: int, timeout: float) -> None:
        given = [endpoints] if isinstance(endpoints, str) else list(endpoints)
        urls = [httpx.URL(url.rstrip("/") + "/plan") for url in given]
        if not urls or any(url.scheme not in ("http", "https") or not url.host for url in urls):
            raise ValueError(f"{endpoints!r} names no endpoint such as http://127.0.0.1:8080")
        self._ask_last_until = dict.fromkeys(urls, 0.0)
        self._headers = {"accept": "application/json", "accept-encoding": ENCODINGS, "user-agent": "peakplan-client"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._deadline_ms, self._timeout = deadline_ms, timeout

    def _steps(
        self, query: str, history: Sequence[str], options: CallOptions
    ) -> Generator[_Send | _Sleep, _Outcome, Answer]:
        deadline_ms = options.get("deadline_ms", self._deadline_ms)
        if not _LEAST_DEADLINE_MS <= deadline_ms <= _MOST_DEADLINE_MS:
            raise ValueError(f"deadline_ms must be from {_LEAST_DEADLINE_MS} to {_MOST_DEADLINE_MS}, not {deadline_ms}")
        headers = self._headers | trace_headers(options.get("traceparent"), options.get("tracestate"))
        newest = [message[-MESSAGE_CHARACTERS:] for message in history[-MESSAGES:]]
        body = {"query": query, "deadline_ms": deadline_ms} | ({"history": newest} if newest else {})
        return _Call(self._ask_last_until, body, headers, options.get("timeout", self._timeout)).steps()


class _Call:
    """One call: which requests are sent, how long to wait between them, and what their answers mean."""

    def __init__(
        self, ask_last_until: dict[httpx.URL, float], body: dict[str, Any], headers: dict[str, str], timeout: float
    ) -> None:
        self._ask_last_until = ask_last_until  # shared by all calls of a client
        self._body, self._headers = body, headers
        self._end = time.monotonic() + timeout

    def steps(self) -> Generator[_Send | _Sleep, _Outcome, Answer]:
        """Yield what to do next; take a response, or why there is none. Raises PlannerError."""
        error: PlannerError = UnavailableError("There was no time to ask the planner: give the call a longer timeout.")
        pause = _FIRST_PAUSE_SECONDS
        ready_at = dict.fromkeys(self._ask_last_until, 0.0)
        while True:
            for url in self._by_preference():
                if time.monotonic() < ready_at[url]:
                    continue
                if (send := self._request(url)) is None:
                    raise error
                outcome = yield send
                if isinstance(outcome, httpx.Response) and outcome.status_code == httpx.codes.OK:
                    self._ask_last_until[url] = 0.0
                    return _answer(outcome)
                error = _failure(outcome, url)
                now = time.monotonic()
                self._ask_last_until[url] = now + COOL_DOWN_SECONDS
                ready_at[url] = now + (error.retry_after or 0)
            wait = max(pause * random.uniform(0.5, 1.5), min(ready_at.values()) - time.monotonic())
            if time.monotonic() + wait + _LEAST_DEADLINE_MS / 1000 >= self._end:
                raise error
            yield _Sleep(wait)
            pause *= 2

    def _by_preference(self) -> list[httpx.URL]:
        """Return the endpoints as they were given, those that failed of late last."""
        now = time.monotonic()
        return sorted(self._ask_last_until, key=lambda url: self._ask_last_until[url] > now)

    def _request(self, url: httpx.URL) -> _Send | None:
        """Return the next request, which asks the service for no more time than is left; None where none is."""
        now = time.monotonic()
        deadline_ms = min(self._body["deadline_ms"], int((self._end - now) * 1000))
        if deadline_ms < _LEAST_DEADLINE_MS:
            return None
        request = httpx.Request("POST", url, json=self._body | {"deadline_ms": deadline_ms}, headers=self._headers)
        return _Send(request, min(self._end, now + deadline_ms / 1000 + NETWORK_SECONDS))


class Client(_Base):
    """A client for threads, which may share it: `Client("http://127.0.0.1:8080").plan("red boots under $80").plan`."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        token: str | None = None,
        deadline_ms: int = DEADLINE_MS,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Take endpoints in order of preference; `deadline_ms` and `timeout` are those of calls without their own."""
        super().__init__(endpoints, token, deadline_ms, timeout)
        self._http = httpx.Client(transport=transport)

    def plan(self, query: str, history: Sequence[str] = (), **options: Unpack[CallOptions]) -> Answer:
        """Return the plan of the newest utterance after `history`, newest last, of which the newest 8 messages count.

        Raises PlannerError.
        """
        steps, outcome = self._steps(query, history, options), None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                answer: Answer = done.value
                return answer
            outcome = self._send(step)

    def _send(self, step: _Send | _Sleep) -> _Outcome:
        if isinstance(step, _Sleep):
            time.sleep(step.seconds)
            return None
        step.request.extensions["timeout"] = httpx.Timeout(max(0.001, step.until - time.monotonic())).as_dict()
        try:
            with contextlib.closing(self._http.send(step.request, stream=True)) as response:
                if response.is_stream_consumed:  # the whole answer of a test's transport
                    return response
                body = Body(response.headers, _MAX_ANSWER_BYTES)
                for chunk in response.iter_raw():
                    body.add(chunk)
                    if time.monotonic() > step.until:
                        return httpx.ReadTimeout("the answer does not end")
        except httpx.RequestError as error:
            return error
        return _whole(response, body.whole())

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(_Base):
    """The same for asyncio: `await AsyncClient("http://127.0.0.1:8080").plan("red boots under $80")`."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        token: str | None = None,
        deadline_ms: int = DEADLINE_MS,
        timeout: float = TIMEOUT_SECONDS,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Take endpoints in order of preference; `deadline_ms` and `timeout` are those of calls without their own."""
        super().__init__(endpoints, token, deadline_ms, timeout)
        self._http = httpx.AsyncClient(transport=transport)

    async def plan(self, query: str, history: Sequence[str] = (), **options: Unpack[CallOptions]) -> Answer:
        """Return the plan of the newest utterance after `history`, newest last, of which the newest 8 messages count.

        Raises PlannerError.
        """
        steps, outcome = self._steps(query, history, options), None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                answer: Answer = done.value
                return answer
            outcome = await self._send(step)

    async def _send(self, step: _Send | _Sleep) -> _Outcome:
        if isinstance(step, _Sleep):
            await asyncio.sleep(step.seconds)
            return None
        left = max(0.001, step.until - time.monotonic())
        step.request.extensions["timeout"] = httpx.Timeout(left).as_dict()
        try:
            async with asyncio.timeout(left):
                async with contextlib.aclosing(await self._http.send(step.request, stream=True)) as response:
                    if response.is_stream_consumed:  # the whole answer of a test's transport
                        return response
                    body = Body(response.headers, _MAX_ANSWER_BYTES)
                    async for chunk in response.aiter_raw():
                        body.add(chunk)
        except TimeoutError:
            return httpx.ReadTimeout("the answer does not end")
        except httpx.RequestError as error:
            return error
        return _whole(response, body.whole())

    async def aclose(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _whole(response: httpx.Response, body: bytes) -> httpx.Response:
    """Return a streamed response with its body, and of its headers those that matter, as the body is decoded."""
    headers = {name: response.headers[name] for name in ("content-type", "retry-after") if name in response.headers}
    return httpx.Response(response.status_code, headers=headers, content=body, request=response.request)


def _answer(response: httpx.Response) -> Answer:
    try:
        return Answer.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise UnexpectedAnswerError(
            f"{response.url} answered 200, but {where} is no plan's ({first['msg']}): is this a planner?", status=200
        ) from error


def _failure(outcome: _Outcome, url: httpx.URL) -> UnavailableError:
    """Return what to raise if no other attempt is made. Raises PlannerError where none would help."""
    if not isinstance(outcome, httpx.Response):
        return UnavailableError(f"{url} cannot be reached or is too slow ({type(outcome).__name__}: {outcome}).")
    status, problem = outcome.status_code, _problem(outcome)
    told = f"{url} answered {status}: {(problem.detail or problem.title) if problem else outcome.reason_phrase}"
    if status == 429 or status >= 500:
        kind = RateLimitedError if status == 429 else UnavailableError
        return kind(told, status=status, problem=problem, retry_after=_retry_after(outcome))
    if status in (401, 403):
        raise UnauthorizedError(f"{told} Give the client the right `token`.", status=status, problem=problem)
    final = InvalidRequestError if problem else UnexpectedAnswerError
    raise final(told, status=status, problem=problem)


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
