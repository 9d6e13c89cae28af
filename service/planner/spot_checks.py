"""Spot checks of the choice between rules and model: a few questions that rules planned are planned by the model too.

Nobody waits for such a plan and nobody gets it: only whether it differs is counted, beside what the scorer expects.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from service.engines.protocol import EngineError
from service.planner.plan import Plan
from service.planner.plan_text import PlanTextError
from service.planner.planner import Planner
from service.planner.prompt import PlanTask
from service.planner.worth.differing import differ

_SECONDS = 2.0  # for one plan


@dataclass(slots=True)
class SpotCheckCounts:
    """Questions planned both ways: how many, how many plans differ, and how many were expected to."""

    checked: int = 0
    differing: int = 0
    expected: float = 0.0


class SpotChecks:
    """Checks a share of the questions that rules plan by choice, one at a time."""

    def __init__(
        self,
        planner: Planner,
        share: float,
        is_welcome: Callable[[], bool] = lambda: True,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Take a planner over idle replicas, and `is_welcome`, which is false while the service drains."""
        self._planner = planner
        self._share = share
        self._is_welcome = is_welcome
        self._draw = draw
        self._running: asyncio.Task[None] | None = None
        self.counts = SpotCheckCounts()

    def offer(self, task: PlanTask, by_rule: Plan, expected: float) -> None:
        """Check this plan by rule if it is drawn; `expected` is how likely the scorer thinks the model's to differ."""
        if self._draw() >= self._share or self._running is not None or not self._is_welcome():
            return
        again = PlanTask(task.question, task.vocabulary, time.monotonic() + _SECONDS)
        self._running = asyncio.create_task(self._check(again, by_rule, expected))

    async def _check(self, task: PlanTask, by_rule: Plan, expected: float) -> None:
        try:
            planned = await self._planner.plan_with_model(task)
            self.counts.checked += 1
            self.counts.differing += differ(by_rule, planned.plan)
            self.counts.expected += expected
        except (EngineError, PlanTextError):  # no replica is idle any more, or the model has no plan: nothing is known
            pass
        finally:
            self._running = None
