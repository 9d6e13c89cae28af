"""Calibrate what is drafted, by tree, prefill head and tagger: acceptance on dev plans, cost on this machine."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from service.decoding.statistics import Generation
from service.decoding.tree import MedusaTree
from service.planner.question import Question
from training.acceptance import Acceptance, plan_acceptance
from training.positions import sample_questions
from training.settings import TrainingSettings, TreeSettings
from training.tuned import TunedModel

_ABOUT_AS_FAST = 1.02
_MOST_DEPTH = 16  # more than any number of heads for which a tree is grown


def calibrate(settings: TrainingSettings, model_dir: Path) -> None:
    """Write medusa_tree.json (NxDI's list format) and drafting.json, and the reasons into the work folder.

    Prefill head and tagger, where the model has one, get their fastest `p_min`, each beside the others as it is served.
    """
    torch.set_num_threads(1)  # as a replica has
    model = TunedModel(model_dir, settings.cache)
    if model.prefill_head is None:
        raise ValueError("the model folder has no prefill head to calibrate")
    questions = sample_questions(settings.open_source().dev(), settings.tree.questions, settings.seed)
    measured = questions[:: settings.tree.measured_share]
    acceptance, plans = observe(model, questions)
    table = measure_shapes(model, shapes(acceptance, settings.tree), measured)
    chosen = choose(table)
    tree = acceptance.best_tree(chosen.shape.nodes)
    shape = MedusaTree.from_choices(tree, _MOST_DEPTH, chosen.shape.p_min)
    report: dict[str, Any] = {
        "questions": plans,
        "shapes": [{**asdict(row.shape), "milliseconds": row.milliseconds, "forwards": row.forwards} for row in table],
        "tree": tree,
        "p_min": chosen.shape.p_min,
        "prefill_draft": [],
    }
    report |= _calibrate_guesses(model, model_dir, shape, settings, measured)
    drafting = {name: report[name] for name in ("prefill_draft", "p_min")}
    (model_dir / "medusa_tree.json").write_text(json.dumps(tree) + "\n", encoding="utf-8")
    (model_dir / "drafting.json").write_text(json.dumps(drafting) + "\n", encoding="utf-8")
    (settings.work / "tree_calibration.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(
        f"tree: {chosen.shape}, {chosen.forwards} forwards and {chosen.milliseconds} ms a plan; {drafting}", flush=True
    )


def _calibrate_guesses(
    model: TunedModel, model_dir: Path, tree: MedusaTree, settings: TrainingSettings, questions: list[Question]
) -> dict[str, Any]:
    """Choose the `p_min` of the prefill head, then of the tagger beside it; return them and the times."""
    times = measure_prefill_head(model, tree, settings.prefill_head.p_mins, questions)
    found = _fastest(model_dir, "prefill_head", times)
    if model.prompt_tagger is None:
        return found
    times = measure_tagger(model, tree, found["prefill_head_p_min"], settings.prompt_tagger.p_mins, questions)
    return found | _fastest(model_dir, "prompt_tagger", times)


def _fastest(model_dir: Path, part: str, milliseconds: dict[float, float]) -> dict[str, Any]:
    """Write the fastest `p_min` into a part's card; return it and the times."""
    path = model_dir / f"{part}.json"
    card = json.loads(path.read_text(encoding="utf-8"))
    card["p_min"] = min(milliseconds, key=milliseconds.__getitem__)
    path.write_text(json.dumps(card) + "\n", encoding="utf-8")
    return {f"{part}_ms": milliseconds, f"{part}_p_min": card["p_min"]}


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
                generation = model.medusa(question, tree, tagger=model.prompt_tagger)
                best[shape] = min(best[shape], time.perf_counter() - started)
                forwards[shape] += generation.statistics.forwards
        for shape, fastest in best.items():
            seconds[shape] += fastest
    count = len(questions)
    return [
        Measured(shape, round(seconds[shape] / count * 1000, 2), round(forwards[shape] / 2 / count, 3))
        for shape in trees
    ]


def measure_prefill_head(
    model: TunedModel, tree: MedusaTree, least: Sequence[float], questions: list[Question]
) -> dict[float, float]:
    """Return the mean milliseconds of a plan for each `p_min` of the prefill head."""

    def plan(question: Question, probability: float) -> Generation:
        return model.medusa(question, tree, model.prefill_draft(question, probability), model.prompt_tagger)

    return _milliseconds(plan, least, questions)


def measure_tagger(
    model: TunedModel, tree: MedusaTree, prefill: float, least: Sequence[float], questions: list[Question]
) -> dict[float, float]:
    """Return the mean milliseconds of a plan for each `p_min` of the tagger; `prefill` is the prefill head's."""
    tagger = model.prompt_tagger
    if tagger is None:
        raise ValueError("the model folder has no prompt tagger to calibrate")

    def plan(question: Question, probability: float) -> Generation:
        return model.medusa(question, tree, model.prefill_draft(question, prefill), tagger.at_least(probability))

    return _milliseconds(plan, least, questions)


def _milliseconds(
    plan: Callable[[Question, float], Generation], least: Sequence[float], questions: list[Question]
) -> dict[float, float]:
    """Time each question with every probability, in turns; keep the faster of two."""
    seconds = dict.fromkeys(least, 0.0)
    for question in questions:
        best = dict.fromkeys(least, math.inf)
        for _ in range(2):
            for probability in least:
                started = time.perf_counter()
                plan(question, probability)
                best[probability] = min(best[probability], time.perf_counter() - started)
        for probability, fastest in best.items():
            seconds[probability] += fastest
    return {probability: round(spent / len(questions) * 1000, 2) for probability, spent in seconds.items()}


def observe(model: TunedModel, questions: list[Question]) -> tuple[Acceptance, int]:
    """Plan the questions greedily; return the heads' acceptance and the number of plans."""
    if model.heads is None:
        raise ValueError("the model folder has no Medusa heads to calibrate a tree for")
    plans = [plan for question in questions if (plan := model.greedy(question)) is not None]
    acceptance = Acceptance(Counter(), 0)
    for plan in plans:
        acceptance = acceptance.add(plan_acceptance(model.heads, model.llama.lm_head, plan))
    return acceptance, len(plans)
