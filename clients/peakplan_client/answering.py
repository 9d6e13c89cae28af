"""`POST /answer`, event by event: the plan, three products with the wishes that each meets, the others, the end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from peakplan_client.calls import NETWORK_SECONDS, QuestionCall
from peakplan_client.errors import UnavailableError, UnexpectedAnswerError
from peakplan_client.plan import Answer

ANSWER_TIMEOUT_SECONDS = 2.0
_SEARCH_SECONDS = 1.0  # that the service gives the search, beyond the plan's deadline
_MAX_BYTES = 1 << 20
_MEDIA_TYPE = "text/event-stream"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Wish(_Model):
    """One thing that the shopper asked for, in their words; `kind`: price, exclusion, facet, kind, rating or offer."""

    kind: str
    says: str


class Option(_Model):
    """A product, and the wishes that it meets, that it does not, and that its catalogue does not tell."""

    id: str
    name: str
    price: float | None = None
    currency: str = "USD"
    category: str = ""
    snippet: str = ""
    met: Sequence[Wish] = ()
    unmet: Sequence[Wish] = ()
    unknown: Sequence[Wish] = ()


class Options(_Model):
    """The first three products, `milliseconds` after the request; `reason` says why there are none.

    `missing` are the kinds of things asked for that none is said to be; `nothing`: all of them, and `nearest` are the
    shop's kinds that come nearest.
    """

    options: Sequence[Option] = ()
    notes: Sequence[str] = ()
    nothing: bool = False
    missing: Sequence[str] = ()
    nearest: Sequence[str] = ()
    reason: str | None = None
    milliseconds: float = 0.0


class More(_Model):
    """The products after the first three."""

    options: Sequence[Option] = ()


class Done(_Model):
    """The end: milliseconds from the request to the plan, the first products and the end."""

    plan_ms: float = 0.0
    first_ms: float = 0.0
    total_ms: float = 0.0


Event = Answer | Options | More | Done
_EVENTS: dict[str, type[Event]] = {"plan": Answer, "options": Options, "more": More, "done": Done}


class AnswerCall(QuestionCall[httpx.Response]):
    """One question; its result is the response whose body is still to be read."""

    _path, _seconds, _streams = "/answer", NETWORK_SECONDS + _SEARCH_SECONDS, True

    def __init__(
        self, ask_last_until: dict[httpx.URL, float], headers: Mapping[str, str], timeout: float, body: dict[str, Any]
    ) -> None:
        # Nothing unfolds into more than it is: a stream is read as it comes.
        streamed = {"accept": f"{_MEDIA_TYPE}, application/problem+json", "accept-encoding": "identity"}
        super().__init__(ask_last_until, {**headers, **streamed}, timeout, body)

    def _take(self, response: httpx.Response) -> None:
        self._found = response


class Events:
    """Reads the events of a response from its bytes as they come. Raises PlannerError."""

    def __init__(self, response: httpx.Response, end: float) -> None:
        """Take when the call's time is up, on the monotonic clock."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        if kind != _MEDIA_TYPE or response.headers.get("content-encoding", "identity") != "identity":
            raise UnexpectedAnswerError(f"{response.url} answered 200, but no {_MEDIA_TYPE}: is this a planner?")
        self._url = response.url
        self._end = end
        self._read = 0
        self._rest = b""
        self._is_done = False

    def add(self, raw: bytes) -> Iterator[Event]:
        """Yield the events that end with these bytes; skip events that only a newer service knows."""
        if time.monotonic() > self._end:
            raise UnavailableError(f"{self._url} does not end its answer in time.")
        self._read += len(raw)
        if self._read > _MAX_BYTES:
            raise UnexpectedAnswerError(f"{self._url} answered more than {_MAX_BYTES} bytes.")
        *blocks, self._rest = (self._rest + raw).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            fields = [line.partition(b":") for line in block.split(b"\n")]
            name = b"".join(value.strip() for field, _, value in fields if field == b"event").decode("ascii", "replace")
            data = b"\n".join(value for field, _, value in fields if field == b"data")
            if name in _EVENTS:
                yield self._event(name, data)

    def close(self, why: Exception | None = None) -> None:
        """Take the end of the bytes, and `why` no more come; once everything is there that is no matter."""
        if not self._is_done:
            raise UnavailableError(f"{self._url} broke off in the middle of its answer.") from why

    def _event(self, name: str, data: bytes) -> Event:
        self._is_done = name == "done"
        try:
            return _EVENTS[name].model_validate_json(data)
        except ValidationError as error:
            raise UnexpectedAnswerError(
                f"{self._url}: the event {name!r} is none of a planner's.", status=200
            ) from error
