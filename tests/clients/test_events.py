"""`EventSender` at its bounds: lists, pauses, refusals, and an end that comes before the service has everything."""

import gzip
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from peakplan_client import EventSender

from tests.clients.scripted import Pieces, waits
from tests.processes import PATIENCE

MOST_BYTES = 1 << 20
Answers = Callable[[httpx.Request], httpx.Response]


class Sender:
    """A sender that begins once everything waits, whose pauses take no time but move its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paused: list[float] = []
        self.asked: list[httpx.Request] = []
        self._now = 1000.0
        self._patch = monkeypatch

    def send(self, service: Answers, count: int, *, close: float = 1e9, urls: Any = "http://a") -> EventSender:
        """Send so many events and close the sender."""

        def answer(request: httpx.Request) -> httpx.Response:
            self.asked.append(request)
            return service(request)

        sender = EventSender(urls, token="secret", transport=httpx.MockTransport(answer))
        with sender._changed:
            self._patch.setattr(sender._changed, "wait", self._wait)
            self._patch.setattr(time, "monotonic", lambda: self._now)
            for number in range(count):
                assert sender.put({"query_id": str(number)})
            sender._ends_at = self._now + close
            sender._changed.notify()
        sender._thread.join(PATIENCE)
        assert not sender._thread.is_alive()
        return sender

    def pass_time(self, seconds: float) -> None:
        self._now += seconds

    def _wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            self.paused.append(timeout)
            self.pass_time(timeout)
        return True

    def sizes(self) -> list[int]:
        return [len(json.loads(request.content)) for request in self.asked]


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    return Sender(monkeypatch)


def accept(_: httpx.Request) -> httpx.Response:
    return httpx.Response(202, json={"refused": []})


def test_32_go_at_a_time_to_the_path_of_outcomes(sender: Sender) -> None:
    done = sender.send(accept, 65, urls="http://a/")
    assert sender.sizes() == [32, 32, 1]
    assert (done.sent, done.dropped, done.refused) == (65, 0, 0)
    for request in sender.asked:
        assert (str(request.url), request.headers["authorization"]) == ("http://a/outcomes", "Bearer secret")
        assert waits(request) == 5


def test_pauses_double_up_to_ten_seconds(sender: Sender) -> None:
    answers = iter([httpx.Response(status) for status in (500, 429, 503, 599, 500, 500, 500, 500, 500)])
    done = sender.send(lambda request: next(answers, accept(request)), 1)
    assert sender.paused == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10])
    assert (done.sent, done.dropped) == (1, 0)


@pytest.mark.parametrize("status", [400, 404, 422, 428, 430, 499])
def test_what_would_be_refused_again_is_not_sent_again(sender: Sender, status: int) -> None:
    done = sender.send(lambda _: httpx.Response(status, text="no such name"), 3)
    assert (done.sent, done.dropped, done.refused, len(sender.asked), sender.paused) == (0, 0, 3, 1, [])


def test_of_a_long_refusal_the_log_has_the_beginning(sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        sender.send(lambda _: httpx.Response(404, text="x" * 501), 2)
    assert [record.getMessage() for record in caplog.records] == [f"events refused: 2, the first because {'x' * 500}"]


def test_those_that_the_service_refuses_of_a_list_count_apart(sender: Sender, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        done = sender.send(lambda _: httpx.Response(202, json={"refused": [{"index": 1, "why": "too old"}]}), 3)
    assert (done.sent, done.refused, done.dropped) == (2, 1, 0)
    assert "events refused: 1, the first because" in caplog.text
    assert "too old" in caplog.text


@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"\xff", b"{}", b'{"refused": null}', b'{"refused": 5}'])
def test_an_older_service_says_nothing_of_refusals(sender: Sender, content: bytes) -> None:
    assert sender.send(lambda _: httpx.Response(202, content=content), 3).sent == 3


def test_answers_that_are_too_large_or_do_not_end_cost_so_much_and_the_events_are_sent_again(sender: Sender) -> None:
    """A few bytes of gzip once became as many as they liked."""
    bomb = Pieces((gzip.compress(bytes(MOST_BYTES + 1)),))

    class Drips(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for _ in range(100):
                sender.pass_time(0.1)
                yield b" "

    answers = iter([
        httpx.Response(202, headers={"content-encoding": "gzip"}, stream=bomb),
        httpx.Response(202, stream=Drips()),
        httpx.Response(202, headers={"content-encoding": "br"}, stream=Pieces((b"x",))),
    ])  # fmt: skip
    done = sender.send(lambda request: next(answers, accept(request)), 1)
    assert (done.sent, sender.paused) == (1, pytest.approx([0.1, 0.2, 0.4]))
    assert len({request.content for request in sender.asked}) == 1


@pytest.mark.parametrize("folded", [False, True])
def test_what_the_service_says_in_many_bytes_is_read(sender: Sender, folded: bool) -> None:
    said = json.dumps({"refused": [{"index": 0}]}).encode()
    said += b" " * (MOST_BYTES - len(said))
    headers = {"content-encoding": "gzip"} if folded else {}
    stream = Pieces((gzip.compress(said) if folded else said,))
    done = sender.send(lambda _: httpx.Response(202, headers=headers, stream=stream), 3)
    assert (done.sent, done.refused) == (2, 1)


def test_the_second_endpoint_has_them_at_once_where_the_first_is_down(sender: Sender) -> None:
    done = sender.send(
        lambda request: httpx.Response(503) if request.url.host == "a" else accept(request), 2,
        urls=["http://a", "http://b"],
    )  # fmt: skip
    assert [request.url.host for request in sender.asked] == ["a", "b"]
    assert (done.sent, sender.paused) == (2, [])


@pytest.mark.parametrize(("seconds", "sizes", "paused"), [(0.29, [32, 32, 8, 8], [0.1, 0.1]),
                                                          (0.31, [32, 32, 32, 8], [0.1, 0.2])])  # fmt: skip
def test_the_end_waits_no_longer_than_it_is_told(
    sender: Sender, seconds: float, sizes: list[int], paused: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        done = sender.send(lambda _: httpx.Response(503), 40, close=seconds)
    assert (done.sent, done.dropped, done.refused) == (0, 40, 0)
    assert (sender.sizes(), sender.paused) == (sizes, pytest.approx(paused))
    assert "events dropped: 32 by now, because the service did not take them before the end" in caplog.text


def test_ten_thousand_may_wait_those_that_are_under_way_included() -> None:
    begun, gate = threading.Event(), threading.Event()

    def hangs(request: httpx.Request) -> httpx.Response:
        begun.set()
        gate.wait(PATIENCE)
        return accept(request)

    waiting = EventSender("http://a", transport=httpx.MockTransport(hangs))
    assert waiting.put({})
    assert begun.wait(PATIENCE)
    assert sum(waiting.put({}) for _ in range(10_001)) == 9_999
    gate.set()
    waiting.close(PATIENCE)
    assert (waiting.sent, waiting.dropped) == (10_000, 2)


def test_a_process_does_not_wait_for_its_sender() -> None:
    with EventSender("http://a", transport=httpx.MockTransport(accept)):
        assert [each.daemon for each in threading.enumerate() if each.name == "peakplan-events"] == [True]


def test_drops_are_told_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    def hangs(request: httpx.Request) -> httpx.Response:
        gate.wait(PATIENCE)
        return accept(request)

    waiting = EventSender("http://a", most_waiting=1, transport=httpx.MockTransport(hangs))
    with caplog.at_level(logging.WARNING):
        taken = [waiting.put({}) for _ in range(17)]
    gate.set()
    waiting.close(PATIENCE)
    assert taken == [True] + [False] * 16
    told = [record.getMessage().partition(" by now")[0] for record in caplog.records if "dropped" in record.message]
    assert told == [f"events dropped: {count}" for count in (1, 2, 4, 8, 16)]


def test_an_event_keeps_its_own_id_and_a_sender_needs_an_endpoint() -> None:
    with EventSender("http://a", transport=httpx.MockTransport(accept)) as own:
        given = {"event_id": "mine"}
        own.put(given)
        assert given == {"event_id": "mine"}
    assert own.sent == 1
    for none in ([], "localhost:8080", ["http://a", ""]):
        with pytest.raises(ValueError, match="no endpoint"):
            EventSender(none)
