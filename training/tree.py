"""Calibrate tree and opening: acceptance measured on dev plans, cost measured on this machine, written with both."""

import json
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from service.planner.question import Question
from training.acceptance import Acceptance, beginnings, choose_opening, choose_tree, plan_acceptance
from training.data.mix import dev_sets
from training.positions import sample_questions
from training.settings import TrainingSettings
from training.tuned import TunedModel

_COST_ROWS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)
_COST_REPEATS = 15
_TYPICAL_PREFIX = 24  # cached positions while a plan is written


def calibrate(settings: TrainingSettings, model_dir: Path) -> None:
    """Write medusa_tree.json (NxDI's list format) and opening.json; why these goes to the work folder."""
    torch.set_num_threads(1)  # a replica's share
    model = TunedModel(model_dir, settings.cache)
    questions = sample_questions(dev_sets(settings.data), settings.tree.questions, settings.seed)
    seen = observe(model, questions)
    costs = measure_costs(model)

    def cost(rows: int) -> float:
        return interpolate(costs, rows)

    tree, table = choose_tree(seen.acceptance, cost, range(1, settings.tree.max_nodes + 1), seen.forced_share)
    chosen = table[len(tree) - 1]
    opening = choose_opening(
        seen.beginnings, seen.plans, cost, seen.prompt_rows, chosen["milliseconds"] / chosen["tokens_a_step"]
    )
    texts = [model.text(tokens) for tokens in opening]
    (model_dir / "medusa_tree.json").write_text(json.dumps(tree) + "\n", encoding="utf-8")
    (model_dir / "opening.json").write_text(json.dumps(texts) + "\n", encoding="utf-8")
    report = {"questions": seen.plans, "forward_ms": costs, "trees": table, "tree": chosen, "opening": texts}
    (settings.work / "tree_calibration.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"tree: {len(tree)} nodes, {chosen['tokens_a_step']} decided tokens a step; opening {texts}", flush=True)


@dataclass(slots=True)
class Observed:
    """What greedy plans of dev questions showed."""

    acceptance: Acceptance = field(default_factory=lambda: Acceptance(Counter(), 0))
    beginnings: Counter[tuple[int, ...]] = field(default_factory=Counter)
    plans: int = 0
    forced: int = 0
    decisions: int = 0
    prompts: list[int] = field(default_factory=list)

    @property
    def forced_share(self) -> float:
        """Forced tokens that come with each decision."""
        return self.forced / max(1, self.decisions)

    @property
    def prompt_rows(self) -> int:
        return round(statistics.median(self.prompts))


def observe(model: TunedModel, questions: list[Question]) -> Observed:
    """Plan the questions greedily and note what heads and openings would have foreseen."""
    if model.heads is None:
        raise ValueError("the model folder has no Medusa heads to calibrate a tree for")
    seen = Observed()
    for question in questions:
        plan = model.greedy(question)
        if plan is None:
            continue
        seen.plans += 1
        seen.forced += plan.forced_tokens
        seen.decisions += plan.decisions
        seen.prompts.append(plan.prompt_tokens)
        seen.beginnings.update(beginnings(plan))
        seen.acceptance = seen.acceptance.add(plan_acceptance(model.heads, model.llama.lm_head, plan))
    return seen


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
