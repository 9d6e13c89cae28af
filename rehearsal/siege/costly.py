"""Attacks by work instead of number: requests of the allowed size that once took seconds, or what others had learnt."""

import json
import random

from rehearsal.siege import streams
from rehearsal.siege.attacks import MIX, Attack, Tally, attempt
from rehearsal.siege.shapes import request_with

# Words of which each is many tokens, a phrase, or a misspelling.
_PIECES = ("$1", "1-", "$1 ", "a'b ", "red or blue ", "without leather, ", "under $1 ", "not a or b ", "xqzzvk ", "x ")
_LONGEST = 512


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


ATTACKS: dict[str, tuple[Attack, int]] = {
    **MIX,
    **streams.ATTACKS,
    "costly words": (costly_words, 4),
    "refusals past the last word": (refusals_past_the_last_word, 1),
    "long plans": (long_plans, 2),
    "rebound hosts": (rebound_hosts, 2),
}
