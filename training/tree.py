"""Calibrate the tree: acceptance measured on dev plans, cost measured on this machine, written with both."""

import json
import statistics
import time
from collections import Counter
from pathlib import Path

import torch

from service.planner.question import Question
from training.acceptance import Acceptance, choose_tree, plan_acceptance
from training.data.mix import dev_sets
from training.positions import sample_questions
from training.settings import TrainingSettings
from training.tuned import TunedModel

_COST_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
_COST_REPEATS = 15
_TYPICAL_PREFIX = 24  # cached positions while a plan is written


def calibrate(settings: TrainingSettings, model_dir: Path) -> None:
    """Write medusa_tree.json (choices in NxDI's list format) and tree_calibration.json (why these) to the model folder."""
    torch.set_num_threads(1)  # a replica's share
    model = TunedModel(model_dir, settings.cache)
    questions = sample_questions(dev_sets(settings.data), settings.tree.questions, settings.seed)
    acceptance, forced_share = measure_acceptance(model, questions)
    costs = measure_costs(model)
    sizes = range(1, settings.tree.max_nodes + 1)
    tree, table = choose_tree(acceptance, lambda rows: interpolate(costs, rows), sizes, forced_share)
    (model_dir / "medusa_tree.json").write_text(json.dumps(tree) + "\n", encoding="utf-8")
    report = {"questions": len(questions), "forward_ms": costs, "trees": table, "chosen_nodes": len(tree)}
    (settings.work / "tree_calibration.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"tree: {len(tree)} nodes, {1 + acceptance.accepted(tree):.2f} decided tokens a step", flush=True)


def measure_acceptance(model: TunedModel, questions: list[Question]) -> tuple[Acceptance, float]:
    """Acceptance over greedy plans, and how many forced tokens come with each decision."""
    total, forced, decisions = Acceptance(Counter(), 0), 0, 0
    if model.heads is None:
        raise ValueError("the model folder has no Medusa heads to calibrate a tree for")
    for question in questions:
        plan = model.greedy(question)
        if plan is None:
            continue
        forced, decisions = forced + plan.forced_tokens, decisions + plan.decisions
        constraint = model.constraint(question)
        total = total.add(plan_acceptance(model.heads, model.llama.lm_head, constraint, plan.tokens, plan.hidden))
    return total, forced / max(1, decisions)


def measure_costs(model: TunedModel) -> dict[int, float]:
    """Median milliseconds of a forward of n rows after a typical prefix."""
    cache = model.llama.new_cache(_TYPICAL_PREFIX + max(_COST_ROWS))
    model.llama.forward(torch.arange(_TYPICAL_PREFIX), torch.arange(_TYPICAL_PREFIX), cache)
    cache.keep(range(_TYPICAL_PREFIX))
    times: dict[int, list[float]] = {rows: [] for rows in _COST_ROWS}
    for _ in range(_COST_REPEATS):
        for rows in _COST_ROWS:
            started = time.perf_counter()
            model.llama.forward(torch.arange(rows), torch.arange(rows) + _TYPICAL_PREFIX, cache)
            times[rows].append((time.perf_counter() - started) * 1000)
    return {rows: round(statistics.median(values), 2) for rows, values in times.items()}


def interpolate(costs: dict[int, float], rows: int) -> float:
    """Milliseconds of a forward between measured sizes."""
    below = max(size for size in costs if size <= rows)
    above = min((size for size in costs if size >= rows), default=below)
    if above == below:
        return costs[below]
    return costs[below] + (costs[above] - costs[below]) * (rows - below) / (above - below)
