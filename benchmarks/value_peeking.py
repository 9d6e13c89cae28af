"""`python -m benchmarks.value_peeking`: how often the verdicts of `peakplan value` are right under continuous looking.

Seeded shoppers who buy or do not, in two arms, with a planted effect; after every 200th of the traffic that the report
asked for somebody looks and stops at the first verdict. It proves the instrument. It says nothing of any shop's lift.
Writes docs/figures/value.json.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from value.intervals import ALPHA, Arm, lift, shoppers_needed

FIGURE = Path("docs/figures/value.json")
CONVERSION, EFFECT, HARM = 0.05, 0.02, -0.05
LOOKS, RUNS, SEED = 200, 1000, 35


def simulate(effect: float, runs: int, shoppers: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return what `runs` tests of so many shoppers each come to, half of them in each arm."""
    ends = np.linspace(0, shoppers // 2, LOOKS + 1).astype(np.int64)
    at_a_look = (ends[1:] - ends[:-1]).astype(np.int64)  # (looks,) shoppers of an arm
    seen = np.cumsum(at_a_look).astype(float)
    control, arm = (
        np.cumsum(rng.binomial(at_a_look, rate, size=(runs, LOOKS)), axis=1).astype(float)  # (runs, looks) buyers
        for rate in (CONVERSION, CONVERSION * (1 + effect))
    )
    found = lift(Arm(seen, control, control), Arm(seen, arm, arm), planned=shoppers)
    verdicts = found.verdict
    covered = ((found.low <= effect) & (effect <= found.high)) | ~found.is_enough
    first = np.where((verdicts != 0).any(axis=1), (verdicts != 0).argmax(axis=1), LOOKS)  # the look that ends the test
    ended = first < LOOKS
    verdict = np.where(ended, verdicts[np.arange(runs), np.minimum(first, LOOKS - 1)], 0)
    return {
        "effect": effect,
        "runs": runs,
        "shoppers": shoppers,
        "better": round(float((verdict > 0).mean()), 4),
        "worse": round(float((verdict < 0).mean()), 4),
        "covered_at_every_look": round(float(covered.all(axis=1).mean()), 4),
        "median_shoppers_to_the_verdict": int(2 * np.median(seen[first[ended]])) if ended.any() else None,
    }


def asked(effect: float) -> int:
    """Return the traffic that the report asks for at our conversion, planned for just that traffic."""
    control = Arm(1.0, CONVERSION, CONVERSION)
    needed = 1e6
    for _ in range(20):  # intervals are narrowest at what is planned, which is what is needed
        needed = shoppers_needed(control, effect, planned=needed)
    return math.ceil(needed)


def figure(runs: int = RUNS, seed: int = SEED) -> dict[str, Any]:
    """Return everything that the document says of peeking."""
    rng, traffic = np.random.default_rng(seed), asked(EFFECT)
    return {
        "conversion": CONVERSION, "looks": LOOKS, "alpha": ALPHA, "seed": seed,
        "no_effect": simulate(0.0, runs, traffic, rng), "gain": simulate(EFFECT, runs, traffic, rng),
        "harm": simulate(HARM, runs, traffic, rng),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    found = figure(given.runs)
    FIGURE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
