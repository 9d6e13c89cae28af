"""Who gets which arm of an experiment, by a hash that a web page computes too, and two searches in one list.

A shopper's bucket is the first four bytes of SHA-256 of "EXPERIMENT:SHOPPER" in UTF-8, a big-endian number, modulo
10,000. Arms take buckets in their order, each its share. The same in JavaScript:

    const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`${experiment}:${shopper}`));
    const bucket = new DataView(bytes).getUint32(0) % 10000;

Coins of a team draft are the bits of SHA-256 of its seed, each byte's lowest first, and 1 is for "b". @peakplan/client
does all of this in TypeScript. clients/experiment-vectors.json has cases for an implementation of your own.
"""

import hashlib
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

BUCKETS = 10_000
_UNIT = re.compile(r"[\x21-\x7e]{1,100}")
T = TypeVar("T", bound=Hashable)


def is_unit(shopper: str) -> bool:
    """Tell whether the header `x-experiment-unit` can carry this id. A shopper with any other id is in no arm."""
    return _UNIT.fullmatch(shopper) is not None


def bucket(experiment: str, shopper: str) -> int:
    """Return the shopper's bucket in this experiment, from 0 to 9,999."""
    digest = hashlib.sha256(f"{experiment}:{shopper}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:4], "big") % BUCKETS


def assigned(experiment: str, arms: Mapping[str, int], shopper: str) -> str:
    """Return the shopper's arm; `arms` have their shares by name, whole numbers, in order. Raises ValueError."""
    total = sum(arms.values())
    if total <= 0 or min(arms.values()) < 0:
        raise ValueError("arms need shares of 0 and more, one of them above 0")
    place, end = bucket(experiment, shopper), 0
    for arm, share in arms.items():
        end += share
        if place * total < end * BUCKETS:
            return arm
    raise AssertionError("shares end at their sum")


@dataclass(frozen=True, slots=True)
class Trial:
    """An experiment whose arms are hosts: another model, release or shop folder each.

    `endpoints` has the arms' own, by name; the client's endpoints are those of every other arm.
    """

    name: str
    shares: Mapping[str, int]
    endpoints: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        if unknown := set(self.endpoints) - set(self.shares):
            raise ValueError(f"no share is given for {', '.join(sorted(unknown))}")
        self.arm("")

    def arm(self, shopper: str) -> str:
        """Return the shopper's arm. Raises ValueError."""
        return assigned(self.name, self.shares, shopper)


@dataclass(frozen=True, slots=True)
class Interleaved(Generic[T]):
    """One list made of two, and for every place whose product it is: "a", "b", or "" where both have it there."""

    products: Sequence[T]
    teams: Sequence[str]

    def credit(self, chosen: Collection[T]) -> int:
        """Return 1 if the shopper chose more of a's products, -1 if more of b's, 0 if equally many."""
        teams = [team for product, team in zip(self.products, self.teams, strict=True) if product in chosen]
        difference = teams.count("a") - teams.count("b")
        return (difference > 0) - (difference < 0)


def interleave(a: Sequence[T], b: Sequence[T], *, length: int, seed: str) -> Interleaved[T]:
    """Draft one list from two, as two captains choose teams; the same `seed` (a plan's request_id) gives the same list.

    The list with fewer products chooses next; a coin decides a tie. So both searches meet the same shopper at the same
    moment, and a tenth of the traffic of two arms tells them apart. Source: Radlinski, Kurup and Joachims, "How does
    clickthrough data reflect retrieval quality?", CIKM 2008 (team draft). Products that begin both lists in the same
    order belong to neither team.
    """
    coins, tossed = hashlib.sha256(seed.encode(errors="replace")).digest(), 0
    products: list[T] = []
    for first, second in zip(a, b, strict=False):
        if first != second or first in products or len(products) == length:
            break
        products.append(first)
    teams = [""] * len(products)
    taken = set(products)
    while len(products) < length:
        left = {
            name: next((each for each in ranking if each not in taken), None) for name, ranking in (("a", a), ("b", b))
        }
        if None in left.values():
            teams_left = [name for name, product in left.items() if product is not None]
        else:
            ahead = teams.count("a") - teams.count("b")
            teams_left = ["b" if ahead > 0 else "a" if ahead < 0 else _coin(coins, tossed)]
            tossed += ahead == 0
        if not teams_left:
            break
        product = left[teams_left[0]]
        assert product is not None
        products.append(product)
        teams.append(teams_left[0])
        taken.add(product)
    return Interleaved(products, teams)


def _coin(coins: bytes, number: int) -> str:
    return "ab"[coins[number // 8 % len(coins)] >> number % 8 & 1]
