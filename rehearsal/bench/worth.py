"""What choosing by worth is worth: cases planned by the model, by rule, and by whom a scorer chooses.

    python -m rehearsal.bench.worth judge FILE...       # share passed at each share of the model's work, and by chance
    python -m rehearsal.bench.worth calibrate FILE...   # shift and bound in the model's worth.json, by these cases

Cases that calibrate must not judge: rehearsal/bench/cases/README.md says which of ours do what. Intervals are of 95%,
by bootstrap over cases; chance and worth choose among the same ones each time.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.api.app import replica_pool, settings_vocabulary
from service.engines.protocol import EngineError
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.plan_text import PlanTextError
from service.planner.planner import Planner
from service.planner.worth.differing import differ
from service.planner.worth.features import Reading, numbers
from service.planner.worth.scorer import Scorer
from service.settings import Settings
from training.data.cases import Case, Holds, checker, passes, read_cases
from training.worth_bound import LOST, RISK, Compared, calibrated, write

CHECK = Path("../shared/behaviour/check.py")
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
_DRAWS = 2000
Outcomes = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("judge", "calibrate"))
    parser.add_argument("cases", type=Path, nargs="+", help="files of cases")
    parser.add_argument("--check", type=Path, default=CHECK, help="the program that says what assertions mean")
    parser.add_argument("--model", type=Path, help="a model folder; the one that ships unless given")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="of the model's work")
    parser.add_argument("--lost", type=float, default=LOST, help="what the bound promises: the share lost at most")
    parser.add_argument("--risk", type=float, default=RISK, help="and how likely that promise may be broken")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    given = parser.parse_args()
    settings = Settings(**({"model_dir": given.model} if given.model else {}))
    scorer = Scorer.load(settings.model_dir)
    if scorer is None:
        sys.exit(f"error: {settings.model_dir} has no worth.json: make one with `python -m training.worth`")
    try:
        holds = checker(given.check)
        cases = [case for path in given.cases for case in read_cases(path)]
    except FileNotFoundError as error:
        sys.exit(f"error: {error}; --check names the program")
    asked = asyncio.run(ask(settings, cases, holds))
    if given.what == "calibrate":
        worth = calibrated(scorer.worth, asked, given.lost, given.risk)
        write(worth, settings.model_dir)
        print(worth.bound)
        return
    figures = judge(asked, scorer, given.shares)
    print(table(figures))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


async def ask(settings: Settings, cases: Sequence[Case], holds: Holds) -> list[Compared]:
    """Plan every case by the model and by rule; a question that the model does not plan is one that it fails."""
    pool, vocabulary = replica_pool(settings), settings_vocabulary(settings)
    planner = Planner(pool, vocabulary)
    found: list[Compared | None] = [None] * len(cases)
    remaining = iter(enumerate(cases))

    async def work() -> None:
        for index, case in remaining:
            task = planner.task(case.question)
            try:
                planned = await planner.plan_with_model(task)
                by_model, seconds = planned.plan, planned.result.seconds if planned.result else 0.0
            except (EngineError, PlanTextError) as error:
                print(f"no plan for {case.question.text!r}: {error}", file=sys.stderr)
                by_model, seconds = None, 0.0
            by_rule = plan_by_rule(task.conversation, vocabulary)
            found[index] = Compared(
                numbers(Reading(task.conversation, vocabulary)),
                passes(by_model, case, holds),
                passes(by_rule, case, holds),
                by_model is not None and differ(by_model, by_rule),
                seconds,
            )

    await pool.start()
    try:
        await asyncio.gather(*(work() for _ in range(settings.replica_count)))
    finally:
        await pool.close()
    return [one for one in found if one is not None]


def judge(asked: Sequence[Compared], scorer: Scorer, shares: Sequence[float]) -> dict[str, Any]:
    """Return shares of cases that pass, with intervals: by the model, by rule, and by who is chosen."""
    by_rule = np.array([one.by_rule for one in asked], dtype=float)
    gain = np.array([one.by_model for one in asked], dtype=float) - by_rule
    seconds = np.array([one.work for one in asked])
    worth = np.array([scorer.of_numbers(one.numbers) for one in asked])
    rules = np.array([scorer.is_for_rules(value) for value in worth])
    rng = np.random.default_rng(0)
    draws = [np.arange(len(asked)), *(rng.integers(0, len(asked), len(asked)) for _ in range(_DRAWS))]

    def interval(values: Sequence[float]) -> list[float]:
        """Return a value of all cases, and its interval over the draws."""
        return [round(float(value), 4) for value in (values[0], *np.quantile(values[1:], (0.025, 0.975)))]

    rows = []
    for share in shares:
        chance = [float((by_rule[d] + share * gain[d]).mean()) for d in draws]
        chosen = [float((by_rule[d] + gain[d] * most(worth[d], seconds[d], share)).mean()) for d in draws]
        more, lost = np.subtract(chosen, chance), [float(gain[d].mean() + by_rule[d].mean()) for d in draws]
        rows.append(
            {
                "share": share,
                "chance": interval(chance),
                "worth": interval(chosen),
                "more_than_chance": interval(list(more)),
                "less_than_all": interval(list(np.subtract(lost, chosen))),
            }
        )
    always = [float((by_rule[d] + gain[d] * ~rules[d]).mean()) for d in draws]
    off = [float((by_rule[d] + gain[d]).mean()) for d in draws]
    return {
        "cases": len(asked),
        "off": interval(off),
        "rules": interval([float(by_rule[d].mean()) for d in draws]),
        "always": {
            "passed": interval(always),
            "less_than_off": interval(list(np.subtract(off, always))),
            "planned_by_rule": round(float(rules.mean()), 4),
            "models_work": round(float(seconds[~rules].sum() / max(seconds.sum(), 1e-9)), 4),
        },
        "overload": rows,
    }


def most(worth: Outcomes, seconds: Outcomes, share: float) -> NDArray[np.bool_]:
    """Return who is chosen: the most worth first, while a share of the model's seconds lasts."""
    order = np.argsort(-worth, kind="stable")
    chosen = np.zeros(len(worth), dtype=bool)
    chosen[order] = np.cumsum(seconds[order]) <= share * seconds.sum() * (1 + 1e-9)
    return chosen


def table(figures: dict[str, Any]) -> str:
    """Return the figures as Markdown."""

    def said(values: Sequence[float]) -> str:
        return f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"

    always = figures["always"]
    lines = [
        f"{figures['cases']} cases. Routing off: {said(figures['off'])} passed; rules alone: {said(figures['rules'])}.",
        f"Routing always: {said(always['passed'])}, less than off by {said(always['less_than_off'])}; rules plan "
        f"{always['planned_by_rule']:.1%} by choice, the model works {always['models_work']:.1%} as long.",
        "Routing overload:",
        "",
        "| share of the model's work | by chance | by worth | more than chance | less than all of it |",
        "|---:|---:|---:|---:|---:|",
    ]
    for row in figures["overload"]:
        values = (said(row[name]) for name in ("chance", "worth", "more_than_chance", "less_than_all"))
        lines.append(f"| {row['share']:.0%} | {' | '.join(values)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
