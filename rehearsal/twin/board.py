"""A dashboard's picture: its widgets at their places on CloudWatch's grid of 24 columns."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS, UNIT = 24, 0.72  # of the grid; inches that one unit is wide
_IN_WORDS = ("text", "alarm")  # the types of widgets that are no graphs
INK, GRID, SURFACE = "#16191f", "#d5dbdb", "#ffffff"
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22")
Curves = Mapping[str, tuple[Sequence[float | None], bool]]


def draw(widgets: Sequence[Mapping[str, Any]], curves: Sequence[Curves], file: Path) -> None:
    """Write the picture of a board as PNG; what a rehearsal has no data of is left out, and rows move up."""
    from matplotlib.figure import Figure

    shown = [(each, drawn) for each, drawn in zip(widgets, curves, strict=True) if drawn or each["type"] in _IN_WORDS]
    heights = {y: max(each["height"] for each, _ in shown if each["y"] == y) for y in {each["y"] for each, _ in shown}}
    height = sum(heights.values())
    figure = Figure(figsize=(COLUMNS * UNIT, height * UNIT * 0.8), facecolor="#f2f3f3")
    for widget, drawn in shown:
        left, top = widget["x"] / COLUMNS, 1 - sum(heights[y] for y in heights if y < widget["y"]) / height
        place = (left + 0.03, top - (widget["height"] - 0.9) / height)
        size = (widget["width"] / COLUMNS - 0.055, (widget["height"] - 2.1) / height)
        if widget["type"] in _IN_WORDS:
            _words(figure, widget, left + 0.008, top - 0.35 / height)
        else:
            _graph(figure.add_axes((*place, *size)), widget["properties"], drawn)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=80)


def _words(figure: Any, widget: Mapping[str, Any], x: float, y: float) -> None:
    """Write what is no graph: text, or the number of the alarms."""
    properties = widget["properties"]
    if widget["type"] == "text":
        said = re.sub(r"[#*`]", "", properties["markdown"]).strip()
    else:
        said = f"{properties['title']}: those of {len(properties['alarms'])} that are in ALARM, the latest first"
    figure.text(x, y, said, color=INK, fontsize=10, va="top")


def _graph(axes: Any, properties: Mapping[str, Any], curves: Curves) -> None:
    axes.set_facecolor(SURFACE)
    axes.set_title(properties["title"], fontsize=10, loc="left", color=INK)
    axes.tick_params(labelsize=7, colors=INK)
    if properties["view"] == "singleValue":
        (values, _) = next(iter(curves.values()))
        known = [value for value in values if value is not None]
        axes.text(0.5, 0.5, f"{sum(known) / len(known):.4g}", ha="center", va="center", fontsize=26, color=INK)
        axes.set_axis_off()
        axes.set_title(properties["title"], fontsize=10, loc="left", color=INK)
        return
    right = axes.twinx() if any(is_right for _, is_right in curves.values()) else None
    for number, (label, (values, is_right)) in enumerate(curves.items()):
        on = right if is_right and right is not None else axes
        points = [math.nan if value is None else value for value in values]
        on.plot(points, color=_COLOURS[number % len(_COLOURS)], linewidth=1.4, label=label)
    for line in properties.get("annotations", {}).get("horizontal", []):
        on = right if line.get("yAxis") == "right" and right is not None else axes
        on.axhline(line["value"], color=line["color"], linewidth=0.9, linestyle="--")
        on.annotate(line["label"], (0, line["value"]), fontsize=7, color=line["color"], va="bottom")
    axis = properties["yAxis"]["left"]
    axes.set_ylim(bottom=axis["min"], top=axis.get("max"))
    axes.grid(color=GRID, linewidth=0.5)
    axes.set_xlabel("minutes", fontsize=7, color=INK)
    handles = [handle for each in (axes, right) if each is not None for handle in each.get_legend_handles_labels()[0]]
    axes.legend(handles=handles, fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    if right is not None:
        right.tick_params(labelsize=7, colors=INK)
        right.set_ylim(bottom=0)
