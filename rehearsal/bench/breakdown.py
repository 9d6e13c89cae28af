"""Where a plan's time goes, by strategy: reading the prompt, the forwards after it, drafting, and the rest.

`python -m rehearsal.bench.breakdown` writes into docs/figures/turns.json what the prefix cache
saves a conversation's turns.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rehearsal.bench.conversations import ROWS, read
from rehearsal.bench.figure_file import write_machine
from rehearsal.bench.machine import describe_machine, kernel_in_use, machine_name
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch.engine import TorchModel
from service.engines.torch.forward import build_forward, kept_dtype
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings import Settings
from service.settings.choices import Strategy
from service.weights.model_folder import load_model

QUESTIONS = 100
EARLIER = (0, 1, 4)  # messages before the turn that is told
TURNS = Path("docs/figures/turns.json")


def measure_breakdown(
    model: TorchModel, vocabulary: Vocabulary, questions: Sequence[Question]
) -> dict[str, dict[str, float]]:
    """Measure milliseconds for a plan and rows for a forward, of greedy (fast-forward) and Medusa decoding in turns."""
    strategies: dict[str, Strategy] = {"greedy with fast-forward": "autoregressive", "medusa": "medusa"}
    parts: dict[str, list[dict[str, float]]] = {name: [] for name in strategies}
    for question in questions[:QUESTIONS]:
        for name, strategy in strategies.items():
            if strategy in model.strategies:
                parts[name].append(_parts(model, PlanTask(question, vocabulary).request(strategy)))
    return {name: _means(each) for name, each in parts.items() if each}


def _parts(model: TorchModel, request: GenerationRequest) -> dict[str, float]:
    """Return the parts of one plan's time. Tracing takes time itself, so the total is that of a run without it."""
    started = time.perf_counter()
    model.generate(request)
    whole = (time.perf_counter() - started) * 1000
    traced: GenerationResult = model.generate(replace(request, trace=True))
    first, *later = traced.steps
    steps = sum(step.milliseconds for step in traced.steps)
    draft = sum(step.draft_milliseconds for step in traced.steps)
    forwards = sum(step.forward_milliseconds for step in later)
    return {
        "whole_ms": whole,
        "prompt_forward_ms": first.forward_milliseconds,
        "other_forwards_ms": forwards,
        "drafting_ms": draft,
        "verifying_ms": steps - draft - forwards - first.forward_milliseconds,
        "grammar_and_rest_ms": whole - steps,
        "prompt_rows": float(traced.prompt_tokens + len(first.nodes)),
        "other_forwards": float(len(later)),
        "other_rows": float(sum(len(step.nodes) for step in later)),
    }


def _means(parts: Sequence[dict[str, float]]) -> dict[str, Any]:
    means = {name: statistics.fmean(each[name] for each in parts) for name in parts[0]}
    rows = means.pop("other_rows") / max(means["other_forwards"], 1e-9)
    return {name: round(value, 2) for name, value in means.items()} | {"rows_an_other_forward": round(rows, 2)}


def measure_turns(models: dict[str, TorchModel], vocabulary: Vocabulary, talks: Sequence[Sequence[str]]) -> list[Any]:
    """Return for each number of earlier messages the processor's milliseconds of a turn by model, at the median.

    Every turn of a conversation is planned by each model before the next turn. Raises ValueError where tokens differ.
    """
    rows: dict[int, list[dict[str, float]]] = {earlier: [] for earlier in EARLIER}
    for number, talk in enumerate(talks):
        for earlier in range(max(EARLIER) + 1):
            request = PlanTask(Question.parse(talk[earlier], talk[:earlier]), vocabulary).request("medusa")
            row, tokens = dict[str, float](), set[tuple[int, ...]]()
            for name in list(models)[:: 1 if (number + earlier) % 2 else -1]:
                started = time.thread_time()
                result = models[name].generate(request)
                row[name] = 1000 * (time.thread_time() - started)
                tokens.add(tuple(result.tokens))
                row["cached_tokens"] = max(row.get("cached_tokens", 0), result.cached_tokens)
                row["prompt_tokens"] = result.prompt_tokens
            if len(tokens) > 1:
                raise ValueError(f"plans differ after {earlier} messages of conversation {number}")
            if earlier in rows:
                rows[earlier].append(row)
    return [
        {"earlier": earlier, **{key: round(statistics.median(row[key] for row in each), 1) for key in sorted(each[0])}}
        for earlier, each in rows.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=60)
    arguments = parser.parse_args()
    settings = Settings()
    torch.set_num_threads(1)
    loaded = load_model(settings.model_dir, settings.cache_dir, kept_dtype(settings.dtype))
    forward = build_forward(loaded, settings.dtype, settings.cache_dir, settings.kernel)
    models = {
        name: TorchModel(loaded, forward, settings.max_prompt_tokens, prefix_cache_bytes=room)
        for name, room in (("with", settings.prefix_cache_bytes), ("without", 0))
    }
    talks = [[turn.say for turn in talk.turns] for talk in read(ROWS / "t1.txt")]
    talks = [talk for talk in talks if len(talk) > max(EARLIER)][: arguments.conversations]
    vocabulary = Vocabulary.load(settings.model_dir)
    measure_turns(models, vocabulary, talks[:1])  # what is made once is made
    for model in models.values():
        if model.prefixes is not None:
            model.prefixes.clear()
    turns = measure_turns(models, vocabulary, talks)
    kernel = kernel_in_use(models["with"])
    figure = {
        "command": "python -m rehearsal.bench.breakdown",
        "machine": describe_machine(),
        "conversations": len(talks),
        "bytes": settings.prefix_cache_bytes,
        "turns": turns,
    }
    write_machine(TURNS, machine_name(kernel), figure)
    print(json.dumps(turns, indent=1))


if __name__ == "__main__":
    main()
