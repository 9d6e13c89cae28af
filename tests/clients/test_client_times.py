"""What the client does with its time: deadlines, timeouts, pauses and cool-downs, on a clock that stands still."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from peakplan_client import AsyncClient, Client, RateLimitedError, UnavailableError, UnexpectedAnswerError

from tests.clients.scripted import BODY, FIRST, OK, SECOND, Clock, Fake, Pieces, problem, waits


def client(fake: Callable[[httpx.Request], httpx.Response], *endpoints: str, **options: Any) -> Client:
    return Client(endpoints or FIRST, transport=httpx.MockTransport(fake), **options)


def test_a_call_asks_for_300_ms_and_waits_a_tenth_of_a_second_more(clock: Clock) -> None:
    fake = Fake(first=[OK])
    client(fake).plan("red boots")
    client(fake).plan("red boots", deadline_ms=2000, timeout=3)
    assert clock.paused == []
    assert [json.loads(request.content) for request in fake.asked] == [
        {"query": "red boots", "deadline_ms": 300},
        {"query": "red boots", "deadline_ms": 2000},
    ]
    assert [waits(request) for request in fake.asked] == pytest.approx([0.4, 2.1])


def test_a_call_takes_a_second_at_most_and_never_waits_beyond(clock: Clock) -> None:
    fake = Fake(first=[problem(500)])
    with pytest.raises(UnavailableError):
        client(fake).plan("red boots")
    assert clock.paused == pytest.approx([0.03, 0.06, 0.12, 0.24, 0.48]), (
        "a first pause of 20 ms, and half as much again"
    )
    assert [json.loads(request.content)["deadline_ms"] for request in fake.asked] == [300, 300, 300, 300, 300, 70]
    assert [waits(request) for request in fake.asked][-2:] == pytest.approx([0.4, 0.07])


@pytest.mark.parametrize(("left", "asked"), [(0.009, 2), (0.011, 3)])
def test_a_pause_after_which_the_service_would_have_too_little_time_is_not_taken(
    clock: Clock, left: float, asked: int
) -> None:
    fake = Fake(first=[problem(500)])
    with pytest.raises(UnavailableError):
        client(fake, timeout=0.03 + 0.06 + left).plan("red boots")
    assert len(fake.asked) == asked
    assert len(clock.paused) == asked - 1


@pytest.mark.parametrize(("milliseconds", "asked"), [(9, 0), (10, 1)])
def test_a_call_that_has_no_time_does_not_ask(clock: Clock, milliseconds: float, asked: int) -> None:
    assert clock.now
    fake = Fake(first=[OK])
    with client(fake, timeout=(milliseconds + 0.5) / 1000) as asking:
        if asked:
            asking.plan("red boots")
        else:
            with pytest.raises(UnavailableError, match="no time to ask the planner: give the call a longer timeout"):
                asking.plan("red boots")
    assert len(fake.asked) == asked


@pytest.mark.parametrize(("seconds", "is_late"), [(0.4, False), (0.41, True)])
def test_an_answer_that_comes_in_drops_has_as_long_as_any(clock: Clock, seconds: float, is_late: bool) -> None:
    """A tenth of a second more than the deadline, however often something comes."""
    body = json.dumps(BODY).encode()

    def handler(_: httpx.Request) -> httpx.Response:
        pieces = Pieces((body[:40], seconds, body[40:]), clock)
        return httpx.Response(200, headers={"content-type": "application/json"}, stream=pieces)

    with client(handler, timeout=0.42) as asking:
        if is_late:
            with pytest.raises(UnavailableError, match=r"too slow \(ReadTimeout: the answer does not end\)"):
                asking.plan("red boots")
        else:
            assert asking.plan("red boots").request_id == "r1"


@pytest.mark.parametrize("deadline_ms", [10, 2000])
def test_the_service_s_own_bounds_are_taken(deadline_ms: int) -> None:
    assert client(Fake(first=[OK]), timeout=30).plan("red boots", deadline_ms=deadline_ms).request_id == "r1"


@pytest.mark.parametrize("deadline_ms", [9, 2001])
def test_what_is_just_beyond_them_is_refused(deadline_ms: int) -> None:
    with pytest.raises(ValueError, match=f"from 10 to 2000, not {deadline_ms}"):
        client(Fake(first=[OK])).plan("red boots", deadline_ms=deadline_ms)


@pytest.mark.parametrize(("seconds", "host"), [(4.99, "second"), (5, "first")])
def test_an_endpoint_that_failed_is_asked_first_again_after_five_seconds(
    clock: Clock, seconds: float, host: str
) -> None:
    fake = Fake(first=[httpx.ConnectError, OK], second=[OK])
    with client(fake, FIRST, SECOND) as asking:
        asking.plan("red boots")
        clock.now += seconds
        asking.plan("red boots")
    assert fake.hosts == ["first", "second", host]


def test_who_asked_to_be_left_alone_is_while_others_are_asked(clock: Clock) -> None:
    fake = Fake(first=[problem(429, {"retry-after": "0.2"}), OK], second=[problem(500), problem(500), OK])
    with client(fake, FIRST, SECOND) as asking:
        assert asking.plan("red boots").request_id == "r1"
    assert fake.hosts == ["first", "second", "second", "second"], "the first would answer after 0.2 s, and need not"
    assert clock.paused == pytest.approx([0.03, 0.06])


def test_an_answer_that_asks_for_patience_is_waited_for_as_long_as_it_says(clock: Clock) -> None:
    fake = Fake(first=[problem(503, {"retry-after": "0.5"}), OK])
    client(fake).plan("red boots")
    assert clock.paused == pytest.approx([0.5])


@pytest.mark.parametrize(
    ("said", "kept"), [("7", 7), ("0.5", 0.5), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("", None)]
)
def test_retry_after_is_a_number_of_seconds_or_nothing(clock: Clock, said: str, kept: float | None) -> None:
    assert clock.now
    with pytest.raises(RateLimitedError) as raised:
        client(Fake(first=[problem(429, {"retry-after": said})]), timeout=0.3).plan("red boots")
    assert raised.value.retry_after == kept


@pytest.mark.parametrize("status", [500, 599, 429])
def test_what_passes_is_tried_again(clock: Clock, status: int) -> None:
    assert clock.now
    assert client(Fake(first=[problem(status), OK])).plan("red boots").request_id == "r1"


@pytest.mark.parametrize("status", [400, 428, 430, 499])
def test_what_would_be_wrong_again_is_not(clock: Clock, status: int) -> None:
    fake = Fake(first=[httpx.Response(status, text="no"), OK])
    with pytest.raises(UnexpectedAnswerError) as raised:
        client(fake).plan("red boots")
    assert (raised.value.status, len(fake.asked), clock.paused) == (status, 1, [])


def test_an_error_without_an_account_of_it_has_no_fields(clock: Clock) -> None:
    assert clock.now
    with pytest.raises(
        UnavailableError, match=r"first/plan cannot be reached or is too slow \(ConnectError: scripted\)"
    ) as raised:
        client(Fake(first=[httpx.ConnectError]), timeout=0.1).plan("red boots")
    error = raised.value
    assert (list(error.fields), error.request_id, error.status, error.problem) == ([], None, None, None)


class Closing(httpx.MockTransport):
    closed = 0

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


@pytest.fixture
def closing() -> Iterator[Closing]:
    transport = Closing(Fake(first=[OK]))
    yield transport
    assert transport.closed == 1


def test_a_client_closes_its_connections(closing: Closing) -> None:
    with Client(FIRST, transport=closing) as asking:
        asking.plan("red boots")
        assert closing.closed == 0


def test_an_async_client_closes_its_connections_and_sends_the_same(closing: Closing) -> None:
    fake = Fake(first=[problem(500), OK])
    closing.handler = fake

    async def once() -> None:
        async with AsyncClient(FIRST, transport=closing, token="secret", timeout=30) as asking:
            assert (await asking.plan("red boots")).request_id == "r1"
            assert closing.closed == 0

    asyncio.run(once())
    assert [request.headers["authorization"] for request in fake.asked] == ["Bearer secret"] * 2
    assert all(0 < waits(request) <= 0.4 for request in fake.asked)


def test_without_a_token_none_is_sent() -> None:
    fake = Fake(first=[OK])
    client(fake).plan("red boots")
    assert "authorization" not in fake.asked[0].headers
