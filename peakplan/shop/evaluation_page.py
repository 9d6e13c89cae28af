"""evaluation.html and the table of a terminal: how much each way of searching finds, and the worst questions first."""

import html
import io
from typing import Any, Final

from peakplan.shop.evaluating import RAW, Evaluation

_STYLE: Final = """body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#123}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .8rem;border-bottom:1px solid #cbd2d9;text-align:left;
vertical-align:top}td.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}svg{max-width:100%;height:auto}
.less{color:#c92a2a}.wide{overflow-x:auto}small{color:#52606d}td:first-child{min-width:12rem}
@media (prefers-color-scheme:dark){body{background:#1f2933;color:#f5f7fa}svg{background:#f5f7fa}.less{color:#ff8787}
small{color:#cbd2d9}}"""
_MOST_ROWS: Final = 500  # questions of the page; evaluation.json has all
_NOTE: Final = (
    "95% intervals by a bootstrap over questions; in brackets the difference from the raw words. Judged@10 is the "
    "share of the first ten that anybody judged: where it is low, scores say little."
)


def table(found: dict[str, Any]) -> str:
    """Return the figures of `Evaluation.summary` for a terminal."""
    rows = [("", *next(iter(found["ways"].values())))]
    for way, scores in found["ways"].items():
        rows.append((way, *(_told(score, way) for score in scores.values())))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def _told(score: dict[str, Any], way: str) -> str:
    low, high = score["interval"]
    text = f"{score['mean']:.3f} [{low:.3f}, {high:.3f}]"
    if way == RAW:
        return text
    low, high = score["difference"]["interval"]
    return f"{text} ({score['difference']['mean']:+.3f} [{low:+.3f}, {high:+.3f}])"


def render(found: Evaluation, title: str) -> str:
    """Return the page: one file, no scripts."""
    summary = found.summary()
    ways = summary["ways"]
    measures = list(ways[RAW])
    head = "".join(f"<th>{html.escape(name)}" for name in measures)
    rows = "".join(
        f"<tr><td>{html.escape(way)}"
        + "".join(f"<td class=n>{_told(scores[name], way).replace(' (', '<br>(')}" for name in measures)
        for way, scores in ways.items()
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in summary["notes"])
    shown = summary["worst_first"][:_MOST_ROWS]
    questions = "".join(_row(each, measures[0]) for each in shown)
    more = f"<p>{len(summary['worst_first']) - len(shown)} more are in evaluation.json.</p>"
    model = f", model {html.escape(found.model)}" if found.model else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>What searches of {html.escape(title)} find</title><style>{_STYLE}</style>"
        f"<h1>What searches of {html.escape(title)} find</h1><p>{summary['questions']:,} judged questions{model}.</p>"
        f"<div class=wide><table><tr><th>{head}{rows}</table></div>"
        f"<p><small>{_NOTE}</small></p>{_plot(ways, measures[0])}"
        f"<ul>{notes}</ul><h2>Worst questions first</h2><div class=wide><table><tr><th>question"
        + "".join(f"<th>{html.escape(way)}" for way in ways)
        + f"<th>right, and not among the first ten<th>found first{questions}</table></div>"
        + (more if len(shown) < len(summary["worst_first"]) else "")
        + "</html>"
    )


def _row(each: dict[str, Any], measure: str) -> str:
    raw = each["scores"][RAW][measure]
    cells = "".join(
        f"<td class='n{' less' if scores[measure] < raw - 1e-9 else ''}'>{scores[measure]:.2f}"
        for scores in each["scores"].values()
    )
    lists = "".join(f"<td>{'<br>'.join(map(html.escape, each[name]))}" for name in ("missed", "found_first"))
    return f"<tr><td>{html.escape(each['question'])}{cells}{lists}"


def _plot(ways: dict[str, Any], measure: str) -> str:
    """Return a plot of one measure: each way's mean with its interval."""
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "peakplan"
    names = list(ways)[::-1]
    means = [ways[way][measure]["mean"] for way in names]
    bounds = [ways[way][measure]["interval"] for way in names]
    errors = [
        [mean - low for mean, (low, _) in zip(means, bounds, strict=True)],
        [high - mean for mean, (_, high) in zip(means, bounds, strict=True)],
    ]
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.4 * len(names)), layout="constrained")
    axes.errorbar(means, names, xerr=errors, fmt="o", color="#0b7285", capsize=4)
    axes.set_xlim(0, 1)
    axes.margins(y=0.2)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel(f"{measure}, mean and 95% interval")
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]
