"""What a siege sends: raw HTTP (`shapes.py`), senders who stall, bodies that are no requests, clients that never pause.

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

from rehearsal.siege.shapes import FILE, HEAD, PLAN, SHAPES, STALLS, request_with

HANG_SECONDS = 15.0
_SENDING_SECONDS = 1.0  # that a shape's pieces take at most; the service lingers for two after it has refused
# The address that a task attacks from: to the service, who calls.
SOURCE: ContextVar[str] = ContextVar("SOURCE", default="127.0.0.1")
_MOST_READ = 8 * 1024 * 1024


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
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + bytes(body)
    await attempt(tally, "an odd body", port, [request], {200, 400, 422, 503})


async def traces(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask for a trace."""
    body = b'{"query": "red shoes %d"}' % rng.randrange(10**6)
    request = HEAD.replace(b"/plan", b"/trace") + b"Content-Length: %d\r\n\r\n" % len(body) + body
    await attempt(tally, "a trace", port, [request], {200, 503})


async def short_deadlines(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask for a long question's plan in 10 ms."""
    words = " ".join(f"word{rng.randrange(10**6)}" for _ in range(40))
    body = json.dumps({"query": words, "deadline_ms": 10}).encode()
    await attempt(
        tally, "a short deadline", port, [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body], {200, 503}
    )


async def restless(port: int, rng: random.Random, tally: Tally) -> None:
    """Ask a hundred times on one connection without a pause."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(HANG_SECONDS * 4), connection(port) as (reader, writer):
            for _ in range(100):
                if writer.is_closing():
                    return
                body = b'{"query": "red shoes size %d"}' % rng.randrange(50)
                writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                tally.tried += 1
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                tally.count("a plan", int(head.split()[1]), {200, 503}, head)


async def half_closed(port: int, rng: random.Random, tally: Tally) -> None:
    """Say that nothing more comes, at any point: whoever does so has left."""
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
    """Report what came of a plan that nobody made, at length."""
    facets = {f"facet{number}": ["x" * 100] * rng.randrange(3) for number in range(20)}
    product = {"id": str(rng.random()), "facets": facets}
    body = json.dumps({"request_id": "a", "outcome": rng.choice(["click", "stare"]), "product": product}).encode()
    await attempt(tally, "an outcome", port, [request_with(body, b"/outcomes")], {404, 422, 503})


Attack = Callable[[int, random.Random, Tally], Awaitable[None]]
# Attack, and how many of it run side by side.
MIX: dict[str, tuple[Attack, int]] = {
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
}
