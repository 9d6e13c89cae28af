"""What each rule of the planner is worth: `make eval` writes docs/figures/rules.json.

Every named word list, pattern and function of reading, rules and making is taken away alone, and the questions of
benchmarks/cases are planned without it (`rule_counts`). A rule's counts are the plans that are others without it
(`changed`), the cases that pass only with it (`better`), and those that pass only without it (`worse`). A rule that
changes no plan of them must be shown by an example (`rule_examples`), and rules_that_stay.tsv must name the words of
the contract that ask for it; the command ends with those for which neither is so.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from benchmarks.rule_counts import Counts, counts
from benchmarks.rule_examples import EXAMPLES, examples_of, passes_example
from benchmarks.rule_judging import asked, judges
from benchmarks.rule_list import Rule, rules
from benchmarks.rules_that_stay import LIST, changed, without_example, without_reason

FIGURE = Path("docs/figures/rules.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=Path, required=True, help="of `benchmarks.plans --write`: the model's texts")
    parser.add_argument("--cases", type=Path, required=True, help="behaviour cases, beside the program that judges all")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--only", default="", help="a regular expression: rules whose place it matches")
    parser.add_argument(
        "--earlier", type=Path, nargs="*", default=[], help="files of this command: their counts of other rules stand"
    )
    parser.add_argument(
        "--dev", action="store_true", help="count over all questions of the file, not only of the cases"
    )
    parser.add_argument("--output", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.plans.read_text(encoding="utf-8").splitlines()]
    judged = judges(arguments.cases)
    rows = [row for row in rows if arguments.dev or asked(row) in judged]

    def passes(row: dict[str, Any], plan: str) -> bool:
        return all(judge(json.loads(plan)) for judge in judged.get(asked(row), ()))

    def is_chosen(rule: Rule) -> bool:
        return bool(re.search(arguments.only, str(rule)))

    found = _earlier(arguments.earlier, arguments.only)
    for rule, count in counts(rows, arguments.model, passes, is_chosen):
        found[str(rule)] = count
        print(f"{rule}: {_told(count)}", flush=True)
    idle = {name for name, count in found.items() if not changed(count)}
    shown: dict[str, Counts] = {}
    for rule, count in counts(examples_of(idle), arguments.model, passes_example, lambda rule: str(rule) in idle):
        shown[str(rule)] = count
    figure = {"command": "make eval", "questions": len(rows), "rules": found, "examples": shown}
    arguments.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    for name in without_reason(found):
        print(f"{name}: changes no plan, or more for worse: delete it, or say in {LIST.name} what asks for it")
    for name in without_example(found, shown):
        print(f"{name}: changes no plan: delete it, or add a question to {EXAMPLES.name} that fails without it")


def _told(count: Counts) -> str:
    return "; ".join(f"by {maker} {' '.join(f'{n} {k}' for k, n in one.items())}" for maker, one in count.items())


def _earlier(files: list[Path], only: str) -> dict[str, Any]:
    """Return the counts of rules that still stand and are not counted again."""
    kept = {str(rule) for rule in rules() if not re.search(only, str(rule))}
    figures = (json.loads(path.read_text(encoding="utf-8"))["rules"] for path in files)
    return {name: count for figure in figures for name, count in figure.items() if name in kept}


if __name__ == "__main__":
    main()
