"""The charts of a rehearsal: SVG that keeps its text readable at any width, and one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from infra.fleet.policies import PERIOD_SECONDS
from rehearsal.twin.cell import Array
from rehearsal.twin.situation import Course

_WIDTH, _HEIGHT = 1000, 120
_MOST_POINTS = 720  # a line of more cannot be told from this one on a screen


@dataclass(frozen=True)
class Line:
    """One line of a chart; `colour` is the number of a colour of the style sheet."""

    name: str
    values: Array
    colour: int


@dataclass(frozen=True)
class Chart:
    """A chart over time; `limit` is drawn across it."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    limit: float | None = None


def charts(course: Course, slo_ms: float) -> tuple[Chart, ...]:
    """Return the timeline of a course: traffic, hosts, p99 and who did not get a plan of the model."""
    requests = np.maximum(course.column("requests"), 1.0)
    bad = course.column("failed") + course.column("shed")
    return (
        Chart("Requests", "a second", (Line("asked", course.column("requests") / PERIOD_SECONDS, 1),)),
        Chart(
            "Hosts of the cell",
            "",
            (
                Line("asked for", course.column("desired"), 2),
                Line("in service and healthy", course.column("healthy"), 1),
                Line("needed", course.column("needed"), 4),
                Line("warm, in the pool", course.column("warm"), 5),
            ),
        ),
        Chart("p99 of each 10 s", "ms", (Line("p99", course.column("p99_ms"), 1),), slo_ms),
        Chart(
            "Without the model",
            "% of requests",
            (
                Line("by rule", 100 * course.column("rules") / requests, 4),
                Line("failed", 100 * bad / requests, 3),
            ),
        ),
    )


def svg(chart: Chart, minutes: Array, marks: Sequence[tuple[float, str]]) -> str:
    """Return a chart as HTML: lines in an SVG that stretches, words beside it that do not.

    `minutes` are the windows' ends on the axis; `marks` are moments on it, with what happened then.
    """
    highest = max([float(line.values.max(initial=0.0)) for line in chart.lines] + [chart.limit or 0.0, 1e-9])
    top = 1.22 * highest  # the highest value's words stand above it
    first, last = float(minutes[0]), float(minutes[-1])

    def x(minute: float) -> float:
        return _WIDTH * (minute - first) / max(last - first, 1e-9)

    def y(value: float) -> float:
        return _HEIGHT * (1 - value / top)

    drawn = [f'<line class="mark" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="0" y2="{_HEIGHT}"/>' for at, _ in marks]
    if chart.limit is not None:
        drawn.append(f'<line class="limit" x1="0" x2="{_WIDTH}" y1="{y(chart.limit):.1f}" y2="{y(chart.limit):.1f}"/>')
    for line in chart.lines:
        points = " ".join(f"{x(minute):.1f},{y(value):.1f}" for minute, value in _thinned(minutes, line.values))
        drawn.append(f'<polyline class="c{line.colour}" points="{points}"/>')
    legend = " ".join(f'<span class="key c{line.colour}">{escape(line.name)}</span>' for line in chart.lines)
    legend += f' <span class="key limit">limit {chart.limit:g}</span>' if chart.limit is not None else ""
    words = "".join(f'<span class="at" style="left:{x(at) / _WIDTH:.1%}">{escape(what)}</span>' for at, what in marks)
    unit = f", {chart.unit}" if chart.unit else ""
    label = f"{chart.title}{unit}; highest {highest:.4g}"
    return (
        f'<figure><figcaption><b>{escape(chart.title)}</b>{escape(unit)} {legend}</figcaption><div class="plot">'
        f'<span class="top">{highest:.4g}</span><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
        f'role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>{words}</div><div class="axis">'
        f"<span>{first:.0f} min</span><span>{(first + last) / 2:.0f}</span><span>{last:.0f} min</span></div></figure>"
    )


def axis(course: Course) -> Array:
    """Return the minutes of each window's end: from the fault on, or from the curve's beginning without one."""
    zero = course.fault if course.fault is not None else -float(course.offset)
    return (np.arange(1, len(course.values) + 1) * PERIOD_SECONDS - zero) / 60


def _thinned(minutes: Array, values: Array) -> list[tuple[float, float]]:
    """Return at most _MOST_POINTS points: the highest of each few neighbours, so that no spike is lost."""
    step = -(-len(values) // _MOST_POINTS)
    return [
        (float(minutes[begin : begin + step].mean()), float(values[begin : begin + step].max()))
        for begin in range(0, len(values), step)
    ]


def write_png(path: Path, title: str, course: Course, slo_ms: float) -> None:
    """Draw the timeline of a course with matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = charts(course, slo_ms)
    figure, axes = pyplot.subplots(len(shown), 1, sharex=True, figsize=(10, 9), layout="constrained")
    minutes = axis(course)
    for place, chart in zip(axes, shown, strict=True):
        for line in chart.lines:
            place.plot(minutes, line.values, label=line.name, linewidth=1.2)
        if chart.limit is not None:
            place.axhline(chart.limit, color="tab:red", linestyle="--", linewidth=1)
        place.set_ylabel(f"{chart.title}\n{chart.unit}", fontsize=9)
        place.set_ylim(bottom=0)
        place.legend(loc="upper left", fontsize=8, frameon=False, ncols=4)
        place.grid(alpha=0.3)
        if course.fault is not None:
            place.axvline(0, color="black", linewidth=0.8)
    axes[-1].set_xlabel("minutes from the fault" if course.fault is not None else "minutes")
    figure.suptitle(title)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
