"""A live load as the twin replays it: the same questions at the same moments, for the same times, worth the same.

Requests that the twin drew by itself would differ by chance: by 0.8 points of plans by rule in a surge (the standard
deviation over ten seeds), about what it may be off.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from rehearsal.stack.folder import CELLS
from rehearsal.stack.live import DEADLINE, TIMES, WARM_UP, Load, questions, warm_up_load
from rehearsal.stack.recorded_model import RecordedTimes
from rehearsal.stack.scenarios import ENDS, FAULT, Scenario
from service.api.routes import REPLY_SECONDS
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.planner.worth.scorer import Scorer
from service.settings.choices import SHIPPED_MODEL

BOOT_SECONDS = 10.0  # from a host's start until it is healthy: stated


def replayed(scenario: Scenario, load: Load, *, occupied: float, overhead: float) -> list[np.ndarray]:
    """Return each cell's requests as `Load.replay` of rehearsal/twin/cell.py has them, the warm-up's first: [A, 6].

    `occupied` are the seconds that handing a request over keeps a replica beyond its own time, `overhead` those that
    balancer and gateway take of its deadline. Envoy draws each request's cell, and so does this.
    """
    rows = np.vstack([_rows(warm_up_load(load.rates[0], load.sets), 0.0), _rows(load, WARM_UP)])
    rows[:, 1] += occupied
    rows[:, 3] -= overhead
    cells = np.random.default_rng(1).integers(len(CELLS), size=len(rows))
    if scenario.name == "cell-lost":
        since = rows[:, 0] - WARM_UP
        cells[(since >= FAULT) & (since < ENDS + BOOT_SECONDS)] = 1
    return [rows[cells == cell] for cell in range(len(CELLS))]


def _rows(load: Load, begins: float) -> np.ndarray:
    ranks = {question: rank for rank, question in enumerate(questions(load.sets))}
    rows = np.zeros((len(load.shots), 6))
    for row, shot, question in zip(rows, load.shots, load.questions, strict=True):
        seconds, length, worth = _asked(question)
        row[:] = begins + shot.at, seconds, length, DEADLINE - REPLY_SECONDS, worth, ranks[question]
    return rows


@cache
def _asked(question: str) -> tuple[float, float, float]:
    """Return a question's service seconds, the characters of its prompt and what the model's plan of it is worth."""
    task = PlanTask(Question.parse(question), shipped_vocabulary())
    scorer = Scorer.load(SHIPPED_MODEL)
    worth = scorer.of(task.conversation, task.vocabulary) if scorer else 0.0
    return _recorded().seconds(task.prompt), len(task.prompt), worth


@cache
def _recorded() -> RecordedTimes:
    return RecordedTimes.read(times=TIMES)
