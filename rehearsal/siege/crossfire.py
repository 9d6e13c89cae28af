"""Eight hostile and eight honest callers of one service: what these notice of those through what all share, by counts.

The hostile ones ask the same questions in other letters and locales, hold every batch, and guess ids of events.
Meanwhile files of the shop folder are shortened in place, the shared cache is a server whose answers have no end, and,
in the second of two rounds, the file of API keys is rewritten in place. All callers are on one machine: without keys
each is an address.
"""

import asyncio
import contextlib
import hashlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from rehearsal.server import serving
from service.planner.shop.folder import seal, write_lexicon

CALLERS = 8
MOST_TIMES = 2.0  # the quiet p99
_PAUSE_SECONDS = 0.1
_HOLDING_SECONDS = 3.0  # of a batch, after which its caller leaves and sends another
_WRITING_SECONDS = 0.4  # in which a file is empty, and then torn
_QUERY, _LOCALE = "red shoes under {} eur", "de"
_NILS = 1_000_000
_FIRST_HOST = 2
Cycle = Callable[[httpx.AsyncClient, random.Random, "Notes"], Awaitable[None]]


class Notes:
    """What came of the honest callers' requests: `counts` by name, and how long their plans took."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(asked=0, changed=0, refused=0, forgotten=0)
        self.milliseconds: list[float] = []

    def told(self) -> dict[str, Any]:
        ordered = sorted(self.milliseconds) or [0.0]
        return {**self.counts, "p99_ms": round(ordered[int(len(ordered) * 0.99)], 1)}


async def honest(client: httpx.AsyncClient, rng: random.Random, notes: Notes) -> None:
    """Ask for a plan and a batch, and report a purchase: each is to be mine, whatever others do."""
    query = _QUERY.format(rng.randrange(10, 99))
    started = time.monotonic()
    answer = await _post(client, notes, "/plan", {"query": query, "locale": _LOCALE, "deadline_ms": 2000})
    notes.milliseconds.append((time.monotonic() - started) * 1000)
    batch = [{"query": f"{query} {number}", "deadline_ms": 30_000} for number in range(3)]
    batched = await _post(client, notes, "/plans", {"requests": batch})
    notes.counts["refused"] += sum("problem" in each for each in (batched or {}).get("answers", []))
    if answer is None:
        return
    plan = answer["plan"]
    values = [value for values in plan["facets"].values() for value in values]
    is_mine = all(value in query for value in values) and plan["price"]["currency"] in (None, "EUR")
    notes.counts["changed"] += not is_mine
    bought = {"action_name": "purchase", "query_id": answer["request_id"], "event_id": f"order-{rng.randrange(64)}"}
    kept = await _post(client, notes, "/outcomes", bought)
    notes.counts["forgotten"] += kept is not None and kept["kept"] != 1


async def hostile(client: httpx.AsyncClient, rng: random.Random, _: Notes) -> None:
    """Ask what others ask in other letters, hold batches, and send guessed ids first."""
    letters: Callable[[str], str] = rng.choice([str.upper, str.title, str.lower])
    query = letters(_QUERY.format(rng.randrange(10, 99)))
    answer = await client.post("/plan", json={"query": query, "locale": rng.choice(["en", "fr-CH", ""])})
    batch = [{"query": f"held {rng.random()} {number}", "deadline_ms": 30_000} for number in range(64)]
    held = [asyncio.create_task(client.post("/plans", json={"requests": batch})) for _ in range(CALLERS)]
    if answer.status_code == httpx.codes.OK:
        guess = {"action_name": "purchase", "query_id": answer.json()["request_id"]}
        await client.post("/outcomes", json=[guess | {"event_id": f"order-{number}"} for number in range(64)])
    await asyncio.wait(held, timeout=_HOLDING_SECONDS)
    for each in held:
        each.cancel()


async def _post(client: httpx.AsyncClient, notes: Notes, path: str, body: object) -> dict[str, Any] | None:
    notes.counts["asked"] += 1
    with contextlib.suppress(httpx.HTTPError):
        answer = await client.post(path, json=body)
        if answer.is_success:
            return dict(answer.json())
    notes.counts["refused"] += 1
    return None


async def _calling(url: str, cycle: Cycle, caller: int, end: float, notes: Notes) -> None:
    """Be one caller until the end."""
    rng = random.Random(f"{cycle.__name__} {caller}")
    where = httpx.AsyncHTTPTransport(local_address=f"127.0.0.{_FIRST_HOST + caller}")
    headers = {"authorization": f"Bearer {caller}"}
    async with httpx.AsyncClient(base_url=url, transport=where, headers=headers, timeout=60) as client:
        while time.monotonic() < end:
            with contextlib.suppress(*((httpx.HTTPError,) if cycle is hostile else ())):
                await cycle(client, rng, notes)
            await asyncio.sleep(_PAUSE_SECONDS)


async def _rewriting(files: list[Path], end: float) -> None:
    """Rewrite files in place again and again: each is empty for a while, then torn, then whole."""
    while time.monotonic() < end:
        for path in files:
            whole = path.read_bytes()
            with path.open("wb") as file:
                for part in (b"", whole[: len(whole) // 2], whole[len(whole) // 2 :]):
                    file.write(part)
                    file.flush()
                    await asyncio.sleep(_WRITING_SECONDS)


@contextlib.asynccontextmanager
async def _endless_cache() -> AsyncIterator[str]:
    """Run what looks like a Redis server, and answers each MGET with an array of nils."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while words := int((await reader.readline())[1:] or 0):
                said = [await reader.readexactly(int((await reader.readline())[1:]) + 2) for _ in range(words)]
                usual = b"+PONG\r\n" if said[0].upper() == b"PING\r\n" else b"+OK\r\n"
                is_read = said[0].upper() == b"MGET\r\n"
                writer.write(b"*%d\r\n" % _NILS + b"$-1\r\n" * _NILS if is_read else usual)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _round(module: str, folder: Path, environment: dict[str, object], seconds: float) -> dict[str, Any]:
    """Return what the honest callers got alone, and beside the others."""
    quiet, beside = Notes(), Notes()
    rewritten = [path for path in folder.rglob("*") if path.suffix == ".marisa" or path.name == "keys"]
    async with _endless_cache() as cache:
        starting = serving(environment | {"PEAKPLAN_CACHE_URL": cache}, module)
        server = await asyncio.to_thread(starting.__enter__)
        try:
            for notes, hostiles in ((quiet, 0), (beside, CALLERS)):
                end = time.monotonic() + seconds / 2
                async with asyncio.TaskGroup() as group:
                    for caller in range(CALLERS):
                        group.create_task(_calling(server.url, honest, caller, end, notes))
                    for caller in range(CALLERS, CALLERS + hostiles):
                        group.create_task(_calling(server.url, hostile, caller, end, notes))
                    if hostiles:
                        group.create_task(_rewriting(rewritten, end))
            code = await asyncio.to_thread(server.stop)
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)
    return {"quiet": quiet.told(), "beside": beside.told(), "exit_code": code}


def run(environment: dict[str, object], module: str, seconds: float) -> dict[str, Any]:
    """Return the two rounds, without API keys and with them; about `seconds` in all, besides two starts."""
    rounds: dict[str, Any] = {}
    for name in ("by address", "by key"):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            chosen = environment | {"PEAKPLAN_OUTCOMES_DIR": folder / "kept", "PEAKPLAN_SHOP_DIR": _shop(folder)}
            if name == "by key":
                digests = [hashlib.sha256(str(caller).encode()).hexdigest() for caller in range(2 * CALLERS)]
                lines = "".join(f"caller{caller} {digest}\n" for caller, digest in enumerate(digests))
                (folder / "keys").write_text(lines, encoding="utf-8")
                chosen |= {"PEAKPLAN_API_KEYS_FILE": folder / "keys"}
            rounds[name] = asyncio.run(_round(module, folder, chosen, seconds / 2))
    return rounds


def _shop(folder: Path) -> Path:
    shop = folder / "shop"
    shop.mkdir()
    names = [{"facet": "brand", "sure": True, "count": 9, "spellings": [f"brand{number}"]} for number in range(5000)]
    words = {f"brand{number}": 9 for number in range(5000)}
    write_lexicon(shop, names, words, dict.fromkeys(words, "BRND"))
    seal(shop, {"products": 5000})
    return shop


def given_way(rounds: dict[str, Any], *, shared: bool) -> list[str]:
    """Return what honest callers lost to the hostile ones; on a `shared` machine times are its neighbours' too."""
    found = []
    for name, each in rounds.items():
        lost = {what: each["beside"][what] for what in ("changed", "refused", "forgotten") if each["beside"][what]}
        found += [f"callers {name}: {what} {count} of {each['beside']['asked']}" for what, count in lost.items()]
        quiet, beside = each["quiet"]["p99_ms"], each["beside"]["p99_ms"]
        if not shared and beside > MOST_TIMES * quiet:
            found.append(f"callers {name}: p99 went from {quiet} to {beside} ms")
        found += [f"callers {name}: it ended with {each['exit_code']}"] if each["exit_code"] else []
    return found
