"""Calibrate what the heads draft beside the reader: acceptance on dev plans, cost on this machine.

For every position of the model's greedy plans we note at which rank, among the tokens that the grammar allows there,
each head saw the token that came. A node is accepted where its ranks are a prefix of those, so counting prefixes gives
every node's acceptance; the most accepted nodes form the best tree of each size (a parent is never rarer than its
child; Sequoia, Chen et al., 2024, with measured instead of assumed acceptance). The size is chosen by measuring.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from service.decoding.linear import LmHead
from service.decoding.medusa import MedusaHeads
from service.decoding.tree import MedusaTree
from service.planner.question import Question
from training.positions import sample_questions
from training.settings import TrainingSettings, TreeSettings
from training.tuned import GreedyPlan, TunedModel

_MAX_RANK = 10  # NxDI's on-device sampling keeps ten candidates a node


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How often each path of ranks was right, over `starts` positions where a step could have begun."""

    paths: Counter[tuple[int, ...]]
    starts: int

    def add(self, other: "Acceptance") -> "Acceptance":
        return Acceptance(self.paths + other.paths, self.starts + other.starts)

    def best_tree(self, nodes: int) -> list[list[int]]:
        """Return the `nodes` most accepted paths, in NxDI's list format: shorter first, then by rank."""
        chosen = sorted(self.paths, key=lambda path: (-self.paths[path], len(path), path))[:nodes]
        return [list(path) for path in sorted(chosen, key=lambda path: (len(path), path))]


def plan_acceptance(heads: MedusaHeads, lm_head: LmHead, plan: GreedyPlan) -> Acceptance:
    """Count one plan's rank paths: head i on the state that wrote token p predicts token p + 1 + i."""
    tokens, legal = plan.tokens, plan.legal
    paths: Counter[tuple[int, ...]] = Counter()
    starts = 0
    for position in range(len(tokens) - 1):
        if legal[position] is None:
            continue  # a step begins only where a decision was made
        starts += 1
        scores = heads.scores(lm_head, plan.hidden[position])
        path: tuple[int, ...] = ()
        for head, target in enumerate(range(position + 1, min(position + 1 + heads.num_heads, len(tokens)))):
            choices = legal[target]
            if choices is None:
                continue
            rank = _rank(scores.of(head, choices), choices, tokens[target])
            if rank >= _MAX_RANK:
                break
            path = (*path, rank)
            paths[path] += 1
    return Acceptance(paths, starts)


def _rank(scores: NDArray[np.float32], legal: NDArray[np.int64], token: int) -> int:
    """Return how many legal tokens score higher than the actual one."""
    return int((scores > scores[np.searchsorted(legal, token)]).sum())


_ABOUT_AS_FAST = 1.02
_MOST_DEPTH = 16  # more than any number of heads for which a tree is grown


def calibrate(settings: TrainingSettings, model_dir: Path) -> None:
    """Write medusa_tree.json (NxDI's list format) and drafting.json, and the reasons into the work folder."""
    torch.set_num_threads(1)  # as a replica has
    model = TunedModel(model_dir, settings.cache)
    questions = sample_questions(settings.open_source().dev(), settings.tree.questions, settings.seed)
    measured = questions[:: settings.tree.measured_share]
    acceptance, plans = observe(model, questions)
    table = measure_shapes(model, shapes(acceptance, settings.tree), measured)
    chosen = choose(table)
    tree = acceptance.best_tree(chosen.shape.nodes)
    report: dict[str, Any] = {
        "questions": plans,
        "shapes": [{**asdict(row.shape), "milliseconds": row.milliseconds, "forwards": row.forwards} for row in table],
        "tree": tree,
        "p_min": chosen.shape.p_min,
    }
    drafting = {"p_min": chosen.shape.p_min}
    (model_dir / "medusa_tree.json").write_text(json.dumps(tree) + "\n", encoding="utf-8")
    (model_dir / "drafting.json").write_text(json.dumps(drafting) + "\n", encoding="utf-8")
    (settings.work / "tree_calibration.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(
        f"tree: {chosen.shape}, {chosen.forwards} forwards and {chosen.milliseconds} ms a plan; {drafting}", flush=True
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """How much is drafted: the most accepted nodes, less those that the heads consider unlikely."""

    nodes: int
    p_min: float


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean milliseconds and forwards for a plan."""

    shape: Shape
    milliseconds: float
    forwards: float


def choose(table: Sequence[Measured]) -> Measured:
    """Choose the shape with the fewest forwards among those that are about as fast as the fastest.

    Where many processes share the memory a forward costs more than it does here.
    """
    fastest = min(row.milliseconds for row in table)
    return min((row for row in table if row.milliseconds <= _ABOUT_AS_FAST * fastest), key=lambda row: row.forwards)


def shapes(acceptance: Acceptance, settings: TreeSettings) -> dict[Shape, MedusaTree]:
    """Return every shape to measure."""
    return {
        Shape(nodes, least): MedusaTree.from_choices(acceptance.best_tree(nodes), _MOST_DEPTH, least)
        for nodes in settings.sizes
        for least in settings.p_mins
    }


def measure_shapes(model: TunedModel, trees: dict[Shape, MedusaTree], questions: list[Question]) -> list[Measured]:
    """Time each question in every shape, in turns, so that drift affects all alike; keep the faster of two."""
    seconds, forwards = dict.fromkeys(trees, 0.0), dict.fromkeys(trees, 0)
    for question in questions:
        best = dict.fromkeys(trees, math.inf)
        for _ in range(2):
            for shape, tree in trees.items():
                started = time.perf_counter()
                generation = model.medusa(question, tree)
                best[shape] = min(best[shape], time.perf_counter() - started)
                forwards[shape] += generation.statistics.forwards
        for shape, fastest in best.items():
            seconds[shape] += fastest
    count = len(questions)
    return [
        Measured(shape, round(seconds[shape] / count * 1000, 2), round(forwards[shape] / 2 / count, 3))
        for shape in trees
    ]


def observe(model: TunedModel, questions: list[Question]) -> tuple[Acceptance, int]:
    """Plan the questions greedily; return the heads' acceptance and the number of plans."""
    if model.heads is None:
        raise ValueError("the model folder has no Medusa heads to calibrate a tree for")
    plans = [plan for question in questions if (plan := model.greedy(question)) is not None]
    acceptance = Acceptance(Counter(), 0)
    for plan in plans:
        acceptance = acceptance.add(plan_acceptance(model.heads, model.llama.lm_head, plan))
    return acceptance, len(plans)
