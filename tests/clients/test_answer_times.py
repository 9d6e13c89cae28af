"""What `answer()` does with its time and with the bytes of a stream, on a clock that stands still."""

import json
from typing import Any

import httpx
import pytest
from peakplan_client import Answer, Client, Done, Event, UnavailableError, UnexpectedAnswerError

from tests.clients.scripted import BODY, FIRST, Clock, Fake, Handler, Pieces, problem, waits

HEADERS = {"content-type": "text/event-stream"}
PLAN = b"event: plan\ndata: %b\n\n" % json.dumps(BODY).encode()
END = b'event: done\ndata: {"total_ms": 43.0}\n\n'
MOST_BYTES = 1 << 20


def answer(handler: Handler, **options: Any) -> list[Event]:
    with Client(FIRST, transport=httpx.MockTransport(handler)) as client:
        return list(client.answer("red boots", **options))


def streams(*pieces: bytes | float, clock: Clock | None = None) -> Handler:
    return lambda _: httpx.Response(200, headers=HEADERS, stream=Pieces(pieces, clock))


class Service:
    """Streams a whole answer; `asked` keeps every request."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return streams(PLAN, END)(request)


def test_it_asks_for_300_ms_and_waits_a_second_more_for_the_search(clock: Clock) -> None:
    fake = Service()
    assert [type(event) for event in answer(fake)] == [Answer, Done]
    answer(fake, timeout=0.25)
    assert clock.paused == []
    assert [json.loads(request.content)["deadline_ms"] for request in fake.asked] == [300, 250]
    assert [waits(request) for request in fake.asked] == pytest.approx([1.4, 0.25])


def test_it_takes_two_seconds_at_most(clock: Clock) -> None:
    fake = Fake(first=[problem(503)])
    with pytest.raises(UnavailableError, match="answered 503"):
        answer(fake)
    assert clock.paused == pytest.approx([0.03, 0.06, 0.12, 0.24, 0.48, 0.96])
    assert [json.loads(request.content)["deadline_ms"] for request in fake.asked] == [300] * 6 + [110]
    assert waits(fake.asked[-1]) == pytest.approx(0.11)


@pytest.mark.parametrize(("milliseconds", "asked"), [(9, 0), (10, 1)])
def test_without_the_time_that_the_service_needs_it_does_not_ask(clock: Clock, milliseconds: int, asked: int) -> None:
    assert clock.now
    fake = Service()
    if asked:
        answer(fake, timeout=(milliseconds + 0.5) / 1000)
    else:
        with pytest.raises(UnavailableError, match="no time to ask"):
            answer(fake, timeout=(milliseconds + 0.5) / 1000)
    assert len(fake.asked) == asked


@pytest.mark.parametrize(("seconds", "is_late"), [(2.0, False), (2.01, True)])
def test_a_stream_that_goes_on_past_the_call_s_time_is_given_up(clock: Clock, seconds: float, is_late: bool) -> None:
    handler = streams(PLAN, seconds, END, clock=clock)
    if is_late:
        with pytest.raises(UnavailableError, match="does not end its answer in time"):
            answer(handler)
    else:
        assert len(answer(handler)) == 2


@pytest.mark.parametrize("more", [0, 1])
def test_a_stream_has_a_megabyte_at_most(more: int) -> None:
    padding = b": %b\n" % (b"x" * (MOST_BYTES + more - len(PLAN) - len(END) - 3))
    if more:
        with pytest.raises(UnexpectedAnswerError, match=f"more than {MOST_BYTES} bytes"):
            answer(streams(PLAN, padding, END), timeout=20)
    else:
        assert [type(event) for event in answer(streams(PLAN, padding, END), timeout=20)] == [Answer, Done]


def test_what_the_format_of_events_allows_is_read() -> None:
    """Lines that end as in DOS, data in several lines, comments, and events without a name."""
    lines = json.dumps(BODY, indent=1).encode().split(b"\n")
    plan = b": hello\r\nevent:plan\r\n%b\r\n\r\n" % b"\r\n".join(b"data: " + line for line in lines)
    others = (b"data: 1\n\n", b": nothing yet\n\n", END)
    for pieces in ([plan], [bytes([byte]) for byte in plan]):
        found = answer(streams(*pieces, *others), timeout=20)
        assert [type(event) for event in found] == [Answer, Done]
        assert isinstance(found[0], Answer)
        assert found[0].plan.queries == ["red boots"]


def test_what_follows_the_end_makes_it_no_end() -> None:
    with pytest.raises(UnavailableError, match="broke off in the middle"):
        answer(streams(PLAN, END, PLAN), timeout=20)
