"""`python -m rehearsal.load --rate 50 --seconds 30`: load a service, write a report and a JSON result.

Without --url it starts the service itself, with the settings of the environment.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop
from tqdm import tqdm

from rehearsal.bench.questions import DATA
from rehearsal.load import arrivals, mix
from rehearsal.load.client import LoadGenerator, Sample, Shot
from rehearsal.load.report import write_report
from rehearsal.load.result import summarise
from rehearsal.load.server import ServerError, serving

_MOST = 0.5
_ADVICE = (
    "Of reason deadline: the model is too slow here for --deadline-ms; the service's log says how slow.\n"
    "Of reason capacity: --rate is beyond what this machine carries. Of reason engine: see the service's log."
)


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
    write_report(options.output / "report.html", result, samples, "Peakplan under load", subtitle)
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
    print(f"{share:.1%} of the requests were planned by rule{because}")
    if share > _MOST:
        print("WARNING: most plans are not the model's. What follows says little of it.\n" + _ADVICE)
    for name in ("offered_per_second", "goodput_per_second", "source_shares", "latency_ms", "errors"):
        print(f"{name:20} {result[name]}")
    print(f"\n{output / 'report.html'}\n{output / 'result.json'}")


if __name__ == "__main__":
    sys.exit(main())
