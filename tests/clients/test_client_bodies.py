"""What an answer may cost a caller of the client: one timeout, and so many bytes."""

import asyncio
import contextlib
import gzip
import json
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from peakplan_client import Answer, AsyncClient, Client, UnavailableError
from peakplan_client.body import Body

from tests.clients.scripted import BODY, FIRST, Handler

MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Hostile:
    """An answer that never ends: these headers, then this part of a body again and again."""

    part: bytes
    headers: bytes = b""
    pause: float = 0.0


@pytest.fixture
def hostile(request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve the answer that the test names."""
    answer: Hostile = request.param
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def send(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                + answer.headers
                + b"transfer-encoding: chunked\r\n\r\n"
            )
            while not stop.wait(answer.pause):
                connection.sendall(b"%x\r\n%b\r\n" % (len(answer.part), answer.part))

    def serve() -> None:
        while not stop.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=swallow, args=(send, connection), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop.set()
    listener.close()


def swallow(function: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the client hung up, which is what the test is about
        function(connection)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        (Hostile(b"{", pause=0.01), "too slow"),
        (Hostile(b"{" * 65536), "more than 1048576 bytes"),
        (Hostile(b"no gzip", headers=b"content-encoding: gzip\r\n"), "DecodingError"),
        (Hostile(b"{", headers=b"content-encoding: br\r\n"), "not asked for"),
    ],
    indirect=["hostile"],
    ids=["drips", "floods", "is no gzip", "is in another encoding"],
)
def test_an_answer_that_never_ends_well_costs_one_timeout(
    hostile: str, why: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peakplan_client.calls._FIRST_PAUSE_SECONDS", 100)  # no second attempt, cut short by the first
    seconds = 0.2 if why == "too slow" else 20.0
    options: Any = {"timeout": seconds, "deadline_ms": min(2000, int(500 * seconds))}

    def ask() -> Answer:
        if is_async:
            return asyncio.run(AsyncClient(hostile, **options).plan("red boots"))
        with Client(hostile, **options) as client:
            return client.plan("red boots")

    with pytest.raises(UnavailableError, match=why):
        ask()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_an_answer_is_bounded_once_it_is_unfolded(ask: Callable[..., Answer], encoding: str) -> None:
    """260 kB of gzip once became 140 MB before anybody looked."""
    fold = gzip.compress if encoding == "gzip" else zlib.compress

    def answer(body: bytes) -> Handler:
        headers = {"content-encoding": encoding, "content-type": "application/json"}
        return lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(fold(body)))

    fair = json.dumps(BODY).encode()
    assert ask(answer(fair + b" " * (MOST_BYTES - len(fair))), timeout=20).request_id == "r1"
    with pytest.raises(UnavailableError, match=f"more than {MOST_BYTES} bytes"):
        ask(answer(fair + b" " * (MOST_BYTES + 1 - len(fair))), endpoints=FIRST, timeout=0.2)


@pytest.mark.parametrize("encoding", [None, "identity", " GZip ", "deflate"])
def test_a_body_has_its_most_bytes_and_not_one_more_in_however_many_parts(encoding: str | None) -> None:
    fold: dict[str | None, Callable[[bytes], bytes]] = {" GZip ": gzip.compress, "deflate": zlib.compress}

    def read(content: bytes) -> bytes:
        body = Body(httpx.Headers({"content-encoding": encoding} if encoding else {}), 10)
        for byte in fold.get(encoding, bytes)(content):
            body.add(bytes([byte]))
        return body.whole()

    assert read(b"0123456789") == b"0123456789"
    with pytest.raises(httpx.ReadError, match="more than 10 bytes"):
        read(b"0123456789x")


def test_few_bytes_that_would_become_many_never_do() -> None:
    body = Body(httpx.Headers({"content-encoding": "gzip"}), 1000)
    bomb = gzip.compress(bytes(20_000_000))
    tracemalloc.start()
    with pytest.raises(httpx.ReadError):
        body.add(bomb)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000
