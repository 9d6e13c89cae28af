"""`Client` and `AsyncClient`: plans over HTTP, within one deadline for everything that a call does (`calls.py`)."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Self, TypedDict, TypeVar, Unpack

import httpx

from peakplan_client.answering import ANSWER_TIMEOUT_SECONDS, AnswerCall, Event, Events
from peakplan_client.batch import PLANS_TIMEOUT_SECONDS, Planned, PlansCall, Question, batches, newest
from peakplan_client.calls import (
    ENCODINGS,
    LEAST_DEADLINE_MS,
    MOST_BYTES,
    Body,
    Outcome,
    PlanCall,
    Send,
    Sleep,
    Steps,
    read_body,
    trace_headers,
    urls,
)
from peakplan_client.experiments import Trial, is_unit
from peakplan_client.plan import Answer

T = TypeVar("T")

DEADLINE_MS = 300
TIMEOUT_SECONDS = 1.0
_MOST_DEADLINE_MS = 2000  # of the service


class CallOptions(TypedDict, total=False):
    """The optional arguments of one call.

    `deadline_ms` is the service's time for a plan, `timeout` that of the whole call in seconds; `traceparent` and
    `tracestate` are the W3C trace context to go on with. `shopper` is who the service's experiment is to count, by an
    id of the shop's, which the service keeps as a hash: up to 100 visible characters of ASCII, without spaces. Who has
    another id gets a plan, too, and is in no arm.
    """

    deadline_ms: int
    timeout: float
    traceparent: str | None
    tracestate: str | None
    shopper: str


class ClientOptions(TypedDict, total=False):
    """The optional arguments of a client.

    `deadline_ms` and `timeout` are the defaults for calls that give none. With a `trial`, a call that names a
    `shopper` goes to the endpoints of that shopper's arm.
    """

    token: str | None
    deadline_ms: int
    timeout: float
    trial: Trial | None


class _Base:
    def __init__(
        self,
        endpoints: str | Sequence[str],
        token: str | None = None,
        deadline_ms: int = DEADLINE_MS,
        timeout: float = TIMEOUT_SECONDS,
        trial: Trial | None = None,
    ) -> None:
        self._trial, self._usual = trial, urls(endpoints)
        self._of_arms = {arm: urls(given) for arm, given in trial.endpoints.items()} if trial else {}
        every = [*self._usual, *(url for given in self._of_arms.values() for url in given)]
        self._ask_last_until = dict.fromkeys(every, 0.0)
        self._headers = {"accept": "application/json", "accept-encoding": ENCODINGS, "user-agent": "peakplan-client"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._deadline_ms, self._timeout = deadline_ms, timeout

    def _plan(self, query: str, history: Sequence[str], options: CallOptions) -> Steps[Answer]:
        headers, body = self._request(query, history, options)
        call = PlanCall(self._ask_last_until, headers, options.get("timeout", self._timeout), body)
        return call.prefer(self._hosts(options)).steps()

    def _answer(self, query: str, history: Sequence[str], options: CallOptions) -> AnswerCall:
        headers, body = self._request(query, history, options)
        call = AnswerCall(self._ask_last_until, headers, options.get("timeout", ANSWER_TIMEOUT_SECONDS), body)
        return call.prefer(self._hosts(options))

    def _hosts(self, options: CallOptions) -> Sequence[httpx.URL]:
        """Return the endpoints of the shopper's arm; others are asked where these fail."""
        shopper = options.get("shopper", "")
        if self._trial is None or not is_unit(shopper):
            return self._usual
        return self._of_arms.get(self._trial.arm(shopper), self._usual)

    def _request(
        self, query: str, history: Sequence[str], options: CallOptions
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Return headers and body."""
        deadline_ms = options.get("deadline_ms", self._deadline_ms)
        if not LEAST_DEADLINE_MS <= deadline_ms <= _MOST_DEADLINE_MS:
            raise ValueError(f"deadline_ms must be from {LEAST_DEADLINE_MS} to {_MOST_DEADLINE_MS}, not {deadline_ms}")
        headers = self._headers | trace_headers(options.get("traceparent"), options.get("tracestate"))
        if is_unit(shopper := options.get("shopper", "")):
            headers["x-experiment-unit"] = shopper
        return headers, {"query": query, "deadline_ms": deadline_ms} | ({"history": newest(history)} if history else {})

    def _plans(self, requests: Iterable[Question | str], timeout: float) -> Iterator[Steps[list[Planned]]]:
        """Yield the steps of one batch after the other."""
        headers = self._headers | trace_headers(None, None)
        for batch in batches(requests):
            yield PlansCall(self._ask_last_until, headers, timeout, batch).prefer(self._usual).steps()


class Client(_Base):
    """A client for threads, which may share it: `Client("http://127.0.0.1:8080").plan("red boots under $80").plan`."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        transport: httpx.BaseTransport | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Take endpoints in order of preference."""
        super().__init__(endpoints, **options)
        self._http = httpx.Client(transport=transport)

    def plan(self, query: str, history: Sequence[str] = (), **options: Unpack[CallOptions]) -> Answer:
        """Return the plan of the newest utterance after `history`, newest last, of which the newest 8 messages count.

        Raises PlannerError.
        """
        return self._take(self._plan(query, history, options))

    def answer(self, query: str, history: Sequence[str] = (), **options: Unpack[CallOptions]) -> Iterator[Event]:
        """Yield the plan, as `plan` returns it, then the first three products (`Options`), others (`More`), `Done`.

        The call has 2 s unless `timeout` says otherwise. Who stops reading early closes the iterator, which ends the
        service's work. Raises PlannerError.
        """
        call = self._answer(query, history, options)
        with contextlib.closing(self._take(call.steps())) as response:
            events = Events(response, call.end)
            try:
                for chunk in response.iter_raw():
                    yield from events.add(chunk)
            except httpx.RequestError as error:
                events.close(error)
            events.close()

    def plans(self, requests: Iterable[Question | str], *, timeout: float = PLANS_TIMEOUT_SECONDS) -> list[Planned]:
        """Return for each question, in their order, its plan or the error that it has; for jobs that can wait.

        However many there are: they go in batches, each within `timeout` seconds, on replicas that no shopper needs.
        Raises PlannerError where no question could be answered at all: the token is wrong, or this is no planner.
        """
        return [planned for steps in self._plans(requests, timeout) for planned in self._take(steps)]

    def _take(self, steps: Steps[T]) -> T:
        """Take every step, and return the call's result."""
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = self._send(step)

    def _send(self, step: Send | Sleep) -> Outcome:
        if isinstance(step, Sleep):
            time.sleep(step.seconds)
            return None
        step.request.extensions["timeout"] = httpx.Timeout(max(0.001, step.until - time.monotonic())).as_dict()
        try:
            response = self._http.send(step.request, stream=True)
            if step.streams and response.is_success:
                return response
            with contextlib.closing(response):
                return _whole(response, read_body(response, step.until))
        except httpx.RequestError as error:
            return error

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
        transport: httpx.AsyncBaseTransport | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Take endpoints in order of preference."""
        super().__init__(endpoints, **options)
        self._http = httpx.AsyncClient(transport=transport)

    async def plan(self, query: str, history: Sequence[str] = (), **options: Unpack[CallOptions]) -> Answer:
        """Return the plan of the newest utterance after `history`, newest last, of which the newest 8 messages count.

        Raises PlannerError.
        """
        return await self._take(self._plan(query, history, options))

    async def answer(
        self, query: str, history: Sequence[str] = (), **options: Unpack[CallOptions]
    ) -> AsyncIterator[Event]:
        """Yield what `Client.answer` yields."""
        call = self._answer(query, history, options)
        async with contextlib.aclosing(await self._take(call.steps())) as response:
            events = Events(response, call.end)
            chunks = response.aiter_raw()
            while (chunk := await _next(chunks, events, call.end)) is not None:
                for event in events.add(chunk):
                    yield event
            events.close()

    async def plans(
        self, requests: Iterable[Question | str], *, timeout: float = PLANS_TIMEOUT_SECONDS
    ) -> list[Planned]:
        """Return for each question, in their order, its plan or the error that it has, as `Client.plans` does."""
        return [planned for steps in self._plans(requests, timeout) for planned in await self._take(steps)]

    async def _take(self, steps: Steps[T]) -> T:
        """Take every step, and return the call's result."""
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = await self._send(step)

    async def _send(self, step: Send | Sleep) -> Outcome:
        if isinstance(step, Sleep):
            await asyncio.sleep(step.seconds)
            return None
        left = max(0.001, step.until - time.monotonic())
        step.request.extensions["timeout"] = httpx.Timeout(left).as_dict()
        try:
            async with asyncio.timeout(left):
                response = await self._http.send(step.request, stream=True)
                if step.streams and response.is_success:
                    return response
                async with contextlib.aclosing(response):
                    if response.is_stream_consumed:  # the whole answer of a test's transport
                        return response
                    body = Body(response.headers, MOST_BYTES)
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


async def _next(chunks: AsyncIterator[bytes], events: Events, end: float) -> bytes | None:
    """Return the next bytes, None after the last. Raises UnavailableError."""
    try:
        async with asyncio.timeout(max(0.0, end - time.monotonic())):
            return await anext(chunks, None)
    except (httpx.RequestError, TimeoutError) as error:
        events.close(error)
        return None


def _whole(response: httpx.Response, body: bytes) -> httpx.Response:
    """Return a streamed response with its body, and of its headers those that matter, as the body is decoded."""
    headers = {name: response.headers[name] for name in ("content-type", "retry-after") if name in response.headers}
    return httpx.Response(response.status_code, headers=headers, content=body, request=response.request)
