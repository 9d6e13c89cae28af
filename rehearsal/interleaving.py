"""`python -m rehearsal.interleaving`: how often `peakplan value` is right about two searches in one list.

Two searches rank the same products, some of which are right for the shopper; the better one takes fewer wrong ones for
right. Real drafts of the client package, seen by the cascade model of `rehearsal.shoppers`, give a pool of lists won,
lost and neither; mirrored, it is that of two equal searches. Then shoppers come from the pool, and somebody looks 200
times. It proves the instrument. It says nothing of any shop's searches. Writes docs/figures/interleaving.json.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from peakplan_client import interleave

from peakplan.value.interleaving import PLANNED_SHARE, WORTH_KNOWING, needed, preferred
from peakplan.value.intervals import ALPHA, PLANNED
from rehearsal.bench.figure_file import write_simulated
from rehearsal.shoppers.behaviour import visit

FIGURE = Path("docs/figures/interleaving.json")
LOOKS, RUNS, SEED, LISTS = 200, 1000, 35, 40_000
PRODUCTS, RIGHT, LENGTH = 30, 4, 10
NOISE = {"a": 0.55, "b": 0.50}  # by which a search errs about a product, in the distance of right from wrong


def _ranking(is_right: list[bool], noise: float, rng: random.Random) -> list[int]:
    scores = [right + rng.gauss(0, noise) for right in is_right]
    return sorted(range(len(is_right)), key=lambda product: -scores[product])[:LENGTH]


def won(lists: int, noise: Mapping[str, float], seed: int) -> dict[int, float]:
    """Return which share of lists with a click of a team search "b" wins (1), loses (-1), neither (0)."""
    rng, counts = random.Random(seed), Counter[int]()
    is_right = [number < RIGHT for number in range(PRODUCTS)]
    for number in range(lists):
        a, b = (_ranking(is_right, noise[name], rng) for name in ("a", "b"))
        drafted = interleave(a, b, length=LENGTH, seed=f"{seed} {number}")
        clicked = visit([is_right[product] for product in drafted.products], 0.0, rng, "cascade").clicked
        if any(drafted.teams[rank] for rank in clicked):
            counts[-drafted.credit([drafted.products[rank] for rank in clicked])] += 1
    total = counts.total()
    return {sign: counts[sign] / total for sign in (1, -1, 0)}


def simulate(shares: Mapping[int, float], runs: int, shoppers: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return what `runs` interleavings of so many shoppers come to; `shares` of them win, lose, neither for "b"."""
    ends = np.linspace(0, shoppers, LOOKS + 1).astype(np.int64)
    drawn = rng.multinomial(ends[1:] - ends[:-1], [shares[sign] for sign in (1, -1, 0)], size=(runs, LOOKS))
    wins, losses, _ = np.moveaxis(np.cumsum(drawn, axis=1).astype(float), -1, 0)  # (runs, looks)
    _, low, high, verdict = preferred(
        ends[1:].astype(float), wins - losses, wins + losses, wins + losses, planned=PLANNED * PLANNED_SHARE
    )
    truth = shares[1] - shares[-1]
    ended = (verdict != 0).any(axis=1)
    first = (verdict != 0).argmax(axis=1)
    ends_with = np.where(ended, verdict[np.arange(runs), first], 0)
    covered = ((low <= truth) & (truth <= high)).all(axis=1)
    return {
        "preference": round(truth, 4), "runs": runs, "shoppers": shoppers, "a_verdict": round(float(ended.mean()), 4),
        "preferred": round(float((ends_with > 0).mean()), 4), "worse": round(float((ends_with < 0).mean()), 4),
        "covered_at_every_look": round(float(covered.mean()), 4),
        "median_shoppers_to_the_verdict": int(np.median(ends[1:][first[ended]])) if ended.any() else None,
    }  # fmt: skip


def figure(runs: int = RUNS, lists: int = LISTS, seed: int = SEED) -> dict[str, Any]:
    """Return everything that the document says of interleaving."""
    rng, planted = np.random.default_rng(seed), won(lists, NOISE, seed)
    deciding = (planted[1] + planted[-1]) / 2
    equal = {1: deciding, -1: deciding, 0: planted[0]}
    truth = planted[1] - planted[-1]
    traffic = math.ceil(needed(math.sqrt(2 * deciding - truth**2), truth, planned=PLANNED * PLANNED_SHARE))
    asked = math.ceil(needed(math.sqrt(2 * deciding), WORTH_KNOWING, planned=PLANNED * PLANNED_SHARE))
    return {
        "looks": LOOKS, "alpha": ALPHA, "seed": seed, "lists": lists, "noise": NOISE, "worth_knowing": WORTH_KNOWING,
        "asked": asked, "no_preference": simulate(equal, runs, asked, rng),
        "planted": simulate(planted, runs, traffic, rng),
    }  # fmt: skip


def main() -> None:
    write_simulated(figure, FIGURE, RUNS, __doc__)


if __name__ == "__main__":
    main()
