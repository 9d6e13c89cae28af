"""Graphs of a CloudWatch dashboard as the JSON that CloudWatch reads, independent of aws_cdk and of their content.

`shortened` writes a graph's metrics in the short way that a dashboard's body knows, `whole` writes them out again. A
period stands for the value in its place one line above (metrics array). Templates have a bound, and most of a fleet's
alarms and boards are the names of metrics.

Source: CloudWatch API reference, Dashboard body structure and syntax.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Self

from infra.constructs.names import CellNames, NamedMetric, expand_all
from infra.fleet.alarm_kinds import Reading
from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetSettings

Json = dict[str, Any]
Line = list[Any]  # a metric: namespace, name, dimensions, options; or an expression's options alone
SAME = "."
WIDTH = 24  # columns of a dashboard
IN_A_ROW, HEIGHT = 3, 6  # graphs side by side, and the grid units that one is high


class Graph:
    """One widget under construction: curves over readings of cells, and threshold lines."""

    def __init__(
        self, settings: FleetSettings, title: str, *, of: str = "", period: int = 60, number: bool = False
    ) -> None:
        """Create an empty graph, whose title begins with the cell that it is `of`.

        `number` shows a single value over the viewer's time range instead of curves.
        """
        self._title, self._period, self._number = f"{of} {title}".strip(), period, number
        self._fleet, self._region = settings.name, settings.region
        self._axis: Json = {"min": 0}
        self._metrics: list[list[Any]] = []
        self._lines: dict[str, list[Any]] = {"horizontal": [], "vertical": []}
        self._curves = 0
        self._ids: dict[Any, str] = {}  # of metrics and of sums over cells, which several curves read

    def curve(
        self,
        label: str,
        expression: str,
        readings: Mapping[str, Reading],
        cells: Sequence[CellNames],
        *,
        right: bool = False,
    ) -> Self:
        """Add a curve of metric math over the readings, each summed over the cells."""
        self._curves += 1
        terms: dict[str, str] = {}
        for identifier, reading in readings.items():
            sums = []
            for number, names in enumerate(cells, start=1):
                own = f"c{self._curves}_{number}_{identifier}" if len(cells) > 1 else f"c{self._curves}_{identifier}"
                metrics, term = expand_all({own: reading}, own, self._fleet, names)
                for metric in metrics:
                    term = re.sub(rf"\b{metric.id}\b", self._fetched(metric), term)
                sums.append(term)
            if len(sums) == 1:  # no line of its own: each is in the template, and SERVICE_QUOTA knows none of a sum
                terms[identifier] = sums[0]
                continue
            terms[identifier] = self._summed(" + ".join(sums), f"s{self._curves}_{identifier}")
        math = re.sub(r"[A-Za-z_]\w*", lambda match: terms.get(match.group(), match.group()), expression)
        shown = {"expression": math, "id": f"curve{self._curves}", "label": label}
        self._metrics.append([shown | ({"yAxis": "right"} if right else {})])
        return self

    def _fetched(self, metric: NamedMetric) -> str:
        """Return the id under which this graph fetches a metric, once for all curves: templates have a bound."""
        key = (metric.namespace, metric.name, metric.dimensions, metric.statistic)
        if key not in self._ids:
            self._ids[key] = metric.id
            dimensions = [part for pair in metric.dimensions for part in pair]
            options = {"id": metric.id, "stat": metric.statistic, "visible": False}
            self._metrics.append([metric.namespace, metric.name, *dimensions, options])
        return self._ids[key]

    def _summed(self, expression: str, id: str) -> str:
        """Return the id of a sum over cells, which is named because CloudWatch bounds an expression's length."""
        if expression not in self._ids:
            self._ids[expression] = id
            self._metrics.append([{"expression": expression, "id": id, "visible": False}])
        return self._ids[expression]

    def search(self, metric: str, dimension: str, statistic: str) -> Self:
        """Add a curve for every value of a dimension.

        It serves dimensions whose values are unknown at synthesis, such as releases and intents.
        """
        self._curves += 1
        known = metrics()
        names = ",".join([known.namespace(metric), "Fleet", "Cell", dimension])
        known.metric(metric, ("Fleet", "Cell", dimension))
        found = f'{{{names}}} MetricName="{metric}" Fleet="{self._fleet}"'
        expression = f"SEARCH('{found}', '{statistic}', {self._period})"
        self._metrics.append([{"expression": expression, "id": f"curve{self._curves}", "label": ""}])
        return self

    def _right_axis(self) -> Json:
        curves = [line[0] for line in self._metrics if isinstance(line[0], dict)]
        used = any("yAxis" in each for each in [*curves, *self._lines["horizontal"]])
        return {"right": {"min": 0, "showUnits": False}} if used else {}

    def line(self, label: str, value: float, *, right: bool = False) -> Self:
        self._lines["horizontal"].append(
            {"label": label, "value": value, "color": "#d13212"} | ({"yAxis": "right"} if right else {})
        )
        return self

    def between(self, least: float, most: float) -> Self:
        """Limit the left axis to this range."""
        self._axis = {"min": least, "max": most}
        return self

    def span(self, label: str, start: str, end: str) -> Self:
        self._lines["vertical"].append([{"label": label, "value": start}, {"value": end}])
        return self

    def widget(self, x: int, y: int, width: int, height: int) -> Json:
        properties: Json = {
            "title": self._title,
            "region": self._region,
            "metrics": self._metrics,
            "period": self._period,
            "view": "singleValue" if self._number else "timeSeries",
            "yAxis": {"left": self._axis | {"showUnits": False}} | self._right_axis(),
        }
        if self._number:
            properties |= {"setPeriodToTimeRange": True}
        if lines := {kind: found for kind, found in self._lines.items() if found}:
            properties["annotations"] = lines
        return place("metric", properties, x, y, width, height)


def place(kind: str, properties: Json, x: int, y: int, width: int, height: int) -> Json:
    return {"type": kind, "x": x, "y": y, "width": width, "height": height, "properties": properties}


def rows(graphs: Sequence[Graph], y: int, height: int = HEIGHT) -> list[Json]:
    """Return the graphs in rows of three over the whole width, wide enough to be read at a glance.

    A last row of fewer shares the width among them.
    """
    widgets = []
    for first in range(0, len(graphs), IN_A_ROW):
        together = graphs[first : first + IN_A_ROW]
        width, top = WIDTH // len(together), y + first // IN_A_ROW * height
        widgets += [graph.widget(number * width, top, width, height) for number, graph in enumerate(together)]
    return widgets


def tall(graphs: Sequence[Graph]) -> int:
    return HEIGHT * math.ceil(len(graphs) / IN_A_ROW)


def shortened(body: Json) -> Json:
    """Return a dashboard's body whose graphs repeat nothing of the line above; the given one stays as it is.

    Metrics come before the expressions over them, those alike together: the reference does not say what a period
    below an expression stands for. Curves are expressions, whose order stays.
    """
    return _with_lines(body, _short)


def whole(body: Json) -> Json:
    """Return a shortened dashboard's body with every line written out."""
    return _with_lines(body, _long)


def _with_lines(body: Json, change: Callable[[list[Line]], list[Line]]) -> Json:
    def of(widget: Json) -> Json:
        if "metrics" not in widget["properties"]:
            return widget
        return widget | {"properties": widget["properties"] | {"metrics": change(widget["properties"]["metrics"])}}

    return body | {"widgets": [of(widget) for widget in body["widgets"]]}


def _is_metric(line: Line) -> bool:
    return isinstance(line[0], str)


def _alike(line: Line) -> tuple[str, ...]:
    namespace, name, *dimensions, _options = line
    return (namespace, *dimensions, name)


def _short(lines: list[Line]) -> list[Line]:
    metrics = sorted(filter(_is_metric, lines), key=_alike)
    below = [
        [SAME if above[place : place + 1] == [value] else value for place, value in enumerate(line)]
        for above, line in pairwise(metrics)
    ]
    return [*metrics[:1], *below, *(line for line in lines if not _is_metric(line))]


def _long(lines: list[Line]) -> list[Line]:
    written: list[Line] = []
    for line in lines:
        above = written[-1] if written else []
        written.append([above[place] if value == SAME else value for place, value in enumerate(line)])
    return written
