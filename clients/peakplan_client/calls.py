"""What one call does: which requests are sent, how long it pauses between them, and what their answers mean.

Whatever can be right another time (no connection, 429, 5xx) is tried again: first at the next endpoint, then after a
pause, and never past the call's timeout. It opens no connection: `client.py` drives it, with threads and without.
"""

import random
import re
import secrets
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from peakplan_client.errors import (
    InvalidRequestError,
    PlannerError,
    RateLimitedError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from peakplan_client.plan import Answer, Problem

T = TypeVar("T")

NETWORK_SECONDS = 0.1  # for the way there and back, beyond the deadline that the service keeps
COOL_DOWN_SECONDS = 5.0  # an endpoint that failed is asked last for so long
LEAST_DEADLINE_MS = 10  # of the service
_FIRST_PAUSE_SECONDS = 0.02
_NO_TIME = "There was no time to ask the planner: give the call a longer timeout."


@dataclass(frozen=True, slots=True)
class Send:
    """Send this request, and give it up at `until` (on the monotonic clock); who `streams` reads the body, if 200."""

    request: httpx.Request
    until: float
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


Outcome = httpx.Response | httpx.RequestError | None
Steps = Generator[Send | Sleep, Outcome, T]


class Call(ABC, Generic[T]):
    """One call of a client; subclasses define the request and read the answer."""

    def __init__(self, ask_last_until: dict[httpx.URL, float], headers: Mapping[str, str], timeout: float) -> None:
        """Take endpoints, each with when its cool-down ends: shared by all calls of a client."""
        self._ask_last_until = ask_last_until
        self._headers = headers
        self.end = time.monotonic() + timeout  # when its time is up
        self._preferred: Collection[httpx.URL] = tuple(ask_last_until)

    def prefer(self, endpoints: Collection[httpx.URL]) -> Self:
        """Ask these before the others, as long as they do not fail."""
        self._preferred = frozenset(endpoints)
        return self

    @abstractmethod
    def _send(self, endpoint: httpx.URL, left: float) -> Send | None:
        """Return the next request, which asks the service for no more than is left; None where that is too little."""

    @abstractmethod
    def _take(self, response: httpx.Response) -> PlannerError | None:
        """Take an answer (200); return why there has to be another try, None where all is there."""

    @abstractmethod
    def _result(self) -> T: ...

    @abstractmethod
    def _given_up(self, error: PlannerError) -> T:
        """Return what there is when the time is up, or raise the last error."""

    def steps(self) -> Steps[T]:
        """Yield what to do next; take a response, or why there is none. Raises PlannerError."""
        error: PlannerError = UnavailableError(_NO_TIME)
        pause = _FIRST_PAUSE_SECONDS
        ready_at = dict.fromkeys(self._ask_last_until, 0.0)
        while True:
            for endpoint in self._by_preference():
                if time.monotonic() < ready_at[endpoint]:
                    continue
                if (send := self._send(endpoint, self.end - time.monotonic())) is None:
                    return self._given_up(error)
                missing = self._what_is_missing((yield send), endpoint, send.request.url)
                if missing is None:
                    return self._result()
                error = missing
                ready_at[endpoint] = time.monotonic() + (error.retry_after or 0)
            wait = max(pause * random.uniform(0.5, 1.5), min(ready_at.values()) - time.monotonic())
            if time.monotonic() + wait + LEAST_DEADLINE_MS / 1000 >= self.end:
                return self._given_up(error)
            yield Sleep(wait)
            pause *= 2

    def _what_is_missing(self, outcome: Outcome, endpoint: httpx.URL, url: httpx.URL) -> PlannerError | None:
        if isinstance(outcome, httpx.Response) and outcome.status_code == httpx.codes.OK:
            self._ask_last_until[endpoint] = 0.0
            return self._take(outcome)
        error = failure(outcome, url)
        self._ask_last_until[endpoint] = time.monotonic() + COOL_DOWN_SECONDS
        return error

    def _by_preference(self) -> list[httpx.URL]:
        """Return the endpoints: the preferred as they were given, then the others, and what failed of late last."""
        now, until = time.monotonic(), self._ask_last_until
        return sorted(until, key=lambda endpoint: (until[endpoint] > now, endpoint not in self._preferred))

    def _request(self, endpoint: httpx.URL, path: str, body: Mapping[str, Any]) -> httpx.Request:
        return httpx.Request("POST", f"{endpoint}{path}", json=body, headers=dict(self._headers))


def urls(endpoints: str | Sequence[str]) -> list[httpx.URL]:
    """Return endpoints as addresses. Raises ValueError."""
    found = [httpx.URL(url.rstrip("/")) for url in ([endpoints] if isinstance(endpoints, str) else endpoints)]
    if not found or any(url.scheme not in ("http", "https") or not url.host for url in found):
        raise ValueError(f"{endpoints!r} names no endpoint such as http://127.0.0.1:8080")
    return found


class QuestionCall(Call[T]):
    """One question. Its answer may take `_seconds` beyond the deadline; who `_streams` reads the body."""

    _path, _seconds, _streams = "/plan", NETWORK_SECONDS, False

    def __init__(
        self, ask_last_until: dict[httpx.URL, float], headers: Mapping[str, str], timeout: float, body: dict[str, Any]
    ) -> None:
        super().__init__(ask_last_until, headers, timeout)
        self._body = body
        self._found: T | None = None

    def _send(self, endpoint: httpx.URL, left: float) -> Send | None:
        deadline_ms = min(self._body["deadline_ms"], int(left * 1000))
        if deadline_ms < LEAST_DEADLINE_MS:
            return None
        request = self._request(endpoint, self._path, self._body | {"deadline_ms": deadline_ms})
        until = time.monotonic() + deadline_ms / 1000 + self._seconds
        return Send(request, min(self.end, until), self._streams)

    def _result(self) -> T:
        assert self._found is not None
        return self._found

    def _given_up(self, error: PlannerError) -> T:
        raise error


class PlanCall(QuestionCall[Answer]):
    """One question for its plan."""

    def _take(self, response: httpx.Response) -> None:
        self._found = read(Answer, response)


_Model = TypeVar("_Model", bound=BaseModel)


def read(model: type[_Model], response: httpx.Response) -> _Model:
    """Return an answer (200) as this model. Raises UnexpectedAnswerError."""
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise UnexpectedAnswerError(
            f"{response.url} answered 200, but {where} is no plan's ({first['msg']}): is this a planner?", status=200
        ) from error


def failure(outcome: Outcome, url: httpx.URL) -> UnavailableError:
    """Return what to raise if no other attempt is made. Raises PlannerError where none would help."""
    if not isinstance(outcome, httpx.Response):
        return UnavailableError(f"{url} cannot be reached or is too slow ({type(outcome).__name__}: {outcome}).")
    status, problem = outcome.status_code, _problem(outcome)
    told = f"{url} answered {status}: {(problem.detail or problem.title) if problem else outcome.reason_phrase}"
    error = of_status(told, status, problem, _retry_after(outcome))
    if not isinstance(error, UnavailableError):
        raise error
    return error


def of_status(told: str, status: int, problem: Problem | None, retry_after: float | None = None) -> PlannerError:
    """Return the error of an answer with this status."""
    if status == 429 or status >= 500:
        kind = RateLimitedError if status == 429 else UnavailableError
        return kind(told, status=status, problem=problem, retry_after=retry_after)
    if status in (401, 403):
        return UnauthorizedError(f"{told} Give the client the right `token`.", status=status, problem=problem)
    final = InvalidRequestError if problem else UnexpectedAnswerError
    return final(told, status=status, problem=problem)


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


_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def trace_headers(traceparent: str | None = None, tracestate: str | None = None) -> dict[str, str]:
    """Return the trace context to send: the given one, otherwise OpenTelemetry's current span, otherwise a new trace.

    A malformed `traceparent` starts a new trace, as the specification asks, and is no error.
    """
    if traceparent and _TRACEPARENT.fullmatch(traceparent):
        return {"traceparent": traceparent, **({"tracestate": tracestate} if tracestate else {})}
    return _current() or {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}


def _current() -> dict[str, str]:
    try:
        from opentelemetry import propagate
    except ImportError:
        return {}
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name: carrier[name] for name in ("traceparent", "tracestate") if name in carrier}


ENCODINGS = "gzip, deflate"  # what is asked for, and read
MOST_BYTES = 1 << 20
_EITHER = zlib.MAX_WBITS | 32  # zlib finds out which of the two it is


class Body:
    """Collects what a server sends. A few bytes that would unfold into many are given up before they do."""

    def __init__(self, headers: httpx.Headers, most_bytes: int) -> None:
        """Raise httpx.DecodingError for an encoding that the request did not accept."""
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "deflate"):
            raise httpx.DecodingError("the answer is in an encoding that was not asked for")
        self._unfold = None if encoding == "identity" else zlib.decompressobj(_EITHER)
        self._most_bytes = most_bytes
        self._read = bytearray()

    def add(self, raw: bytes) -> None:
        """Take the next bytes of the network. Raises httpx.DecodingError, or httpx.ReadError past the limit."""
        room = self._most_bytes - len(self._read) + 1
        try:
            self._read += raw[:room] if self._unfold is None else self._unfold.decompress(raw, room)
        except zlib.error as error:
            raise httpx.DecodingError(f"the answer is no {ENCODINGS}") from error
        if len(self._read) > self._most_bytes:
            raise httpx.ReadError(f"the answer has more than {self._most_bytes} bytes")

    def whole(self) -> bytes:
        return bytes(self._read)


def read_body(response: httpx.Response, until: float) -> bytes:
    """Return a streamed response's body, which has to end `until` then on the monotonic clock.

    Raises httpx.RequestError.
    """
    if response.is_stream_consumed:  # the whole answer of a test's transport
        return response.content
    body = Body(response.headers, MOST_BYTES)
    for chunk in response.iter_raw():
        body.add(chunk)
        if time.monotonic() > until:
            raise httpx.ReadTimeout("the answer does not end")
    return body.whole()
