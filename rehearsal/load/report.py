"""The report of a run as one self-contained HTML file: the main numbers, and plots over time."""

import base64
import html
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes

from rehearsal.load.client import Sample
from rehearsal.load.result import Shown, by_second, shown

_COLOURS = {
    "cache": "#2f9e44",
    "model": "#1971c2",
    "fallback": "#f08c00",
    "shed": "#c92a2a",
    "failed": "#212529",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#212529}}
table{{border-collapse:collapse}}td,th{{padding:.2rem 1rem .2rem 0;text-align:left;border-bottom:1px solid #dee2e6}}
td{{font-variant-numeric:tabular-nums}}img{{max-width:100%}}</style>
<h1>{title}</h1><p>{subtitle}</p><table>{rows}</table>{plots}
<p>Latency counts from the time a request was meant to be sent. Good: a plan by the model, fresh or remembered, within
its deadline.</p></html>"""


def write_report(path: Path, result: dict[str, Any], samples: Sequence[Sample], title: str, subtitle: str) -> None:
    """Write the page; `result` comes from `summarise`."""
    answers = [shown(sample) for sample in samples]
    seconds = by_second(answers, result["seconds"])
    plots = [
        _plot(lambda axes: _latency(axes, answers)),
        _plot(lambda axes: _sources(axes, seconds)),
        _plot(lambda axes: _goodput(axes, seconds)),
    ]
    images = "".join(
        f'<img alt="{alt}" src="data:image/png;base64,{image}">' for alt, image in zip(_ALT, plots, strict=True)
    )
    rows = "".join(f"<tr><th>{html.escape(name)}<td>{html.escape(str(value))}" for name, value in _rows(result))
    page = _PAGE.format(title=html.escape(title), subtitle=html.escape(subtitle), rows=rows, plots=images)
    path.write_text(page, encoding="utf-8")


_ALT = ("Latency of each request over time", "Requests a second by what answered them", "Good plans a second")


def _rows(result: dict[str, Any]) -> list[tuple[str, object]]:
    latency, lag = result["latency_ms"], result["generator_lag_ms"]
    share, reasons = result["planned_by_rule_share"], result["planned_by_rule_because"]
    return [
        ("planned by rule", f"{share:.1%}" + "".join(f", {name} {count}" for name, count in reasons.items())),
        ("requests", f"{result['requests']} in {result['seconds']:g} s, {result['offered_per_second']} a second"),
        ("good plans a second", result["goodput_per_second"]),
        ("answered by", ", ".join(f"{source} {share:.1%}" for source, share in result["source_shares"].items())),
        ("latency ms", ", ".join(f"{name} {value}" for name, value in latency.items())),
        ("model answers within their deadline", result["model_answers_in_deadline"]),
        ("answered within deadline + 50 ms", result["answered_within_deadline_and_allowance"]),
        ("failed", result["errors"] or "none"),
        ("generator behind its schedule, ms", ", ".join(f"{name} {value}" for name, value in lag.items())),
    ]


def _plot(draw: Callable[[Axes], None]) -> str:
    """Return a plot as a PNG in base64."""
    matplotlib.use("Agg")
    figure, axes = pyplot.subplots(figsize=(10, 3.6), dpi=110, layout="constrained")
    draw(axes)
    axes.set_xlabel("seconds")
    axes.grid(alpha=0.25)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    pyplot.close(figure)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _latency(axes: Axes, answers: Sequence[Shown]) -> None:
    for source, colour in _COLOURS.items():
        points = [(answer.at, answer.latency * 1000) for answer in answers if answer.source == source]
        if points:
            times, latencies = zip(*points, strict=True)
            axes.scatter(times, latencies, s=4, color=colour, label=source, alpha=0.6, linewidths=0)
    if answers:
        axes.axhline(max(answer.deadline for answer in answers) * 1000, color="#c92a2a", linestyle=":", linewidth=1)
        axes.legend(loc="upper right", markerscale=3)
    axes.set_ylabel("latency, ms")
    axes.set_ylim(bottom=0)


def _sources(axes: Axes, seconds: Sequence[dict[str, Any]]) -> None:
    times = [row["second"] for row in seconds]
    known = [source for source in _COLOURS if any(source in row["sources"] for row in seconds)]
    series = [[row["sources"].get(source, 0) for row in seconds] for source in known]
    if known:
        axes.stackplot(times, *series, labels=known, colors=[_COLOURS[source] for source in known])
        axes.legend(loc="upper right")
    axes.set_ylabel("requests a second")


def _goodput(axes: Axes, seconds: Sequence[dict[str, Any]]) -> None:
    times = [row["second"] for row in seconds]
    axes.step(times, [row["offered"] for row in seconds], where="post", color="#868e96", label="offered")
    axes.step(times, [row["good"] for row in seconds], where="post", color="#2f9e44", label="good plans")
    axes.set_ylabel("a second")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
