"""Where a plan's time goes, by strategy: reading the prompt, the forwards after it, drafting, and the rest."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.torch.engine import TorchModel
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings.choices import Strategy

QUESTIONS = 100


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
