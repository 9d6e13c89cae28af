"""`python -m rehearsal.load --rate 50 --seconds 30`: load a service, write a report and a JSON result.

Without --url it starts the service itself, with the settings of the environment.
"""

import argparse
import base64
import contextlib
import html
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import uvloop
from matplotlib import pyplot
from matplotlib.axes import Axes
from tqdm import tqdm

from rehearsal.bench.questions import DATA
from rehearsal.client import LoadGenerator, Sample, Shot
from rehearsal.load import arrivals, mix
from rehearsal.load.result import Shown, by_second, shown, summarise
from rehearsal.server import ServerError, serving

_MOST = 0.5
_ADVICE = (
    "Of reason deadline: the model is too slow here for --deadline-ms; the service's log says how slow.\n"
    "Of reason capacity: --rate is beyond what this machine carries. Of reason engine: see the service's log."
)

_COLOURS = {
    "cache": "#2f9e44",
    "model": "#1971c2",
    "fallback": "#f08c00",
    "shed": "#c92a2a",
    "failed": "#212529",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Peakplan under load</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#212529}}
table{{border-collapse:collapse}}td,th{{padding:.2rem 1rem .2rem 0;text-align:left;border-bottom:1px solid #dee2e6}}
td{{font-variant-numeric:tabular-nums}}img{{max-width:100%}}</style>
<h1>Peakplan under load</h1><p>{subtitle}</p><table>{rows}</table>{plots}
<p>Latency counts from the time a request was meant to be sent. Good: a plan by the model, fresh or remembered, within
its deadline.</p></html>"""
_ALT = ("Latency of each request over time", "Requests a second by what answered them", "Good plans a second")


def main() -> int:
    """Run; return 0 when the load ran, whatever its result; 1, with a line on standard error, when it could not."""
    options = _options()
    try:
        with _target(options.url) as url:
            shots = make_shots(options)
            samples = run(url, shots, token=options.token)
    except (ServerError, arrivals.CurveError) as error:
        print(f"no load: {error}", file=sys.stderr)
        return 1
    if all(sample.error for sample in samples):
        print(f"no load: nobody answers at {url} ({samples[0].error}). Is the service up?", file=sys.stderr)
        return 1
    result = summarise(samples, options.seconds) | {"settings": _settings(options)}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    arrivals.write_curve(options.output / "arrivals.csv", [sample.at for sample in samples])
    subtitle = f"{options.arrivals} arrivals, Zipf exponent {options.zipf:g}, deadline {options.deadline_ms} ms"
    write_report(options.output / "report.html", result, samples, subtitle)
    if options.json:
        print(json.dumps(result))
    else:
        _print(result, options.output)
    return 0


def run(url: str, shots: Sequence[Shot], *, token: str = "", progress: bool = True) -> list[Sample]:
    """Fire the shots and wait for every answer, with a progress bar on a terminal."""
    with tqdm(total=len(shots), unit=" answers", disable=None if progress else True) as bar:
        return uvloop.run(LoadGenerator(url, token=token).fire(shots, lambda _: bar.update()))


def make_shots(options: argparse.Namespace) -> list[Shot]:
    """Return arrivals and questions according to the options. Raises CurveError."""
    if options.arrivals == "poisson":
        times = arrivals.poisson(options.rate, options.seconds, options.seed)
    elif options.arrivals == "constant":
        times = arrivals.constant(options.rate, options.seconds)
    else:
        times = arrivals.recorded(Path(options.arrivals), options.rate, options.seconds, options.seed)
    ranked = mix.questions(options.distinct, options.data, options.seed)
    asked = mix.draw(ranked, len(times), options.zipf, options.seed)
    return [
        Shot(at, mix.body(question, options.deadline_ms), options.deadline_ms / 1000)
        for at, question in zip(times, asked, strict=True)
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.load", description=__doc__)
    parser.add_argument("--rate", type=_positive, default=20.0, help="requests a second, on average")
    parser.add_argument("--seconds", type=_positive, default=30.0)
    parser.add_argument("--arrivals", default="poisson", help="poisson, constant, or a CSV file of second,requests")
    parser.add_argument("--url", default="", help="a service that runs already")
    parser.add_argument("--token", default="", help="a bearer token for it")
    parser.add_argument("--deadline-ms", type=int, default=300)
    parser.add_argument("--zipf", type=float, default=mix.ZIPF, help="0: every question equally often")
    parser.add_argument("--distinct", type=int, default=mix.DISTINCT, help="different questions, at the most")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the dev questions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("runs/load"), help="folder for report and result")
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    return parser.parse_args()


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


@contextlib.contextmanager
def _target(url: str) -> Iterator[str]:
    if url:
        yield url
        return
    print("starting the service", file=sys.stderr)
    with serving({}) as server:
        yield server.url


def _settings(options: argparse.Namespace) -> dict[str, object]:
    names = ("rate", "seconds", "arrivals", "deadline_ms", "zipf", "distinct", "seed")
    return {name: getattr(options, name) for name in names}


def _print(result: dict[str, Any], output: Path) -> None:
    share, reasons = result["planned_by_rule_share"], result["planned_by_rule_because"]
    because = f" ({', '.join(f'{reason} {count}' for reason, count in reasons.items())})" if reasons else ""
    print(f"{share:.1%} of the requests were planned by the reader{because}")
    if share > _MOST:
        print("WARNING: most plans are not the model's. What follows says little of it.\n" + _ADVICE)
    for name in ("offered_per_second", "goodput_per_second", "source_shares", "latency_ms", "errors"):
        print(f"{name:20} {result[name]}")
    print(f"\n{output / 'report.html'}\n{output / 'result.json'}")


def write_report(path: Path, result: dict[str, Any], samples: Sequence[Sample], subtitle: str) -> None:
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
    page = _PAGE.format(subtitle=html.escape(subtitle), rows=rows, plots=images)
    path.write_text(page, encoding="utf-8")


def _rows(result: dict[str, Any]) -> list[tuple[str, object]]:
    latency, lag = result["latency_ms"], result["generator_lag_ms"]
    share, reasons = result["planned_by_rule_share"], result["planned_by_rule_because"]
    return [
        ("planned by the reader", f"{share:.1%}" + "".join(f", {name} {count}" for name, count in reasons.items())),
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


if __name__ == "__main__":
    sys.exit(main())
