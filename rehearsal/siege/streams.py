"""Attacks on answers that come as a stream of events: readers who are slow, who leave in the middle, and very many."""

import asyncio
import contextlib
import json
import random

from rehearsal.siege.attacks import HANG_SECONDS, Attack, Tally, connection
from rehearsal.siege.shapes import request_with

_AT_ONCE = 40  # streams that one attacker holds open
_BYTES = 256  # that a slow reader reads at a time,
_PAUSE = 0.005  # seconds between
_END = b"event: done"


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
    await asyncio.gather(*(_read_slowly(port, rng, tally) for _ in range(_AT_ONCE)))


ATTACKS: dict[str, tuple[Attack, int]] = {
    "streams left": (left_streams, 4),
    "streams unread": (unread_streams, 10),
    "many slow streams": (slow_streams, 1),
}
