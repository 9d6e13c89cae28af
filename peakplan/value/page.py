"""The report as one HTML file: its plots are inside it, and it loads nothing from other places."""

import base64
import html
import io
from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1b1b;background:#fff}"
    "table{border-collapse:collapse}th,td{padding:.3rem .7rem;border-bottom:1px solid #767676;text-align:right}"
    "th:first-child,td:first-child{text-align:left}img{max-width:100%}"
)
_COLUMNS = {
    "name": "", "shoppers": "shoppers", "plans_shown": "plans shown", "first_answer_ms": "first answer p50 / p99, ms",
    "without_result": "without result", "click_in_first_three": "click in first three",
    "cart_in_first_three": "cart in first three", "bought": "bought", "basket": "basket", "came_back": "came back",
}  # fmt: skip


def page(told: dict[str, Any]) -> str:
    """Return the page of a report."""
    parts = ["<h1>What plans are worth to shoppers</h1>"]
    for title, rows in (("By release", told["releases"]), ("By arm", told["arms"])):
        if rows:
            parts += [
                f"<h2>{title}</h2>",
                _table(rows),
                _image(_times(rows), f"Time to the first answer, {title.lower()}"),
            ]
    for experiment in told["experiments"]:
        parts.append(f"<h2>Experiment {html.escape(experiment['name'])}</h2>")
        parts.append(f"<p>{html.escape(_shoppers(experiment))}</p>")
        parts.append(f"<ul>{''.join(f'<li>{html.escape(each)}</li>' for each in _makers(experiment))}</ul>")
        if experiment["comparisons"]:
            parts += [_comparisons(experiment), _image(_lifts(experiment), "Lifts with their always-valid intervals")]
    parts += [_interleaving(each) for each in told["interleavings"]]
    if told["currency"]:
        rest = told["plans_in_other_currencies"]
        parts.append(
            f"<p>Money is in {html.escape(told['currency'])}; {rest} plans in other currencies are left out.</p>"
        )
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Peakplan: value</title><style>{_STYLE}</style>"
    return head + "<main>" + "".join(parts) + "</main></html>\n"


def _shoppers(experiment: dict[str, Any]) -> str:
    arms = ", ".join(f"{arm}: {count:,}" for arm, count in experiment["shoppers"].items())
    several = experiment["shoppers_in_several_arms"]
    note = f" Note: {experiment['note']}." if "note" in experiment else ""
    return f"Shoppers by arm: {arms}; {several:,} were in several arms and are left out.{note}"


def _makers(experiment: dict[str, Any]) -> Iterator[str]:
    """Yield what made each arm's plans."""
    for arm, told in experiment["made_by"].items():
        for each in told["makers"]:
            shop = "" if each["shop"] == "-" else f", shop folder {each['shop']}"
            yield f"{arm}: {each['plans']:,} plans by release {each['release']}, {each['model']}{shop}"
        if told["missed"]:
            yield f"{arm}: {told['missed']:.2%} of its plans were made by a host of another arm"


def _interleaving(told: dict[str, Any]) -> str:
    head = f"<h2>Interleaving {html.escape(told['name'])}</h2>"
    if "note" in told:
        return f"{head}<p>{html.escape(', '.join(told['teams']))}: {html.escape(told['note'])}.</p>"
    (low, high), who = told["interval"], told["preference"]
    lists = ", ".join(f"{team} {count:,}" for team, count in told["lists"].items())
    more = told.get("more_shoppers_needed")
    missing = f"; {more:,} more shoppers for {told['for_a_preference_of']:+.0%}" if more else ""
    said = (
        f"{told['verdict']}{missing}. {who['for']} over {who['over']}: {who['mean']:+.1%} ({low:+.1%} to {high:+.1%})"
    )
    return f"{head}<p>{html.escape(said)}, of {told['shoppers']:,} shoppers. Lists won: {html.escape(lists)}.</p>"


def _table(rows: list[dict[str, Any]]) -> str:
    head = "".join(f"<th scope=col>{title or 'name'}" for title in _COLUMNS.values())
    body = "".join("<tr>" + "".join(f"<td>{_cell(name, row[name])}" for name in _COLUMNS) for row in rows)
    return f"<table><thead><tr>{head}</thead><tbody>{body}</tbody></table>"


def _cell(name: str, value: Any) -> str:
    if name == "first_answer_ms":
        return " / ".join("-" if value[part] is None else f"{value[part]:.0f}" for part in ("p50", "p99"))
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}" if name == "basket" else f"{value:.2%}"
    return html.escape(f"{value:,}" if isinstance(value, int) else str(value))


def _comparisons(experiment: dict[str, Any]) -> str:
    body = ""
    for each in experiment["comparisons"]:
        low, high = each["interval"]
        interval = "-" if None in (low, high, each["lift"]) else f"{each['lift']:+.2%} ({low:+.2%} to {high:+.2%})"
        body += f"<tr><td>{html.escape(each['arm'])}: {each['meaning']}<td>{interval}<td>{_verdict(each)}"
        body += f"<td>{each['over_time']}"
    head = "".join(
        f"<th scope=col>{title}"
        for title in ("arm and measure", "lift (95% for all at every look)", "verdict", "over time")
    )
    return f"<table><thead><tr>{head}</thead><tbody>{body}</tbody></table>"


def _verdict(each: dict[str, Any]) -> str:
    if "for_a_lift_of" not in each:
        return str(each["verdict"])
    more = each["more_shoppers_needed"]
    if more is None:
        return "not enough yet"
    return (
        f"not enough yet: {more:,} more shoppers for {each['for_a_lift_of']:+.1%}"
        if more
        else "no difference of that size found"
    )


def _times(rows: list[dict[str, Any]]) -> Any:
    figure, axes = pyplot.subplots(figsize=(7, 0.6 + 0.5 * len(rows)))
    for place, row in enumerate(rows):
        times = row["first_answer_ms"]
        if times["p50"] is not None:
            axes.plot([times["p50"], times["p99"]], [place, place], marker="o")
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set_xlabel("first answer, ms: median and 99th percentile")
    return figure


def _lifts(experiment: dict[str, Any]) -> Any:
    shown = [each for each in experiment["comparisons"] if None not in (*each["interval"], each["lift"])]
    figure, axes = pyplot.subplots(figsize=(7, 0.8 + 0.4 * len(shown)))
    for place, each in enumerate(shown):
        axes.plot([100 * end for end in each["interval"]], [place, place], color="#0b5394")
        axes.plot([100 * each["lift"]], [place], "o", color="#0b5394")
    axes.axvline(0, color="#1b1b1b", linewidth=1)
    axes.set_yticks(range(len(shown)), [f"{each['arm']}: {each['measure']}" for each in shown])
    axes.set_xlabel("lift over the control, %")
    return figure


def _image(figure: Any, text: str) -> str:
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=110, bbox_inches="tight")
    pyplot.close(figure)
    source = "data:image/png;base64," + base64.b64encode(raw.getvalue()).decode()
    return f'<p><img alt="{html.escape(text)}" src="{source}"></p>'
