"""The report: what shoppers got and did, by release and by arm, and which arm is better, if that is known yet."""

import math
from collections.abc import Mapping
from typing import Any

from peakplan.value import interleaving
from peakplan.value.intervals import ALPHA, PLANNED, Arm, faded, lift, mismatch, shoppers_needed
from peakplan.value.reading import MEASURES, Sums

MISMATCH = 100.0  # times likelier: one false alarm in a hundred tests, however often somebody looks
_NAMES = {
    "conversion": "shoppers who bought", "basket": "paid by a shopper",
    "click": "shoppers who clicked in the first three",
    "cart": "shoppers who put one of the first three into the cart", "back": "shoppers who came back",
}  # fmt: skip
MAIN = "conversion"
_MAIN_SHARE = 0.6  # of an experiment's chance of a false verdict; the other measures share the rest
_MOST_MISSED = 0.01  # of an arm's plans that hosts of another made, beyond which the report warns
_VERDICTS = {1: "better", -1: "worse", 0: "not known yet"}


def report(
    found: Sums,
    *,
    control: str = "control",
    effect: float = 0.02,
    planned: float = PLANNED,
    shares: Mapping[str, float] | None = None,
    main: str = MAIN,
) -> dict[str, Any]:
    """Return the report as JSON has it. `effect` is the lift worth knowing; `shares` those that arms should have.

    `main` is the measure that the experiment is for, whose intervals are narrowest.
    """
    experiments = sorted({row["experiment"] for row in found.halves})
    return {
        "currency": found.currency,
        "plans_in_other_currencies": found.other_currencies,
        "releases": [_part(row) for row in found.releases],
        "arms": [_part(row) for row in found.arms],
        "experiments": [
            _experiment(name, found, control=control, effect=effect, planned=planned, shares=shares or {}, main=main)
            for name in experiments
        ],
        "interleavings": interleaving.told(found.interleaved, planned=planned),
    }


def _part(row: dict[str, Any]) -> dict[str, Any]:
    """Return one release or arm: shares are of plans shown."""
    shown = row["shown"]

    def share(count: int) -> float | None:
        return round(count / shown, 5) if shown else None

    return {
        "name": row["name"], "plans": row["plans"], "shoppers": row["shoppers"], "plans_shown": shown,
        "first_answer_ms": {"p50": row["first_p50"], "p99": row["first_p99"]},
        "without_result": share(row["empty"]), "click_in_first_three": share(row["clicks"]),
        "cart_in_first_three": share(row["carts"]), "bought": share(row["bought"]),
        "basket": round(row["value"] / row["bought"], 2) if row["bought"] else None, "came_back": share(row["back"]),
    }  # fmt: skip


def _experiment(
    name: str, found: Sums, *, control: str, effect: float, planned: float, shares: Mapping[str, float], main: str
) -> dict[str, Any]:
    rows = [row for row in found.halves if row["experiment"] == name]
    arms = sorted({row["arm"] for row in rows})
    counts = [float(sum(row["shoppers"] for row in rows if row["arm"] == arm)) for arm in arms]
    times = mismatch(counts, [shares.get(arm, 1.0) for arm in arms]) if len(arms) > 1 else 0.0
    told: dict[str, Any] = {
        "name": name,
        "shoppers": dict(zip(arms, map(int, counts), strict=True)),
        "shoppers_in_several_arms": found.several.get(name, 0),
        "sample_ratio_mismatch": times > MISMATCH,
        "made_by": _makers(name, arms, found),
        "comparisons": [],
    }
    if control not in arms:
        told["note"] = (
            f"no shopper has been in an arm called {control!r} yet, only in {', '.join(arms)}: if the control has "
            "another name, give it with --control"
        )
        return told
    for arm in arms:
        if arm != control:
            told["comparisons"] += [
                _compared(rows, control, arm, measure, effect, planned, level(measure, main, len(arms)))
                for measure in MEASURES
            ]
    missed = [arm for arm, each in told["made_by"].items() if each["missed"] > _MOST_MISSED]
    if told["sample_ratio_mismatch"]:
        told["note"] = "the arms' sizes are not what they should be: mend that before believing any comparison"
    elif missed:
        told["note"] = f"hosts of another arm made plans of {', '.join(missed)}, so that lifts come out too small"
    return told


def _makers(name: str, arms: list[str], found: Sums) -> dict[str, Any]:
    """Return for each arm which releases, models and shop folders made its plans, and the share it missed its own."""
    told = {}
    for arm in arms:
        rows = [row for row in found.makers if (row["experiment"], row["arm"]) == (name, arm)]
        plans = sum(row["plans"] for row in rows)
        told[arm] = {
            "missed": round(sum(row["missed"] for row in rows) / plans, 5) if plans else 0.0,
            "makers": [{part: row[part] for part in ("release", "model", "shop", "plans")} for row in rows],
        }
    return told


def level(measure: str, main: str = MAIN, arms: int = 2) -> float:
    """Return the highest chance of a false verdict for this measure of one arm.

    Over all measures and arms of an experiment the chances add up to 5% (a weighted Bonferroni correction). A reader
    who watches all of them all the time and stops at the first verdict is misled in at most 5% of tests.
    """
    share = _MAIN_SHARE if measure == main else (1 - _MAIN_SHARE) / (len(MEASURES) - 1)
    return ALPHA * share / max(arms - 1, 1)


def _compared(
    rows: list[dict[str, Any]], control: str, arm: str, measure: str, effect: float, planned: float, alpha: float
) -> dict[str, Any]:
    before, ours = (_arm(rows, name, measure) for name in (control, arm))
    compared = lift(before, ours, planned=planned, alpha=alpha)
    verdict = int(compared.verdict)
    needed = shoppers_needed(before, effect, planned=planned, alpha=alpha)
    have = before.shoppers + ours.shoppers
    halves = [(_arm(rows, control, measure, late=late), _arm(rows, arm, measure, late=late)) for late in (False, True)]
    told = {
        "arm": arm, "measure": measure, "meaning": _NAMES[measure], "control_mean": _plain(before.mean),
        "arm_mean": _plain(ours.mean), "lift": _plain(compared.estimate),
        "interval": [_plain(compared.low), _plain(compared.high)], "confidence": round(1 - alpha, 6),
        "verdict": _VERDICTS[verdict],
        "over_time": {-1: "fades", 1: "grows", 0: "no change known"}[faded(halves[0], halves[1], planned=planned)],
    }  # fmt: skip
    if not verdict:
        told["more_shoppers_needed"] = None if math.isinf(needed) else max(0, round(needed - have))
        told["for_a_lift_of"] = effect
    return told


def _arm(rows: list[dict[str, Any]], arm: str, measure: str, *, late: bool | None = None) -> Arm:
    chosen = [row for row in rows if row["arm"] == arm and late in (None, row["late"])]
    names = ("shoppers", measure, f"{measure}_squares")
    return Arm(*(float(sum(row[name] or 0 for row in chosen)) for name in names))


def _plain(number: Any) -> float | None:
    return round(float(number), 6) if math.isfinite(float(number)) and abs(float(number)) < 1e6 else None
