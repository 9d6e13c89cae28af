"""The table of docs/figures/rules.json, for `benchmarks.readme`."""

from typing import Any

from benchmarks.rules_that_stay import Counts, changed, gain, without_reason

_MOST = 12  # rows


def render_rules(figure: dict[str, Any]) -> str:
    """Return what the planner's rules are worth: how many change nothing, what most depends on, and what does harm."""
    rules: dict[str, Counts] = figure["rules"]
    idle = sum(not changed(count) for count in rules.values())
    harmful = [f"`{name}`" for name, count in rules.items() if gain(count) < 0]
    unexplained = without_reason(rules)
    rows = ["| words or patterns taken away | plans that change | cases lost | cases gained |", "|---|---:|---:|---:|"]
    sections = [item for item in rules.items() if "[" in item[0]]  # of words and patterns: what is known of a language
    for name, count in sorted(sections, key=lambda item: -gain(item[1]))[:_MOST]:
        cells = (", ".join(str(one[key]) for one in count.values()) for key in ("changed", "better", "worse"))
        rows.append(f"| `{name}` | {' | '.join(cells)} |")
    told = (
        f"Of {len(rules)} named word lists, patterns and functions {idle} change no plan of these "
        f"{figure['questions']:,} questions, by the model or by rule; more cases pass without {len(harmful)} of them "
        f"than with it{': ' if harmful else ''}{', '.join(harmful[:_MOST])}. "
        f"{'All' if not unexplained else f'All but {len(unexplained)}'} of these stay because the contract asks for "
        "them, or because no case can count them ([the list](../../benchmarks/rules_that_stay.tsv))."
    )
    return "\n".join([told, "", *rows, "", "<sub>`make eval`; in each cell by the model, then by rule.</sub>"])
