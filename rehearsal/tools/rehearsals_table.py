"""The table of what the fleets that ship carry, from docs/figures/rehearsals.json."""

from typing import Any


def render_rehearsals(figure: dict[str, Any]) -> str:
    """Return a row for each scenario, with the worst of its runs in each fleet that has it."""
    fleets = figure["fleets"]
    lines = [
        f"`{name}`, {each['at']}: **{each['verdict']}** on {each['trace']} at {each['peak']:g} times the forecast, "
        f"{each['seeds']} seed(s) with {' and '.join(map(str, each['nodes']))} balancer nodes. "
        + (f"Not rehearsed: {', '.join(each['left_out'])}." if each["left_out"] else "")
        for name, each in fleets.items()
    ]
    heads = [
        "scenario",
        *(f"{name}: {what}" for name in fleets for what in ("verdict", "by rule", "failed", "worst p99", "pages")),
    ]
    scenarios = dict.fromkeys(name for each in fleets.values() for name in each["scenarios"])
    rows = [
        [scenario, *(cell for each in fleets.values() for cell in _cells(each["scenarios"].get(scenario)))]
        for scenario in scenarios
    ]
    table = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(["", "\n".join(f"- {line.strip()}" for line in lines), "", *table, ""])


def _cells(found: dict[str, Any] | None) -> tuple[str, str, str, str, str]:
    if found is None:
        return "-", "", "", "", ""
    verdict = "PASS" if found["holds"] else "FAIL"
    breaks = f", breaks at {found['breaks_at']:g}x" if found["breaks_at"] else ""
    pages = ", ".join(found["pages"]) or "none"
    by_rule, failed = (f"{found[name]:.2f}%" for name in ("percent_by_rule", "percent_failed"))
    return f"{verdict}{breaks}", by_rule, failed, f"{found['worst_p99_ms']:.0f} ms", pages
