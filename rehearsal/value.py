"""How often verdicts of `peakplan value` are right under continuous looking: docs/figures/{value,interleaving}.json.

`python -m rehearsal.value` writes both. It proves the instrument, and says nothing of any shop.

- value: seeded shoppers in two arms click, fill baskets, buy and come back, with a planted effect on who buys. After
  every 200th of the traffic that the report asked for, all measures are read, and the first verdict ends the test.
- interleaving: two searches rank the same products, some of which are right for the shopper; the better one takes fewer
  wrong ones for right. Real drafts of the client package, seen by the cascade model of `rehearsal.shoppers`, give a
  pool of lists won, lost and neither; mirrored, it is that of two equal searches. Shoppers come from the pool.
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
from peakplan.value.intervals import ALPHA, PLANNED, Arm, Lift, lift, shoppers_needed
from peakplan.value.reading import MEASURES
from peakplan.value.report import MAIN, level
from rehearsal.bench.machine import write_figure
from rehearsal.shoppers import visit

FIGURE = Path("docs/figures/value.json")
INTERLEAVING = Path("docs/figures/interleaving.json")
CONVERSION, EFFECT, HARM = 0.05, 0.02, -0.05
LOOKS, RUNS, SEED = 200, 1000, 35
LISTS, PRODUCTS, RIGHT, LENGTH = 40_000, 30, 4, 10
NOISE = {"a": 0.55, "b": 0.50}  # by which a search errs about a product, in the distance of right from wrong
_CLICK, _CART = 0.15, 0.10  # of shoppers: no more than that; those who buy do both, too
_BASKETS = {10.0: 0.6, 40.0: 0.3, 160.0: 0.1}  # what is paid, and by which share of those who buy
_BACK, _BACK_AFTER_BUYING = 0.15, 0.4


def arm_of(rate: float, at_a_look: Any, runs: int, rng: np.random.Generator) -> dict[str, Arm]:
    """Return what is known of an arm at each look, of each measure; `rate` of its shoppers buy."""
    buying = [rate * share for share in _BASKETS.values()]
    kinds = [1 - _CLICK - _CART - rate, _CLICK, _CART, *buying]
    nothing, click, cart, *bought = np.moveaxis(rng.multinomial(at_a_look, kinds, size=(runs, len(at_a_look))), -1, 0)
    buyers, back = sum(bought), rng.binomial(nothing + click + cart, _BACK)
    back += rng.binomial(buyers, _BACK_AFTER_BUYING)
    seen = np.cumsum(at_a_look).astype(float)

    def summed(total: Any, squares: Any = None) -> Arm:
        both = [np.cumsum(each, axis=1).astype(float) for each in (total, total if squares is None else squares)]
        return Arm(seen, *both)  # (runs, looks)

    paid = [sum(value**power * each for value, each in zip(_BASKETS, bought, strict=True)) for power in (1, 2)]
    return {
        "conversion": summed(buyers), "basket": summed(*paid), "click": summed(click + cart + buyers),
        "cart": summed(cart + buyers), "back": summed(back),
    }  # fmt: skip


def simulate(effect: float, runs: int, shoppers: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return what `runs` tests of so many shoppers each come to, half of them in each arm."""
    ends = np.linspace(0, shoppers // 2, LOOKS + 1).astype(np.int64)
    at_a_look = (ends[1:] - ends[:-1]).astype(np.int64)  # (looks,) shoppers of an arm
    control, arm = (arm_of(rate, at_a_look, runs, rng) for rate in (CONVERSION, CONVERSION * (1 + effect)))
    found = {name: lift(control[name], arm[name], alpha=level(name)) for name in MEASURES}
    verdicts = found[MAIN].verdict
    first = np.where((verdicts != 0).any(axis=1), (verdicts != 0).argmax(axis=1), LOOKS)  # the look that ends the test
    ended = first < LOOKS
    verdict = np.where(ended, verdicts[np.arange(runs), np.minimum(first, LOOKS - 1)], 0)
    seen = control[MAIN].shoppers
    told = {
        "effect": effect,
        "runs": runs,
        "shoppers": shoppers,
        "better": round(float((verdict > 0).mean()), 4),
        "worse": round(float((verdict < 0).mean()), 4),
        "covered_at_every_look": round(float(_covered(found[MAIN], effect).mean()), 4),
        "median_shoppers_to_the_verdict": int(2 * np.median(seen[first[ended]])) if ended.any() else None,
    }
    if not effect:
        any_verdict = np.any([(each.verdict != 0).any(axis=1) for each in found.values()], axis=0)
        told["a_verdict_on_any_measure"] = round(float(any_verdict.mean()), 4)
        told["all_measures_covered"] = round(
            float(np.all([_covered(each, 0) for each in found.values()], axis=0).mean()), 4
        )
    return told


def _covered(found: Lift, effect: float) -> Any:
    """Return for each run whether the truth is inside at every look at which there is enough for a verdict."""
    return (((found.low <= effect) & (effect <= found.high)) | ~found.is_enough).all(axis=1)


def asked(effect: float) -> int:
    """Return the traffic that the report asks for by default at our conversion."""
    return math.ceil(shoppers_needed(Arm(1.0, CONVERSION, CONVERSION), effect, planned=PLANNED, alpha=level(MAIN)))


def figure(runs: int = RUNS, seed: int = SEED) -> dict[str, Any]:
    """Return everything that the document says of peeking."""
    rng, traffic = np.random.default_rng(seed), asked(EFFECT)
    return {
        "conversion": CONVERSION, "looks": LOOKS, "alpha": ALPHA, "seed": seed,
        "no_effect": simulate(0.0, runs, traffic, rng), "gain": simulate(EFFECT, runs, traffic, rng),
        "harm": simulate(HARM, runs, traffic, rng),
    }  # fmt: skip


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


def simulate_interleaving(
    shares: Mapping[int, float], runs: int, shoppers: int, rng: np.random.Generator
) -> dict[str, Any]:
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


def interleaving_figure(runs: int = RUNS, lists: int = LISTS, seed: int = SEED) -> dict[str, Any]:
    """Return everything that the document says of interleaving."""
    rng, planted = np.random.default_rng(seed), won(lists, NOISE, seed)
    deciding = (planted[1] + planted[-1]) / 2
    equal = {1: deciding, -1: deciding, 0: planted[0]}
    truth = planted[1] - planted[-1]
    traffic = math.ceil(needed(math.sqrt(2 * deciding - truth**2), truth, planned=PLANNED * PLANNED_SHARE))
    asked = math.ceil(needed(math.sqrt(2 * deciding), WORTH_KNOWING, planned=PLANNED * PLANNED_SHARE))
    return {
        "looks": LOOKS, "alpha": ALPHA, "seed": seed, "lists": lists, "noise": NOISE, "worth_knowing": WORTH_KNOWING,
        "asked": asked, "no_preference": simulate_interleaving(equal, runs, asked, rng),
        "planted": simulate_interleaving(planted, runs, traffic, rng),
    }  # fmt: skip


def main() -> None:
    write_figure(FIGURE, figure())
    write_figure(INTERLEAVING, interleaving_figure())


if __name__ == "__main__":
    main()
