"""`EventSender` at its bounds: lists, pauses, refusals, and an end that comes before the service has everything."""

import gzip
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
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
    """A sender that begins once everything waits, whose clock moves only while it waits.

    `moves` gives how much of each wait passes before something wakes it, else all of it; `coming` are events put
    at the end of each wait.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paused, self.asked = list[float](), list[tuple[float, httpx.Request]]()
        self.moves, self.coming = list[float](), list[list[str]]()
        self._now, self._patch = 1000.0, monkeypatch
        self._sender: EventSender

    def send(self, service: Answers, count: int, *, close: float | None = 1e9, **options: Any) -> EventSender:
        """Send so many events and close the sender, or, without `close`, once it has nothing left."""

        def answer(request: httpx.Request) -> httpx.Response:
            self.asked.append((round(self._now - 1000, 6), request))
            return service(request)

        options = {"endpoints": "http://a", "token": "secret", "transport": httpx.MockTransport(answer), **options}
        self._sender = EventSender(options.pop("endpoints"), **options)
        with self._sender._changed:
            self._patch.setattr(self._sender._changed, "wait", self._wait)
            self._patch.setattr(time, "monotonic", lambda: self._now)
            self._put(map(str, range(count)))
            if close is not None:
                self._sender._ends_at = self._now + close
            self._sender._changed.notify()
        self._sender._thread.join(PATIENCE)
        assert not self._sender._thread.is_alive()
        return self._sender

    def pass_time(self, seconds: float) -> None:
        self._now += seconds

    def _put(self, names: Iterable[str]) -> None:
        assert all(self._sender.put({"query_id": name}) for name in names)

    def _wait(self, timeout: float | None = None) -> bool:
        if timeout is None:  # everything is sent
            self._sender._ends_at = self._now
            return True
        self.paused.append(timeout)
        self.pass_time(timeout * (self.moves.pop(0) if self.moves else 1.0))
        self._put(self.coming.pop(0) if self.coming else ())
        return True

    def sizes(self) -> list[int]:
        return [len(json.loads(request.content)) for _, request in self.asked]

    def names(self) -> list[tuple[float, str]]:
        """Return when each request was sent, and the names of its events."""
        return [(at, "".join(event["query_id"] for event in json.loads(request.content))) for at, request in self.asked]


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Sender:
    return Sender(monkeypatch)


def accept(_: httpx.Request) -> httpx.Response:
    return httpx.Response(202, json={"refused": []})


def test_64_go_at_a_time_to_the_path_of_outcomes_of_the_endpoint_that_takes_them(sender: Sender) -> None:
    done = sender.send(
        lambda request: httpx.Response(503) if request.url.host == "a" else accept(request), 129,
        endpoints=["http://a/", "http://b/"],
    )  # fmt: skip
    assert [request.url.host for _, request in sender.asked] == ["a", "b", "b", "b"]
    assert (sender.sizes(), sender.paused) == ([64, 64, 64, 1], [])
    assert (done.sent, done.dropped, done.refused) == (129, 0, 0)
    for _, request in sender.asked:
        assert (request.url.path, request.headers["authorization"]) == ("/outcomes", "Bearer secret")
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
    assert len({request.content for _, request in sender.asked}) == 1


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


def test_events_linger_for_others_since_the_first_of_them(sender: Sender) -> None:
    sender.moves, sender.coming = [0.2, 0.5], [["1"], ["2", "3"]]
    sender.send(accept, 1, close=None, linger_ms=500)
    assert sender.names() == [(0.5, "0123")]


def test_events_that_come_while_the_service_is_down_do_not_shorten_its_pauses(sender: Sender) -> None:
    """Each of them woke the sender, which asked a service that was down as often as its shop had events."""
    answers = iter([httpx.Response(503), httpx.Response(503)])
    sender.moves, sender.coming = [0.25, 0.25, 0.5], [["1"], ["2"]]
    sender.send(lambda request: next(answers, accept(request)), 1, close=None, linger_ms=0)
    assert sender.names() == [(0.0, "0"), (0.1, "0"), (0.3, "0"), (0.3, "12")]


def test_an_event_keeps_its_own_id_and_a_sender_needs_an_endpoint() -> None:
    with EventSender("http://a", transport=httpx.MockTransport(accept)) as own:
        given = {"event_id": "mine"}
        own.put(given)
        assert given == {"event_id": "mine"}
    assert own.sent == 1
    for none in ([], "localhost:8080", ["http://a", ""]):
        with pytest.raises(ValueError, match="no endpoint"):
            EventSender(none)


class Gate:
    """A service that refuses requests which are too large; `asked` are the names of each request's events."""

    def __init__(self) -> None:
        self.asked = list[list[str]]()
        self.changed = threading.Condition()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.changed:
            self.asked.append([event["query_id"] for event in json.loads(request.content)])
            self.changed.notify_all()
        return accept(request) if len(request.content) <= MOST_BYTES else httpx.Response(413)

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: sum(map(len, self.asked)) >= count, PATIENCE)


FOR_EVER_MS = 1e8


@pytest.mark.parametrize(("message", "full", "count"), [("", 64, 66), ("ä" * 600, 12, 40)])
def test_a_request_is_full_by_number_or_bytes_and_the_end_sends_the_rest_in_order(
    message: str, full: int, count: int
) -> None:
    gate = Gate()
    with EventSender("http://a", linger_ms=FOR_EVER_MS, transport=httpx.MockTransport(gate)) as sender:
        for number in range(count):
            assert sender.put({"query_id": str(number), "message": message})
            if number % full == full - 1:
                gate.wait_for(number + 1)  # it lingers for nobody
    assert list(map(len, gate.asked)) == [*[full] * (count // full), count % full]
    assert [name for names in gate.asked for name in names] == [str(number) for number in range(count)]
    assert (sender.sent, sender.refused) == (count, 0)


def test_an_event_that_no_request_can_hold_ends_no_sender_and_what_comes_later_lingers() -> None:
    """It is sent alone, for the service to say that it is too large."""
    gate = Gate()
    with EventSender("http://a", linger_ms=FOR_EVER_MS, transport=httpx.MockTransport(gate)) as sender:
        for number in range(20):  # each fills a request alone, and is forgotten with it
            assert sender.put({"query_id": str(number), "message": "x" * 2 * MOST_BYTES})
            gate.wait_for(number + 1)
        rest: list[dict[str, str]] = [
            {"query_id": "20", "event_id": "a", "message": ""}, {"query_id": "21", "event_id": "b"},
        ]  # fmt: skip
        room = MOST_BYTES - len(json.dumps(rest, separators=(",", ":")))
        assert sender.put({**rest[0], "message": "x" * room})  # fills a request together with the last one
        with gate.changed:
            assert not gate.changed.wait(0.05)
        assert sender.put(rest[1])
    assert gate.asked == [*([str(number)] for number in range(20)), ["20", "21"]]
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
    assert (sender.sent, sender.refused, gate.asked) == (1, 3, [["as it was"]])
    assert "it is no JSON: TypeError" in caplog.text
