"""The report of a rehearsal or a search: one HTML file that opens offline, and the same as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from infra.fleet.policies import PERIOD_SECONDS
from rehearsal.twin.cell import SOURCES, Array, Constants
from rehearsal.twin.hosts import ASSUMED
from rehearsal.twin.rehearsal import NODES, Outcome, Plan
from rehearsal.twin.scenarios import COLUMNS, Course

STYLE = Path(__file__).with_name("report.css")
_WIDTH, _HEIGHT = 1000, 120
_MOST_POINTS = 720  # a line of more cannot be told from this one on a screen


@dataclass(frozen=True)
class Report:
    """What there is to show. `frontier` are the rows of a search; the outcomes are then those of its cheapest."""

    plan: Plan
    trace: str
    seeds: int
    outcomes: Sequence[Outcome]
    left_out: dict[str, str] = field(default_factory=dict)
    frontier: Sequence[dict[str, Any]] = ()

    @property
    def holds(self) -> bool:
        """Whether every scenario held."""
        return all(outcome.holds for outcome in self.outcomes)

    @property
    def cheapest(self) -> dict[str, Any] | None:
        """The row of the cheapest fleet that holds and costs less than the shipped one."""
        return next((row for row in self.frontier if row["holds"] and row["saved"] > 0), None)

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        if self.frontier:
            return self._found
        failed = [outcome.scenario.name for outcome in self.outcomes if not outcome.holds]
        asked = f"{self.plan.peak:g} times the forecast" if self.plan.peak != 1 else "the forecast"
        hosts = f" with {self.plan.hosts} hosts a cell" if self.plan.hosts else ""
        name = f"{self.plan.settings.name}{hosts}"
        if failed:
            return f"FAIL: {name} does not carry {asked} of {self.trace} through {', '.join(failed)}"
        through = ", ".join(outcome.scenario.name for outcome in self.outcomes)
        return f"PASS: {name} carries {asked} of {self.trace} through {through}"

    @property
    def _found(self) -> str:
        asked, name = f"{self.plan.peak:g} times the forecast of {self.trace}", self.plan.settings.name
        own = next((row for row in self.frontier if row["holds"] and row["saved"] > 0 and row["own_types"]), None)
        row = own or self.cheapest
        if row is None:
            return f"FAIL: no fleet that was tried carries {asked} for less than {name} as shipped"
        return (
            f"PASS: {row['name']} carries {asked} {row['saved']:.0%} cheaper than {name} as shipped; with a zone lost "
            f"it breaks at {_times(row['breaks_at']['zone-lost'])}"
        )

    @property
    def worst(self) -> Outcome:
        """The scenario that came nearest to a limit, or went furthest beyond it."""
        return max(
            self.outcomes,
            key=lambda outcome: max(each.found / each.limit for each in outcome.worst.verdict.judgements),
        )


def write(report: Report, folder: Path) -> list[Path]:
    """Write rehearsal.html and .json into a folder, or search.html and .json; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "search" if report.frontier else "rehearsal"
    paths = [folder / f"{name}.{kind}" for kind in ("html", "json")]
    paths[0].write_text(html(report), encoding="utf-8")
    paths[1].write_text(json.dumps(as_json(report), indent=1) + "\n", encoding="utf-8")
    return paths


def assumptions(plan: Plan) -> list[tuple[str, str, str]]:
    """Return every assumption: its name, measured, stated or assumed, and what it says."""
    rows = [("service times", "measured" if plan.work.is_measured else "stated", plan.work.source)]
    values = asdict(Constants())
    rows += [(name, kind, f"{values[name]:g}: {why}") for name, (kind, why) in SOURCES.items()]
    rows += [(name, kind, why) for name, (kind, why) in ASSUMED.items()]
    trace = f"bins of {plan.curve.bin_seconds} s, scaled by their peak minute. {plan.curve.note}".strip()
    return [*rows, ("traffic", "measured", trace)]


def html(report: Report) -> str:
    """Return the report as one HTML document without any reference to other files."""
    state = "fail" if report.headline.startswith("FAIL") else "pass"
    warning = "" if report.plan.work.is_measured else _STATED
    left_out = "".join(f"<li><b>{escape(name)}</b>: {escape(why)}</li>" for name, why in report.left_out.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(report.headline)}</title><style>{STYLE.read_text(encoding="utf-8")}</style></head><body>
<h1 class="{state}">{escape(report.headline)}</h1>{warning}
<p>{report.seeds} seed{"s" * (report.seeds > 1)} at {" and ".join(map(str, NODES))} balancer nodes; one cell of
{report.plan.settings.cells}, every request simulated.</p>
{_frontier(report)}
<h2>Scenarios{" of the cheapest fleet of the file's own types" if report.frontier else ""}</h2>
{_scenarios(report)}{f"<p>Left out:</p><ul>{left_out}</ul>" if left_out else ""}
<h2>Timelines</h2>{"".join(_timeline(report, outcome) for outcome in report.outcomes)}
<h2>Alarms that would go off</h2>{_alarms(report)}
<h2>Assumptions</h2>{_table(("what", "ground", "from"), assumptions(report.plan), "stack")}
</body></html>
"""


_STATED = """<p class="warning">Service times are <b>stated</b> in the fleet file, not measured on its instances: this
verdict is as good as they are.</p>"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    """Return a table that scrolls sideways on a narrow screen (`wide`), or becomes a list of its rows (`stack`)."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr>{''.join(_cell(text, name) for text, name in zip(row, head, strict=True))}</tr>" for row in rows
    )
    return f'<div class="{kind}"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str, name: str) -> str:
    return f'<td data-name="{escape(name)}">{_word(text)}</td>'


def _word(text: str) -> str:
    words = escape(text)
    return f'<b class="{words.lower()}">{words}</b>' if words in ("PASS", "FAIL") else words


def _scenarios(report: Report) -> str:
    head = ("scenario", "verdict", "by the reader", "failed", "worst p99", "recovered after", "error budget",
            "model's budget", "from a cache", "breaks at")  # fmt: skip
    rows = []
    for outcome in report.outcomes:
        verdict = outcome.worst.verdict
        by_rule, failed, p99, _ = verdict.judgements
        rows.append((
            outcome.scenario.name,
            "PASS" if outcome.holds else "FAIL",
            f"{by_rule.found:.3f}%",
            f"{failed.found:.3f}%",
            f"{p99.found:.0f} ms",
            "not yet" if verdict.recovery_minutes is None else f"{verdict.recovery_minutes:.1f} min",
            f"{verdict.budget_spent:.1%}",
            f"{verdict.model_budget_spent:.1%}",
            hits_in_words(outcome.worst.course),
            _times(outcome.breaks_at),
        ))  # fmt: skip
    said = (
        f"PASS: by the reader at most 0.1%, failed at most 0.05%, no 10 s above {report.plan.settings.slo.p99_ms} ms, "
        "and two minutes at the end in which all is well, for every seed and number of nodes; the worst run is shown. "
        "By the reader is a share of what is asked in the simulated time; failures, and plans by the reader in a "
        "deploy that is rolled back, of a day. Budgets: what it spent of 28 days' bad answers, and of plans without "
        "the model. Breaks at: the multiple of the forecast that fails."
    )
    return f"{_table(head, rows, 'wide')}<p>{said}</p>"


def hits_in_words(course: Course) -> str:
    """Return the share of answers from a cache before the fault and after it; nothing where nobody remembers."""
    before, after = course.hits
    return f"{before:.0%}, then {after:.0%}" if before or after else ""


def _times(multiple: float | None) -> str:
    if multiple is None:
        return ""
    return "beyond 4 times" if math.isinf(multiple) else f"{multiple:.2f} times"


def _timeline(report: Report, outcome: Outcome) -> str:
    trial, name = outcome.worst, outcome.scenario.name
    marks = [] if trial.course.fault is None else [(0.0, "fault")]
    drawn = "".join(
        svg(chart, axis(trial.course), marks) for chart in charts(trial.course, report.plan.settings.slo.p99_ms)
    )
    opened = " open" if outcome is report.worst else ""
    said = "; ".join(str(judgement) for judgement in trial.verdict.judgements)
    state = "PASS" if outcome.holds else "FAIL"
    return (
        f"<details{opened}><summary>{_word(state)} {escape(name)}: {escape(outcome.scenario.words)}</summary>"
        f"<p>The worst of its runs: {trial.situation.nodes} nodes, seed {trial.situation.seed}. {escape(said)}.</p>"
        f"{drawn}</details>"
    )


def _alarms(report: Report) -> str:
    rows = [
        (
            outcome.scenario.name,
            alarm.key,
            alarm.severity.value,
            alarm.tells,
            f"{(alarm.after_fault if alarm.after_fault is not None else alarm.at) / 60:.1f} min",
        )
        for outcome in report.outcomes
        for alarm in outcome.alarms
    ]
    if not rows:
        return "<p>None.</p>"
    return _table(("scenario", "alarm", "severity", "tells", "after the fault, or the beginning"), rows, "stack")


def _frontier(report: Report) -> str:
    if not report.frontier:
        command = f"peakplan rehearse search {report.plan.settings.name}"
        return f"<p>What a cheaper fleet would cost that holds: <code>{escape(command)}</code>.</p>"
    head = ("fleet", "verdict", "$ an hour at the event", "saved", "$ an hour in an ordinary week",
            "hosts a cell, mean", "breaks at, a zone lost", "and an empty pool", "service times")  # fmt: skip
    dearest = max(row["hourly"] for row in report.frontier)
    rows = []
    for row in report.frontier:
        bar = f'<span class="bar" style="width:{100 * row["hourly"] / dearest:.0f}%"></span>'
        name = f"<b>{escape(row['name'])}</b>{bar}<small>{escape(row['change'] or row['broken'])}</small>"
        texts = (
            "PASS" if row["holds"] else "FAIL",
            f"{row['hourly']:,.0f}",
            f"{row['saved']:.0%}",
            f"{row['week_hourly']:,.0f}",
            row["hosts"],
            *(_times(row["breaks_at"].get(scenario)) for scenario in ("zone-lost", "empty-pool")),
            row["service_times"],
        )
        cells = "".join(_cell(text, each) for text, each in zip(texts, head[1:], strict=True))
        rows.append(f'<tr><td data-name="">{name}</td>{cells}</tr>')
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    return (
        f'<h2>Cost frontier</h2><div class="stack"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody>'
        f"</table></div><p>{_PRICED}</p>"
    )


_PRICED = (
    "Dollars an hour of the whole fleet, by infra/fleet/prices.json: the hosts that ran over the simulated day of the "
    "greatest event, volumes of the pool, and what goes with the event's traffic. The cheapest of the file's own types "
    "went through every scenario, the others through those that break fleets. One instance type alone is one pool of "
    "EC2 capacity. Service times measured elsewhere: on the machine of docs/figures/serving.json, not on these types."
)


def as_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON has it."""
    return {
        "verdict": "PASS" if report.holds else "FAIL",
        "headline": report.headline,
        "fleet": report.plan.settings.name,
        "trace": report.trace,
        "peak": report.plan.peak,
        "seeds": report.seeds,
        "nodes": list(NODES),
        "left_out": report.left_out,
        "scenarios": [_scenario_json(outcome) for outcome in report.outcomes],
        "frontier": [row | {"breaks_at": _finite(row["breaks_at"])} for row in report.frontier],
        "assumptions": [dict(zip(("what", "kind", "from"), row, strict=True)) for row in assumptions(report.plan)],
    }


def _finite(multiples: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isinf(multiple) else multiple for name, multiple in multiples.items()}


def _scenario_json(outcome: Outcome) -> dict[str, Any]:
    course = outcome.worst.course
    breaks = outcome.breaks_at
    return {
        "name": outcome.scenario.name,
        "holds": outcome.holds,
        "breaks_at": None if breaks is None or math.isinf(breaks) else breaks,
        "runs": [
            {
                "nodes": trial.situation.nodes,
                "seed": trial.situation.seed,
                "holds": trial.verdict.holds,
                "requests": trial.course.arrived,
                "cache_share": [round(share, 4) for share in trial.course.hits],
                **{judgement.what: round(judgement.found, 6) for judgement in trial.verdict.judgements},
                "recovery_minutes": trial.verdict.recovery_minutes,
                "budget_spent": round(trial.verdict.budget_spent, 6),
                "model_budget_spent": round(trial.verdict.model_budget_spent, 6),
            }
            for trial in outcome.trials
        ],
        "alarms": [asdict(alarm) for alarm in outcome.alarms],
        "columns": list(COLUMNS),
        "course": [[round(float(value), 3) for value in row] for row in course.values],
    }


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
                Line("by the reader", 100 * course.column("rules") / requests, 4),
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
