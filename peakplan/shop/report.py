"""report.html: how good a catalogue's data is, with plots, a score, and what to mend first. One file, no scripts."""

import html
import io
from collections.abc import Sequence
from typing import Any, Final

from peakplan.shop.judging import Findings

# What each kind of finding costs of the score, for all products having it.
_COSTS: Final = {
    "no category": 30, "no plan can find": 25, "written otherwise": 15, "suspicious price": 15, "duplicate": 15,
    "no price that is read": 25, "repeated id": 15,
}  # fmt: skip
_MISSING: Final = 40  # for every field of every product missing
_LEFT_OUT: Final = 10  # for a field that matters and is not read
_MENDS: Final = {
    "no category": "name the categories; enriched.jsonl has a guess with its confidence for each",
    "no plan can find": "write titles that say what the thing is",
    "written otherwise": "write one value one way; enriched.jsonl has the usual one",
    "suspicious price": "check these prices: they are far from what is usual in their category, or not above 0",
    "no price that is read": "name the field of the price with --map FIELD=price, or write prices as numbers",
    "repeated id": "give every product an id of its own",
    "duplicate": "sell one product once: these have the title, brand, price and attributes of another",
}
_STYLE: Final = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#123}
table{border-collapse:collapse}td,th{padding:.2rem .8rem;border-bottom:1px solid #cbd2d9;text-align:left}
.score{font-size:3rem;font-weight:600}svg{max-width:100%;height:auto}details li{overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){body{background:#1f2933;color:#f5f7fa}svg{background:#f5f7fa}}"""
_ROWS: Final = 25  # categories of a plot


def score(found: Findings) -> float:
    """Return how good the data is, from 0 to 100."""
    lost: float = sum(cost * found.counts[kind] / found.products for kind, cost in _COSTS.items())
    lost += _LEFT_OUT * found.left_out
    if found.missing:
        absent = sum(sum(by.values()) for by in found.missing.values()) / (found.products * len(found.missing))
        lost += _MISSING * absent
    return round(max(0.0, 100 - lost), 1)


def mend_first(found: Findings) -> list[tuple[float, str]]:
    """Return what to mend, by what it would add to the score, most first."""
    gains = [(cost * found.counts[kind] / found.products, _MENDS[kind]) for kind, cost in _COSTS.items()]
    for name, by in found.missing.items():
        worst = max(by, key=lambda top: by[top])
        gain = _MISSING * sum(by.values()) / (found.products * len(found.missing))
        gains.append((gain, f"fill {name}: {sum(by.values()):,} products lack it, most of them in {worst}"))
    return sorted((gain, text) for gain, text in gains if gain >= 0.05)[::-1]


def render(found: Findings, same: Sequence[tuple[str, str, list[str]]], notes: Sequence[str], source: str) -> str:
    """Return the page; `same` are field, value, and the ways in which it is also written."""
    points = "".join(f"<li>+{gain:.1f}: {html.escape(text)}</li>" for gain, text in mend_first(found))
    values = "".join(
        f"<tr><td>{html.escape(name)}<td>{html.escape(value)}<td>{html.escape(', '.join(others))}"
        for name, value, others in same
    )
    kinds = "".join(
        f"<details><summary>{html.escape(kind)}: {found.counts[kind]:,}</summary><ul>"
        + "".join(f"<li>{html.escape(example)}</li>" for example in examples)
        + "</ul></details>"
        for kind, examples in found.examples.items()
    )
    told = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>The data of {html.escape(source)}</title>'
        f"<style>{_STYLE}</style><h1>The data of {html.escape(source)}</h1>"
        f'<p><span class="score">{score(found):g}</span> of 100, {found.products:,} products</p>'
        f"<h2>What to mend first</h2><ol>{points or '<li>nothing stands out</li>'}</ol>"
        f"<h2>How complete</h2>{_completeness(found)}<h2>How consistent</h2>{_consistency(found)}"
        f"<h2>Values that mean the same</h2><table><tr><th>field<th>value<th>also written{values}</table>"
        f"<h2>Products to look at</h2>{kinds}<ul>{told}</ul></html>"
    )


def _svg(figure: Any) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    from matplotlib import pyplot

    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def _completeness(found: Findings) -> str:
    """Return a plot: the share of products that have a field, by category and field."""
    if not found.missing:
        return "<p>Every product has every field.</p>"
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "peakplan"
    tops = [top for top, _ in found.in_category.most_common(_ROWS)]
    fields = list(found.missing)
    shares = [[1 - found.missing[name][top] / found.in_category[top] for name in fields] for top in tops]
    figure, axes = pyplot.subplots(figsize=(2 + len(fields), 1.5 + 0.3 * len(tops)), layout="constrained")
    image = axes.imshow(shares, aspect="auto", vmin=0, vmax=1, cmap="RdYlGn")
    axes.set_xticks(range(len(fields)), fields, rotation=30, ha="right")
    axes.set_yticks(range(len(tops)), [f"{top} ({found.in_category[top]:,})" for top in tops])
    figure.colorbar(image, label="share of products that have it")
    return _svg(figure)


def _consistency(found: Findings) -> str:
    """Return a plot: of each field, the share of products that write its value otherwise than most."""
    if not found.other_way:
        return "<p>Every value is written one way.</p>"
    from matplotlib import pyplot

    fields = found.other_way.most_common(_ROWS)
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.35 * len(fields)), layout="constrained")
    axes.barh([name for name, _ in fields], [100 * count / found.products for _, count in fields], color="#d9480f")
    axes.invert_yaxis()
    axes.set_xlabel("per cent of products whose value is written otherwise than in most")
    return _svg(figure)
