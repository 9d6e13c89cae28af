"""The table of docs/figures/rules.json, for `benchmarks.readme`."""

from typing import Any

from benchmarks.rules_that_stay import Counts, changed, gain, is_uncounted, without_example, without_reason

_MOST = 12  # rows


def render_rules(figure: dict[str, Any]) -> str:
    """Return what the planner's rules are worth: how many change nothing, what most depends on, and what does harm."""
    rules: dict[str, Counts] = figure["rules"]
    idle = [name for name, count in rules.items() if not changed(count)]
    uncounted = sum(map(is_uncounted, idle))
    harmful = [f"`{name}`" for name, count in rules.items() if gain(count) < 0]
    unexplained = without_reason(rules)
    dead = without_example(rules, figure["examples"])
    rows = ["| words or patterns taken away | plans that change | cases lost | cases gained |", "|---|---:|---:|---:|"]
    sections = [item for item in rules.items() if "[" in item[0]]  # of words and patterns: what is known of a language
    for name, count in sorted(sections, key=lambda item: -gain(item[1]))[:_MOST]:
        cells = (", ".join(str(one[key]) for one in count.values()) for key in ("changed", "better", "worse"))
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    told = (
        f"Of {len(rules)} named word lists, patterns and functions {len(idle)} change no plan of these "
        f"{figure['questions']:,} questions, by the model or by rule. {len(idle) - uncounted - len(dead)} of those are "
        "shown by a question of ours that fails without them ([examples](../../benchmarks/rule_examples.jsonl)), "
        f"{uncounted} decide nothing that a plan of these questions could show, and {len(dead)} have no example. More "
        f"cases pass without {len(harmful)} of all than with it{': ' if harmful else ''}{', '.join(harmful[:_MOST])}. "
        f"{'All' if not unexplained else f'All but {len(unexplained)}'} of these stay because the contract asks for "
        "them ([the list](../../benchmarks/rules_that_stay.tsv), which says why where none can be counted)."
    )
    return "\n".join([told, "", *rows, "", "<sub>`make eval`; in each cell by the model, then by rule.</sub>"])
