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
from peakplan_client.events import MOST_BYTES

from tests.clients.scripted import Pieces, waits
from tests.processes import PATIENCE

MOST_OF_AN_ANSWER = 1 << 20
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


def test_64_go_at_a_time_to_the_path_of_outcomes(sender: Sender) -> None:
    done = sender.send(accept, 129, urls="http://a/")
    assert sender.sizes() == [64, 64, 1]
    assert (done.sent, done.dropped, done.refused) == (129, 0, 0)
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
    bomb = Pieces((gzip.compress(bytes(MOST_OF_AN_ANSWER + 1)),))

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


def test_the_second_endpoint_has_them_at_once_where_the_first_is_down(sender: Sender) -> None:
    done = sender.send(
        lambda request: httpx.Response(503) if request.url.host == "a" else accept(request), 2,
        urls=["http://a", "http://b"],
    )  # fmt: skip
    assert [request.url.host for request in sender.asked] == ["a", "b"]
    assert (done.sent, sender.paused) == (2, [])


@pytest.mark.parametrize(("seconds", "sizes", "paused"), [(0.29, [64, 64, 8, 8], [0.1, 0.1]),
                                                          (0.31, [64, 64, 64, 8], [0.1, 0.2])])  # fmt: skip
def test_the_end_waits_no_longer_than_it_is_told(
    sender: Sender, seconds: float, sizes: list[int], paused: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        done = sender.send(lambda _: httpx.Response(503), 72, close=seconds)
    assert (done.sent, done.dropped, done.refused) == (0, 72, 0)
    assert (sender.sizes(), sender.paused) == (sizes, pytest.approx(paused))
    assert "events dropped: 64 by now, because the service did not take them before the end" in caplog.text


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


def test_an_event_keeps_its_own_id_and_a_sender_needs_an_endpoint() -> None:
    with EventSender("http://a", transport=httpx.MockTransport(accept)) as own:
        given = {"event_id": "mine"}
        own.put(given)
        assert given == {"event_id": "mine"}
    assert own.sent == 1
    for none in ([], "localhost:8080", ["http://a", ""]):
        with pytest.raises(ValueError, match="no endpoint"):
            EventSender(none)


class Lingering:
    """A sender whose clock moves only while it waits: `moves` gives how much of each wait passes before it is woken."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Answers, linger_ms: float, moves: list[float]) -> None:
        self.now, self.asked = 1000.0, list[tuple[float, list[dict[str, Any]]]]()
        self._moves, self._answers = moves, answers
        self.sender = EventSender("http://a", linger_ms=linger_ms, transport=httpx.MockTransport(self._answer))
        self.at_wait: Callable[[], object] = lambda: None
        with self.sender._changed:  # until the patches are there
            monkeypatch.setattr(self.sender._changed, "wait", self._wait)
            monkeypatch.setattr(time, "monotonic", lambda: self.now)
            self.put("first")
            self.sender._changed.notify()

    def put(self, *names: str) -> None:
        assert all(self.sender.put({"query_id": name}) for name in names)

    def ended(self) -> "Lingering":
        self.sender._thread.join(PATIENCE)
        assert not self.sender._thread.is_alive()
        return self

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((round(self.now - 1000, 6), json.loads(request.content)))
        return self._answers(request)

    def _wait(self, timeout: float | None = None) -> bool:
        if timeout is None:  # everything is sent
            self.sender._ends_at = self.now
            return True
        self.now += timeout * (self._moves.pop(0) if self._moves else 1.0)
        self.at_wait()
        return True

    def names(self) -> list[tuple[float, list[str]]]:
        return [(at, [event["query_id"] for event in events]) for at, events in self.asked]


def test_events_linger_for_others_since_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = iter([("second",), ("third", "fourth")])
    lingering = Lingering(monkeypatch, accept, 500, [0.2, 0.5])
    lingering.at_wait = lambda: lingering.put(*next(coming, ()))
    assert lingering.ended().names() == [(0.5, ["first", "second", "third", "fourth"])]


def test_events_that_come_while_the_service_is_down_do_not_shorten_its_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them woke the sender, which asked a service that was down as often as its shop had events."""
    answers = iter([httpx.Response(503), httpx.Response(503)])
    lingering = Lingering(monkeypatch, lambda request: next(answers, accept(request)), 0, [0.25, 0.25, 0.5])
    coming = iter([("second",), ("third",)])
    lingering.at_wait = lambda: lingering.put(*next(coming, ()))
    assert lingering.ended().names() == [
        (0.0, ["first"]), (0.1, ["first"]), (0.3, ["first"]), (0.3, ["second", "third"]),
    ]  # fmt: skip


class Gate:
    """Counts events that arrive; those who wait for a number are told."""

    def __init__(self) -> None:
        self.sizes, self.names = list[int](), list[str]()
        self._changed = threading.Condition()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert len(request.content) <= MOST_BYTES
        events = json.loads(request.content)
        with self._changed:
            self.sizes.append(len(events))
            self.names += [event["query_id"] for event in events]
            self._changed.notify_all()
        return accept(request)

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.names) >= count, PATIENCE)


FOR_EVER_MS = 1e8


def test_a_full_request_lingers_for_nobody_and_the_end_sends_the_rest_in_order() -> None:
    gate = Gate()
    with EventSender("http://a", linger_ms=FOR_EVER_MS, transport=httpx.MockTransport(gate)) as sender:
        for number in range(66):
            assert sender.put({"query_id": str(number)})
            if number == 63:
                gate.wait_for(64)
    assert gate.sizes == [64, 2]
    assert gate.names == [str(number) for number in range(66)]
    assert sender.sent == 66


def test_long_events_fill_a_request_by_their_bytes() -> None:
    gate = Gate()
    with EventSender("http://a", linger_ms=FOR_EVER_MS, transport=httpx.MockTransport(gate)) as sender:
        for number in range(40):
            assert sender.put({"query_id": str(number), "message": "ä" * 600})
        gate.wait_for(36)
    assert gate.names == [str(number) for number in range(40)]
    assert max(gate.sizes) == gate.sizes[0] == 12
    assert sender.sent == 40


def test_an_event_that_no_request_can_hold_ends_no_sender_and_what_comes_later_lingers() -> None:
    """It is sent alone, for the service to say that it is too large."""
    asked: list[list[str]] = []
    told = threading.Condition()

    def service(request: httpx.Request) -> httpx.Response:
        with told:
            asked.append([event["query_id"] for event in json.loads(request.content)])
            told.notify_all()
        return accept(request) if len(request.content) <= MOST_BYTES else httpx.Response(413)

    with EventSender("http://a", linger_ms=FOR_EVER_MS, transport=httpx.MockTransport(service)) as sender:
        for number in range(20):  # each fills a request alone, and is forgotten with it
            assert sender.put({"query_id": str(number), "message": "x" * 2 * MOST_BYTES})
            with told:
                assert told.wait_for(lambda number=number: len(asked) == number + 1, PATIENCE)
        rest: list[dict[str, str]] = [
            {"query_id": "20", "event_id": "a", "message": ""},
            {"query_id": "21", "event_id": "b"},
        ]
        room = MOST_BYTES - len(json.dumps(rest, separators=(",", ":")))
        assert sender.put({**rest[0], "message": "x" * room})  # fills a request together with the last one
        with told:
            assert not told.wait(0.05)
        assert sender.put(rest[1])
    assert asked == [*([str(number)] for number in range(20)), ["20", "21"]]
    assert (sender.sent, sender.refused) == (2, 20)


def test_what_is_no_json_is_refused_and_the_sender_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """It ended the sender's thread: nothing more was sent, and no error was reported."""
    gate = Gate()
    with EventSender("http://a", transport=httpx.MockTransport(gate)) as sender, caplog.at_level(logging.WARNING):
        for wrong in (object(), float("nan"), "\ud800"):
            assert not sender.put({"query_id": wrong})
        changed = {"query_id": "as it was"}
        assert sender.put(changed)
        changed["query_id"] = "as it is"
    assert (sender.sent, sender.refused, gate.names) == (1, 3, ["as it was"])
    assert "it is no JSON: TypeError" in caplog.text
