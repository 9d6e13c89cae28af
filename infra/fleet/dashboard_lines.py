"""The short way to write a graph's metrics, which a dashboard's body knows.

A period stands for the value in its place one line above (CloudWatch API reference, Dashboard body structure and
syntax, metrics array). Templates have a bound, and most of a fleet's alarms and boards are the names of metrics.
"""

from itertools import pairwise
from typing import Any

SAME = "."
Body = dict[str, Any]
Line = list[Any]  # a metric: namespace, name, dimensions, options; or an expression's options alone


def shortened(body: Body) -> Body:
    """Return a dashboard's body whose graphs repeat nothing of the line above; the given one stays as it is.

    Metrics come before the expressions over them, those alike together: the reference does not say what a period
    below an expression stands for. Curves are expressions, whose order stays.
    """

    def of(widget: Body) -> Body:
        if "metrics" not in widget["properties"]:
            return widget
        return widget | {"properties": widget["properties"] | {"metrics": _short(widget["properties"]["metrics"])}}

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
