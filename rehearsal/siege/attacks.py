"""What a siege sends: raw HTTP of every shape, stalled senders, odd bodies, streams that are left, dear questions.

Every attack is seeded, counts what it tried, and says what came of it: `Tally`. A connection that the service closes is
an answer where nothing was owed; one that stays open and silent for `HANG_SECONDS` is a hang.
"""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

BODY = b'{"query": "red nike running shoes under $100"}'
HEAD = b"POST /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PLAN = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
_GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
_CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FILE = b"GET /swagger-ui-bundle.js HTTP/1.1\r\nHost: localhost\r\n"
_RELOAD = b"POST /reload HTTP/1.1\r\nHost: localhost\r\n"
_PREFLIGHT = b"OPTIONS /plan HTTP/1.1\r\nHost: localhost\r\nOrigin: %b\r\nAccess-Control-Request-Method: POST\r\n\r\n"
HANG_SECONDS = 15.0
_SENDING_SECONDS = 1.0  # that a shape's pieces take at most; the service lingers for two after it has refused
# The address that a task attacks from: to the service, who calls.
SOURCE: ContextVar[str] = ContextVar("SOURCE", default="127.0.0.1")
_MOST_READ = 8 * 1024 * 1024
_STREAMS_AT_ONCE = 40  # that one attacker holds open
_BYTES = 256  # that a slow reader reads at a time,
_PAUSE = 0.005  # seconds between
_END = b"event: done"
# Words of which each is many tokens, a phrase, or a misspelling.
_PIECES = ("$1", "1-", "$1 ", "a'b ", "red or blue ", "without leather, ", "under $1 ", "not a or b ", "xqzzvk ", "x ")
_LONGEST = 512


def request_with(body: bytes, path: bytes = b"/plan") -> bytes:
    """Return a request with this body."""
    return HEAD.replace(b"/plan", path) + b"Content-Length: %d\r\n\r\n" % len(body) + body


Shape = tuple[str, list[bytes], set[int]]


def _or_turned_away(shape: Shape) -> Shape:
    """Allow a request for a plan to be turned away, whatever else it is: where too many come, none is read first."""
    name, pieces, expected = shape
    is_for_a_plan = b"".join(pieces).startswith(
        (b"POST /plan ", b"TRACE /plan ", b"POST /%70lan ", b"POST http://y/plan ")
    )
    return name, pieces, expected | {503} if expected and is_for_a_plan else expected


# Name, what is sent in pieces, and the status of the first answer; none where the connection may just be closed.
SHAPES: list[Shape] = [*map(_or_turned_away, [
    ("a plan", [PLAN], {200}),
    ("a plan in single bytes", [PLAN[at : at + 1] for at in range(len(PLAN))], {200}),
    ("40 plans in one packet", [PLAN * 40], {200}),
    ("5,000 requests in one go", [(_GET + b"\r\n") * 5000], {200}),
    ("no Host", [PLAN.replace(b"Host: localhost\r\n", b"")], {400}),
    ("two Hosts", [PLAN.replace(b"Host: localhost", b"Host: localhost\r\nHost: y")], {400}),
    ("a Host with a path", [_GET.replace(b"Host: localhost", b"Host: localhost/plan?") + b"\r\n"], {200, 400}),
    ("HTTP/1.0", [b"GET /healthz HTTP/1.0\r\n\r\n"], {200}),
    ("HTTP/0.9", [b"GET /healthz\r\n\r\n"], {400}),
    ("HTTP/2 without asking", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], {400}),
    ("TLS", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], {400}),
    ("an upgrade to h2c", [PLAN.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: h2c\r\nHost")], {200}),
    ("an upgrade to a web socket", [_GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"], {200}),
    ("CONNECT", [b"CONNECT x:80 HTTP/1.1\r\nHost: localhost\r\n\r\n"], {400}),
    ("an unknown method", [b"BREW /plan HTTP/1.1\r\nHost: localhost\r\n\r\n"], {400, 405}),
    ("4,300 zeros", [HEAD + b"Content-Length: " + b"0" * 4300 + b"30\r\n\r\n"], {400}),
    ("a length of 30 digits", [HEAD + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n"], {400}),
    ("a negative length", [HEAD + b"Content-Length: -1\r\n\r\n"], {400}),
    ("two lengths", [HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n"], {400}),
    ("a length and chunks", [HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"], {400}),
    ("chunks of chunks", [HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"], {400, 422, 200}),
    ("a chunk without a size", [_CHUNKED + b"zz\r\n"], {400}),
    ("a chunk of 2^64 bytes", [_CHUNKED + b"ffffffffffffffffff\r\n"], {400}),
    ("chunks of one byte", [_CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"], {200}),
    ("trailers", [_CHUNKED + b"%x\r\n%b\r\n0\r\nHost: y\r\n\r\n" % (len(BODY), BODY)], {200}),
    ("endless trailers", [_CHUNKED + b"1\r\nx\r\n0\r\n", *[b"X-T: " + b"x" * 4000 + b"\r\n"] * 200], {431}),
    ("endless chunk extensions", [_CHUNKED, *[b"1;" + b"x" * 4000 + b"\r\n" + b"x\r\n"] * 200], {431, 400}),
    ("an endless head", [_GET, *[b"X-H: " + b"x" * 4000 + b"\r\n"] * 50], {431}),
    ("20,000 headers", [_GET + b"a:b\r\n" * 20_000 + b"\r\n"], {431}),
    ("a long address", [b"GET /" + b"x" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"], {431}),
    ("a folded header", [_GET + b"X-A: b\r\n c\r\n\r\n"], {200, 400}),
    ("a header with a null", [_GET + b"X-A: \x00\r\n\r\n"], {400}),
    ("a header without a name", [_GET + b": x\r\n\r\n"], {400}),
    ("bare line feeds", [b"GET /healthz HTTP/1.1\nHost: localhost\n\n"], {200, 400}),
    ("line ends before a request", [b"\r\n" * 50 + _GET + b"\r\n"], {200}),
    ("a body of a megabyte", [HEAD + b"Content-Length: 1000000\r\n\r\n", *[b"x" * 65536] * 15], {413}),
    ("a body without a type", [PLAN.replace(b"application/json", b"text/plain")], {415}),
    ("a body that is no JSON", [PLAN.replace(b"{", b"[")], {400}),
    ("deep JSON", [HEAD + b"Content-Length: 15000\r\n\r\n" + b"[" * 15_000], {400}),
    ("a lone surrogate", [HEAD + b"Content-Length: 19\r\n\r\n" + b'{"query":"\\ud800 "}'], {422}),
    ("a path of dots", [b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n"], {404}),
    ("an encoded path", [b"GET /%2e%2e%2f%00 HTTP/1.1\r\nHost: localhost\r\n\r\n"], {400, 404}),
    ("a drain from here", [b"POST /drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"], {403}),
    ("HTTP/0.9 for a plan", [b"GET /plan\r\n\r\n"], {400}),
    ("HTTP/2.0 in words", [_GET.replace(b"1.1", b"2.0") + b"\r\n"], {400}),
    ("chunks in HTTP/1.0", [_CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n"], {400}),
    ("gzip, then chunks", [_CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n"], {400}),
    ("chunks, named twice", [_CHUNKED.replace(b"Transfer", b"Transfer-Encoding: identity\r\nTransfer")], {400}),
    ("chunks behind a tabulator", [_CHUNKED.replace(b": chunked", b":\x0bchunked")], {400}),
    ("chunks behind a fold", [_CHUNKED.replace(b": chunked", b":\r\n chunked")], {400}),
    ("chunks before a space", [_CHUNKED.replace(b"Encoding:", b"Encoding :")], {400}),
    ("chunks, then a length", [_CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n"], {400}),
    ("a signed chunk", [_CHUNKED + b"-1\r\n"], {400}),
    ("a chunk in C's hex", [_CHUNKED + b"0x5\r\n"], {400}),
    ("a chunk with a line end in quotes", [_CHUNKED + b'5;a="\r\n"\r\nabcde\r\n'], {400}),
    ("a chunk behind bare line feeds", [_CHUNKED + b"5\nabcde\n0\n\n"], {400}),
    ("a chunk longer than it says", [_CHUNKED + b"5\r\nabcdeXX\r\n0\r\n\r\n"], {400}),
    ("a signed length", [HEAD + b"Content-Length: +5\r\n\r\nabcde"], {400}),
    ("a list of lengths", [HEAD + b"Content-Length: 5, 5\r\n\r\nabcde"], {400}),
    ("a length in hex", [HEAD + b"Content-Length: 0x5\r\n\r\nabcde"], {400}),
    ("a length with underscores", [HEAD + b"Content_Length: 5\r\n\r\n"], {422}),
    ("a bare carriage return", [_GET + b"X-A: a\rb\r\n\r\n"], {400}),
    ("lines of carriage returns", [b"GET /healthz HTTP/1.1\rHost: localhost\r\r"], {400}),
    ("a space in a name", [_GET + b"X A: b\r\n\r\n"], {400}),
    ("a name that is no ASCII", [_GET + b"X\xff: b\r\n\r\n"], {400}),
    ("a Host with spaces", [_GET.replace(b"Host: localhost", b"Host: localhost y") + b"\r\n"], {400}),
    ("an expectation without a body", [_CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\n"], set()),
    ("another server's address", [PLAN.replace(b"/plan", b"http://y/plan")], {400}),
    ("another scheme's address", [_GET.replace(b"/", b"gopher://y/", 1) + b"\r\n"], {200, 400, 404}),
    ("an address with a bad port", [_GET.replace(b"/", b"http://y:99999999/", 1) + b"\r\n"], {400}),
    ("an address without a slash", [_GET.replace(b"/", b"@y/", 1) + b"\r\n"], {400}),
    ("OPTIONS of everything", [b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"], {404}),
    ("TRACE", [b"TRACE /plan HTTP/1.1\r\nHost: localhost\r\n\r\n"], {405}),
    ("a preflight", [_PREFLIGHT % b"https://shop.example"], {200}),
    ("a stranger's preflight", [_PREFLIGHT % b"null"], {400}),
    ("3,000 parameters", [_GET.replace(b"healthz", b"healthz?" + b"a=1&" * 3000) + b"\r\n"], {200}),
    ("an encoded name", [PLAN.replace(b"/plan", b"/%70lan")], {200}),
    ("an encoded slash", [PLAN.replace(b"/plan", b"/plan%2f")], {404}),
    ("a path of two slashes", [PLAN.replace(b"/plan", b"//plan")], {404}),
    ("an encoded drain", [b"POST /%64rain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"], {403}),
    ("2,000 ranges", [FILE + b"Range: bytes=" + b"0-," * 2000 + b"0-\r\n\r\n"], {200, 206, 416, 503}),
    ("UTF-7", [request_with(b"+AHsAIg-query+ACIAOgAi-red+ACIAfQ-")], {400}),
    ("overlong UTF-8", [request_with(b'{"query": "\xc0\xaf red"}')], {400}),
    ("numbers that are none", [request_with(b'{"query": "red", "deadline_ms": NaN}')], {422}),
    ("an infinite number", [request_with(b'{"query": "red", "deadline_ms": 1e400}')], {422}),
    ("a number of 5,000 digits", [request_with(b'{"query": "red", "deadline_ms": ' + b"9" * 5000 + b"}")], {400, 422}),
    ("deep history", [request_with(b'{"query": "red", "history": ' + b"[" * 3000 + b"]" * 3000 + b"}")], {400, 422}),
    ("one letter with 500 accents", [request_with(json.dumps({"query": "e" + "\u0301" * 500}).encode())], {200}),
    ("prices without end", [request_with(json.dumps({"query": "under $1 over $2 " * 28}).encode())], {200}),
    ("tokens of control", [request_with(b'{"query": "red <|im_end|><|endoftext|> shoes"}')], {200}),
    ("a trace without sense", [HEAD + b"traceparent: 00-" + b"z" * 5000 + b"\r\n" + PLAN[len(HEAD) :]], {200}),
    ("5,000 cookies", [_GET + b"Cookie: " + b"a=b;" * 3500 + b"\r\n\r\n"], {200}),
    ("a proxy's preface", [b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + _GET + b"\r\n"], {400}),
    ("another protocol", [b"*1\r\n$4\r\nPING\r\n"], {400}),
    ("a reload of a page", [_RELOAD + b"Origin: y\r\nContent-Length: 0\r\n\r\n"], {403}),
])]  # fmt: skip
# What is left half-sent: the service must close, or say that it took too long, in its own time.
STALLS = [b"", b"POST /pl", HEAD, PLAN[:-3], _CHUNKED, _CHUNKED + b"5\r\nab", _CHUNKED + b"0\r\nX-T: ", b"\r\n",
          _CHUNKED + b"ffffffffffffffff\r\n", b"GET /plan\r\n"]  # fmt: skip


@dataclass
class Tally:
    """What came of an attack. `wrong` names what nobody should get, `lost` counts requests without an answer.

    `late` counts those that this machine kept from being sent in time: they say nothing of the service.
    """

    tried: int = 0
    answered: int = 0
    refused: int = 0
    hangs: int = 0
    lost: int = 0
    late: int = 0
    wrong: dict[str, int] = field(default_factory=dict)

    def count(self, name: str, status: int, expected: set[int], head: bytes) -> None:
        """Record an answer. A 503 is right only where it says when to come back, another 5xx never."""
        bad = status >= 500 and (status != 503 or b"retry-after" not in head.lower())
        self.answered += 1
        self.refused += status in (429, 503)
        if bad or (expected and status not in expected):
            self.note(f"{name}: {status}")

    def note(self, what: str) -> None:
        """Name something that should not have come."""
        self.wrong[what] = self.wrong.get(what, 0) + 1


class LateSenderError(ConnectionError):
    """The sender was kept from sending by its own machine."""


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    source = (SOURCE.get(), 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_MOST_READ, local_addr=source)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchange(port: int, pieces: list[bytes], pause: float = 0.0) -> bytes:
    """Send the pieces; return the first answer's head, or b"" where the service closed.

    Raises TimeoutError, and LateSenderError where it closed on a sender that the machine had kept from sending: the
    service gives up on those, in whatever words it can.
    """
    clock = asyncio.get_running_loop().time
    async with asyncio.timeout(HANG_SECONDS), connection(port) as (reader, writer):
        sent = opened = clock()
        # It is read while pieces are sent: once the service has closed, a reset would take the answer with it.
        head = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
        try:
            with contextlib.suppress(ConnectionError):
                for piece in pieces:
                    if writer.is_closing():  # uvloop's transports refuse what is written then
                        break
                    writer.write(piece)
                    await asyncio.sleep(pause)
                    sent = clock()
            return bytes(await head)
        except (asyncio.IncompleteReadError, ConnectionError):
            if sent - opened > _SENDING_SECONDS:
                raise LateSenderError from None
            return b""
        finally:
            head.cancel()


async def attempt(
    tally: Tally, name: str, port: int, pieces: list[bytes], expected: set[int], pause: float = 0.0
) -> None:
    tally.tried += 1
    try:
        head = await exchange(port, pieces, pause)
    except LateSenderError:
        tally.late += 1
        return
    except TimeoutError:
        tally.hangs += 1
        tally.note(f"{name}: hang")
        return
    except OSError as error:
        tally.lost += 1
        tally.note(f"{name}: {error}")
        return
    if head.startswith(b"HTTP/1.1 100"):
        return
    if head:
        tally.count(name, int(head.split()[1]), expected, head)
    elif expected:
        tally.lost += 1
        tally.note(f"{name}: closed without an answer")


async def raw_shapes(port: int, rng: random.Random, tally: Tally) -> None:
    """Send one of the shapes."""
    name, pieces, expected = rng.choice(SHAPES)
    await attempt(tally, name, port, pieces, expected, pause=0.0005 if len(pieces) < 60 else 0.0)


async def stalls(port: int, rng: random.Random, tally: Tally) -> None:
    """Open some connections that send half of something, then nothing."""
    await asyncio.gather(*(attempt(tally, "a stall", port, [rng.choice(STALLS)], set()) for _ in range(20)))


async def vanishing(port: int, rng: random.Random, tally: Tally) -> None:
    """Leave before the answer comes, in the middle of anything."""
    tally.tried += 1
    with contextlib.suppress(OSError):
        async with connection(port) as (_, writer):
            writer.write(PLAN[: rng.randrange(len(PLAN) + 1)])
            await asyncio.sleep(rng.random() * 0.02)


async def odd_bodies(port: int, rng: random.Random, tally: Tally) -> None:
    """Send a body that is nearly a request."""
    fields = {
        "query": rng.choice(["red shoes", "", "x" * 600, "\x00", "👟" * 200, 5, None, ["a"], "a " * 256, "1" * 512]),
        "history": rng.choice([["nike"], [], "x", ["a" * 600], [None], ["a"] * 9]),
        "deadline_ms": rng.choice([10, 300, 2000, -1, 1e308, "300", True]),
        rng.choice(["locale", "locale", "unknown"]): "en",
    }
    body = bytearray(json.dumps({name: value for name, value in fields.items() if rng.random() < 0.7}).encode())
    for _ in range(rng.choice([0, 0, 1, 3])):
        body[rng.randrange(len(body))] = rng.randrange(256)
    await attempt(tally, "an odd body", port, [request_with(bytes(body))], {200, 400, 422, 503})


async def traces(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask for a trace."""
    body = b'{"query": "red shoes %d"}' % rng.randrange(10**6)
    await attempt(tally, "a trace", port, [request_with(body, b"/trace")], {200, 503})


async def short_deadlines(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask for a long question's plan in 10 ms."""
    words = " ".join(f"word{rng.randrange(10**6)}" for _ in range(40))
    body = json.dumps({"query": words, "deadline_ms": 10}).encode()
    await attempt(tally, "a short deadline", port, [request_with(body)], {200, 503})


async def restless(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask a hundred times on one connection without a pause."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(HANG_SECONDS * 4), connection(port) as (reader, writer):
            for _ in range(100):
                if writer.is_closing():
                    return
                writer.write(request_with(b'{"query": "red shoes size %d"}' % rng.randrange(50)))
                tally.tried += 1
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                tally.count("a plan", int(head.split()[1]), {200, 503}, head)


async def half_closed(port: int, rng: random.Random, tally: Tally) -> None:
    """Close the sending half at a random point of a request: the service treats the caller as gone."""
    tally.tried += 1
    with contextlib.suppress(OSError):
        async with asyncio.timeout(HANG_SECONDS), connection(port) as (reader, writer):
            writer.write(PLAN[: rng.randrange(len(PLAN) + 1)])
            writer.write_eof()
            await reader.read()
            return
    tally.hangs += 1


async def unread_files(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask for a large file many times over, and read none of it for a while."""
    tally.tried += 1
    with contextlib.suppress(OSError):
        async with connection(port) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write((FILE + b"\r\n") * 20)
            await asyncio.sleep(rng.random() * 2)


async def shop_searches(port: int, rng: random.Random, tally: Tally) -> None:
    """Search the sample shop with a plan of one's own making."""
    words = [rng.choice(['"', "AND", "NEAR(", "*", "'; --", "\x00", "red", "shoes", "a" * 300]) for _ in range(6)]
    plan = {"mode": "keyword", "intent": "find_product", "queries": [" ".join(words)], "facets": {"brand": [words[0]]}}
    body = json.dumps({"query": " ".join(words[:3]), "plan": plan}).encode()
    await attempt(tally, "a search", port, [request_with(body, b"/shop/search")], {200, 422, 503})


async def outcomes(port: int, rng: random.Random, tally: Tally) -> None:
    """Report the outcome of a plan that was never made, at length."""
    facets = {f"facet{number}": ["x" * 100] * rng.randrange(3) for number in range(20)}
    product = {"id": str(rng.random()), "facets": facets}
    body = json.dumps({"request_id": "a", "outcome": rng.choice(["click", "stare"]), "product": product}).encode()
    await attempt(tally, "an outcome", port, [request_with(body, b"/outcomes")], {404, 422, 503})


def _asked(rng: random.Random) -> bytes:
    body = json.dumps(
        {"query": f"{rng.choice(['red', 'warm', 'cheap'])} {rng.choice(['shoes', 'jacket'])} {rng.random()}"}
    )
    return request_with(body.encode(), b"/answer")


async def left_streams(port: int, rng: random.Random, tally: Tally) -> None:
    """Leave somewhere in the middle of the events, or before the first."""
    tally.tried += 1
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(HANG_SECONDS), connection(port) as (reader, writer):
            writer.write(_asked(rng))
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.1)
                return
            head = await reader.readuntil(b"\r\n\r\n")
            tally.count("a stream", int(head.split()[1]), {200, 429, 503}, head)
            await reader.read(rng.randrange(1, 2000))


async def unread_streams(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask for many answers on one connection, and read none of them for a while."""
    tally.tried += 1
    with contextlib.suppress(OSError):
        async with connection(port) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(20):
                writer.write(_asked(rng))
            await asyncio.sleep(rng.random() * 2)


async def _read_slowly(port: int, rng: random.Random, tally: Tally) -> None:
    """Read an answer bit by bit. It hangs where nothing comes: how long all takes is this program's own doing."""
    tally.tried += 1
    try:
        async with connection(port) as (reader, writer):
            writer.write(_asked(rng))
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_SECONDS)
            tally.count("a slow stream", int(status := head.split()[1]), {200, 429, 503}, head)
            seen = b""
            while status == b"200" and _END not in seen:
                if not (more := await asyncio.wait_for(reader.read(_BYTES), HANG_SECONDS)):
                    tally.lost += 1  # a stream that began ends with its last event
                    return
                seen += more
                await asyncio.sleep(_PAUSE)
    except TimeoutError:
        tally.hangs += 1
    except (OSError, asyncio.IncompleteReadError):
        tally.lost += 1


async def slow_streams(port: int, rng: random.Random, tally: Tally) -> None:
    """Hold many streams open at once, and read each a few bytes at a time, to its end."""
    await asyncio.gather(*(_read_slowly(port, rng, tally) for _ in range(_STREAMS_AT_ONCE)))


async def costly_words(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask what is read longest, with all the history that is allowed."""
    piece = rng.choice(_PIECES)
    query = f"{rng.randrange(10**6)} {piece * _LONGEST}"[:_LONGEST]
    body = json.dumps({"query": query, "history": [(piece * _LONGEST)[:_LONGEST]] * 8}).encode()
    await attempt(tally, "costly words", port, [request_with(body)], {200, 429, 503})


async def refusals_past_the_last_word(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask what once failed in completing a plan."""
    query = "which boots should i buy " + "x " * rng.randrange(90, 110) + "without leather"
    await attempt(tally, "a late refusal", port, [request_with(json.dumps({"query": query}).encode())], {200, 429, 503})


async def long_plans(port: int, rng: random.Random, tally: Tally) -> None:
    """Search the shop with a plan of 16 KiB: one long value, or a thousand exclusions."""
    words = " ".join(rng.choice(["hiking", "boot", "flower", "a"]) for _ in range(1700))
    fields = rng.choice([{"facets": {"type": [words]}}, {"exclude": {"brand": [f"x{at}" for at in range(1100)]}}])
    plan = {"mode": "keyword", "intent": "find_product", "queries": ["boots"], **fields}
    body = json.dumps({"query": "boots", "plan": plan}).encode()
    await attempt(tally, "a long plan", port, [request_with(body, b"/shop/search")], {200, 413, 422, 503})


async def rebound_hosts(port: int, _: random.Random, tally: Tally) -> None:
    """Ask as a page does whose name has come to mean this machine, and for a path that no log should have."""
    plan = request_with(b'{"query": "red shoes"}').replace(b"Host: localhost", b"Host: evil.example")
    await attempt(tally, "a rebound host", port, [plan], {421, 503})
    before = b"OPTIONS /secret-words HTTP/1.1\r\nHost: localhost\r\nOrigin: https://shop.example\r\n"
    await attempt(
        tally, "a preflight", port, [before + b"Access-Control-Request-Method: POST\r\n\r\n"], {200, 400, 404, 503}
    )


Attack = Callable[[int, random.Random, Tally], Awaitable[None]]
# Attack, and how many of it run side by side.
ATTACKS: dict[str, tuple[Attack, int]] = {
    "raw shapes": (raw_shapes, 4),
    "stalled senders": (stalls, 2),
    "vanishing clients": (vanishing, 4),
    "odd bodies": (odd_bodies, 4),
    "half-closed connections": (half_closed, 2),
    "unread files": (unread_files, 40),
    "searches of the shop": (shop_searches, 12),
    "outcomes": (outcomes, 4),
    "traces": (traces, 8),
    "short deadlines": (short_deadlines, 4),
    "keep-alive, no pause": (restless, 100),
    "streams left": (left_streams, 4),
    "streams unread": (unread_streams, 10),
    "many slow streams": (slow_streams, 1),
    "costly words": (costly_words, 4),
    "refusals past the last word": (refusals_past_the_last_word, 1),
    "long plans": (long_plans, 2),
    "rebound hosts": (rebound_hosts, 2),
}
