"""What routing `always` saves: core milliseconds a plan of the dev questions, with routing off and always, interleaved.

`python -m rehearsal.bench.routing` writes docs/figures/routing.json, with what questions are worth by their length:
`rehearsal/twin` draws from it. Model and reader run in one thread here, whose CPU time is counted: what happens
on the machine's other cores costs nothing, and each question counts with the best of its rounds.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rehearsal.bench.machine import describe_machine, write_figure
from rehearsal.bench.questions import dev_questions, has_dev_data, own_questions
from rehearsal.bench.tables import render
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch_engine import TorchModel, load
from service.planner.caching import CachingPlanner, PlanCache, Router
from service.planner.planner import Planner
from service.planner.prompt import render_prompt
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import Routing

FIGURE = Path("docs/figures/routing.json")
ROUTINGS: tuple[Routing, ...] = ("off", "always")
_BANDS = 4  # of question lengths, each with as many questions, as in docs/figures/serving.json
_QUANTILES = 50


class Here:
    """The model in this thread, as an engine."""

    def __init__(self, model: TorchModel, model_id: str) -> None:
        self._model = model
        self.model_id = model_id

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        return self._model.generate(request)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="a model folder; the one that ships unless given")
    parser.add_argument("--output", type=Path, default=FIGURE)
    given = parser.parse_args()
    settings = Settings(prefix_cache_bytes=0, **({"model_dir": given.model} if given.model else {}))  # asked in rounds
    asked = dev_questions(given.questions) if has_dev_data() else own_questions(given.questions)
    figure = measure(settings, asked, given.rounds)
    write_figure(given.output, figure)
    print(render("routing", figure))


def measure(settings: Settings, asked: Sequence[Question], rounds: int) -> dict[str, Any]:
    """Return core milliseconds a plan by routing, and the worth of questions by band of lengths."""
    model, vocabulary = load(settings.engine_config), Vocabulary.load(settings.model_dir)
    reader = Reader.load(settings.model_dir)
    planner = Planner(Here(model, settings.model_dir.name), vocabulary, settings.strategy, reader)
    best = {routing: [float("inf")] * len(asked) for routing in ROUTINGS}
    chosen = [False] * len(asked)
    for _ in range(rounds):
        for index, question in enumerate(asked):
            for routing in ROUTINGS if index % 2 else reversed(ROUTINGS):
                seconds, source = asyncio.run(_planned(planner, Router(routing), question))
                best[routing][index] = min(best[routing][index], seconds)
                chosen[index] = chosen[index] or source == "rules"
    means = {routing: 1000 * statistics.fmean(best[routing]) for routing in ROUTINGS}
    return {
        "command": "python -m rehearsal.bench.routing",
        "machine": describe_machine(),
        "questions": len(asked),
        "rounds": rounds,
        "core_ms": {routing: round(mean, 3) for routing, mean in means.items()},
        "share_of_off": round(means["always"] / means["off"], 4),
        "planned_by_reader": round(sum(chosen) / len(chosen), 4),
        "reader_core_ms": round(1000 * statistics.fmean(_of(best["always"], chosen) or [0.0]), 3),
        "worths": _worths(asked, reader, vocabulary),
    }


async def _planned(planner: Planner, router: Router, question: Question) -> tuple[float, str]:
    """Plan a question anew; return the thread's seconds, and who planned."""
    caching = CachingPlanner(planner, lambda: "", PlanCache(0, 1.0), router=router)
    started = time.thread_time()
    task = planner.task(question)
    planned = caching.plan_at_once(task) or await caching.plan(task)
    return time.thread_time() - started, planned.source


def _of(values: Sequence[float], chosen: Sequence[bool]) -> list[float]:
    return [value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen]


def _worths(asked: Sequence[Question], reader: Reader, vocabulary: Vocabulary) -> list[list[float]]:
    """Return evenly spaced quantiles of worth for each band of lengths, the shortest questions first."""
    ordered = sorted(asked, key=lambda question: len(render_prompt(question)))
    edges = [round(band * len(ordered) / _BANDS) for band in range(_BANDS + 1)]
    bands = []
    for begin, end in pairwise(edges):
        worths = sorted(reader.read(each, vocabulary).worth for each in ordered[begin:end])
        bands.append([round(worths[int((place + 0.5) / _QUANTILES * len(worths))], 4) for place in range(_QUANTILES)])
    return bands


if __name__ == "__main__":
    main()
