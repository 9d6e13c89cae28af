"""Speed of decoding strategies side by side in one run: `make bench` writes docs/figures/decoding.json and .png.

Every question is planned by every strategy before the next question, in an order that rotates, on the same weights,
dtype and threads as a replica in service. Baselines: greedy decoding under the same grammar without and with
fast-forward, and Hugging Face's `generate` on the same tuned weights (which knows no grammar). Then the
real server is measured. The figure keeps one entry for each machine and kernel, and a run replaces its own.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rehearsal.bench.breakdown import measure_breakdown
from rehearsal.bench.figure_file import write_machine
from rehearsal.bench.forwards import measure_forwards
from rehearsal.bench.machine import describe_machine, is_forced, kernel_in_use, machine_name
from rehearsal.bench.peers.hugging_face import HuggingFaceGenerate
from rehearsal.bench.plot import plot_decoding
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from rehearsal.bench.series import Series
from rehearsal.bench.serving import measure_service
from service.engines.protocol import GenerationResult
from service.engines.torch.engine import TorchModel, load
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import Strategy

FIGURE = Path("docs/figures/decoding.json")
WARM_UP = 5


def our_strategy(
    model: TorchModel, vocabulary: Vocabulary, strategy: Strategy, *, fast_forward: bool
) -> Callable[[Question], GenerationResult]:
    """Return one of our own strategies, grammar compilation included, as a replica runs it."""

    def plan(question: Question) -> GenerationResult:
        return model.generate(PlanTask(question, vocabulary).request(strategy, fast_forward=fast_forward))

    return plan


def interleave(
    strategies: dict[str, Callable[[Question], GenerationResult]], questions: Sequence[Question]
) -> dict[str, Series]:
    """Run every strategy on every question, in rotating order, so that drift of the machine affects all alike."""
    names = list(strategies)
    series = {name: Series() for name in names}
    for question in questions[:WARM_UP]:
        for name in names:
            strategies[name](question)
    for index, question in enumerate(questions):
        for name in names[index % len(names) :] + names[: index % len(names)]:
            started = time.perf_counter()
            result = strategies[name](question)
            one = series[name]
            one.milliseconds.append((time.perf_counter() - started) * 1000)
            one.forwards.append(result.forwards)
            one.decisions.append(result.decisions)
            one.forced.append(result.forced_tokens)
            one.tokens.append(tuple(result.tokens))
    return series


def compare(series: dict[str, Series]) -> dict[str, Any]:
    """Compare Medusa with each baseline: ratios of medians and of forwards, and share of identical tokens."""
    ours, greedy = series["medusa"], series["greedy with fast-forward"]
    same = [one == other for one, other in zip(ours.tokens, greedy.tokens, strict=True)]
    return {
        "identical_to_greedy": round(sum(same) / len(same), 4),
        "forwards_share_of_greedy": round(sum(ours.forwards) / sum(greedy.forwards), 3),
        "speedup_p50": {
            peer: round(statistics.median(one.milliseconds) / statistics.median(ours.milliseconds), 2)
            for peer, one in series.items()
            if peer != "medusa"
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="peakplan bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--output", type=Path, default=FIGURE)
    parser.add_argument("--json", action="store_true", help="print the figure as one line of JSON")
    arguments = parser.parse_args()
    figure, series = measured(arguments.model, arguments.questions)
    name = machine_name(figure["kernel"])
    write_machine(arguments.output, name, figure, is_plotted=not is_forced())
    plot = f"{arguments.output.stem}-{figure['kernel']}.png" if is_forced() else f"{arguments.output.stem}.png"
    plot_decoding(series, name, arguments.output.with_name(plot))
    if arguments.json:
        print(json.dumps(figure))
    else:
        print_table(figure)


def measured(folder: Path, count: int) -> tuple[dict[str, Any], dict[str, Series]]:
    """Return the figure of a model folder over so many questions, and each strategy's times."""
    settings = Settings(model_dir=folder, prefix_cache_bytes=0)  # each question is asked by every strategy
    questions = dev_questions(count) if has_dev_data() else own_questions(count)
    model = load(settings.engine_config)
    vocabulary = Vocabulary.load(settings.model_dir)
    strategies = {
        "hugging face generate": HuggingFaceGenerate(folder, settings).plan,
        "greedy": our_strategy(model, vocabulary, "autoregressive", fast_forward=False),
        "greedy with fast-forward": our_strategy(model, vocabulary, "autoregressive", fast_forward=True),
        "medusa": our_strategy(model, vocabulary, "medusa", fast_forward=True),
    }
    series = interleave(strategies, questions)
    breakdown = measure_breakdown(model, vocabulary, questions)
    precision, kernel = model.precision, kernel_in_use(model)
    del model, strategies["hugging face generate"]
    figure = {
        "command": "make bench",
        "machine": describe_machine(),
        "kernel": kernel,
        "forced": is_forced(),
        "questions": {"count": len(questions), "from": "dev rows" if has_dev_data() else "our own questions"},
        "dtype": precision,
        "threads": settings.threads_per_replica,
        "strategies": {name: one.summary() for name, one in series.items()},
        "medusa": compare(series),
        "breakdown": breakdown,
        "forward_ms": measure_forwards(folder, settings.cache_dir, settings.kernel),
        "service": measure_service(settings, questions),
    }
    return figure, series


def print_table(figure: dict[str, Any]) -> None:
    print(f"{'strategy':28} {'p50 ms':>8} {'p99 ms':>8} {'forwards':>9} {'tokens a forward':>17}")
    for name, row in figure["strategies"].items():
        print(f"{name:28} {row['p50_ms']:8} {row['p99_ms']:8} {row['forwards']:9} {row['tokens_per_forward']:17}")
    print(json.dumps({"medusa": figure["medusa"], "service": figure["service"]}, indent=1))


if __name__ == "__main__":
    main()
