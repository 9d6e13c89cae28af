"""`python -m rehearsal.bench.value_peeking`: how often verdicts of `peakplan value` are right under continuous looking.

Seeded shoppers in two arms click, fill baskets, buy and come back, with a planted effect on who buys; after every 200th
of the traffic that the report asked for somebody looks at all measures, as the report tells them by default, and stops
at the first verdict. It proves the instrument. It says nothing of any shop's lift. Writes docs/figures/value.json.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from peakplan.value.intervals import ALPHA, PLANNED, Arm, Lift, lift, shoppers_needed
from peakplan.value.reading import MEASURES
from peakplan.value.report import MAIN, level
from rehearsal.bench.figure_file import write_simulated

FIGURE = Path("docs/figures/value.json")
CONVERSION, EFFECT, HARM = 0.05, 0.02, -0.05
LOOKS, RUNS, SEED = 200, 1000, 35


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


def main() -> None:
    write_simulated(figure, FIGURE, RUNS, __doc__)


if __name__ == "__main__":
    main()
