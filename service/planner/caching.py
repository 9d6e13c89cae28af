"""The rungs of a plan: remembered, made by the model (once for all who ask at the same time), made by rule.

`Planner` knows models; this knows what need not be asked of one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from service.engines.protocol import EngineError
from service.planner.flight import SingleFlight
from service.planner.plan_cache import CachedPlanText, PlanCache, SharedPlanCache
from service.planner.plan_text import PlanTextError
from service.planner.planner import Planned, Planner, plan_from_text
from service.planner.prompt import PlanTask
from service.planner.question import Question


class CachingPlanner:
    """Plans questions within deadlines, whatever happens to models and caches."""

    def __init__(
        self,
        planner: Planner,
        version: Callable[[], str],
        memory: PlanCache,
        shared: SharedPlanCache | None = None,
        refusal: Callable[[float | None, int], EngineError | None] = lambda _, __: None,
    ) -> None:
        """`version` names the model that answers now: what another one wrote is not remembered.

        `refusal` says why no replica would take a prompt with this deadline and so many characters now, if that is
        certain.
        """
        self._planner = planner
        self._version = version
        self._memory = memory
        self._shared = shared
        self._refusal = refusal
        self._flights: SingleFlight[Planned] = SingleFlight()
        self.counts: Counter[str] = Counter()  # hits, shared_hits, joined, misses

    def plan_at_once(self, task: PlanTask) -> Planned | None:
        """A plan that needs no waiting: one remembered here, or one by rule where no model can be had; None else."""
        key = task.key(self._version())
        if (remembered := self._memory.get(key)) is not None:
            return self._given(key, remembered, task, "hits")
        if self._shared is not None or self._flights.has(key):
            return None
        if (refusal := self._refusal(task.deadline, len(task.prompt))) is None:
            return None
        self.counts["misses"] += 1
        return self._planner.plan_by_rule(task.question, refusal)

    async def plan(self, task: PlanTask) -> Planned:
        """The best plan that comes before the deadline. Never fails."""
        key = task.key(self._version())
        if (known := await self._recall(key, task)) is not None:
            return known
        try:
            planned, shared = await self._flights.share(key, task.deadline, lambda: self._ask_model(key, task))
            if not shared:
                self.counts["misses"] += 1
                return planned
            self.counts["joined"] += 1
            return _cached_plan(_memorable(planned), task.question)
        except (EngineError, PlanTextError) as error:
            self.counts["misses"] += 1
            return self._planner.plan_by_rule(task.question, error)

    async def unwanted(self, worker: asyncio.Task[Any]) -> None:
        """Return once nobody else waits for the plan that this task makes: before, better do not cancel it."""
        await self._flights.unwanted(worker)

    async def _recall(self, key: str, task: PlanTask) -> Planned | None:
        if (remembered := self._memory.get(key)) is not None:
            return self._given(key, remembered, task, "hits")
        if self._shared is not None and (remembered := await self._shared.get(key)) is not None:
            return self._given(key, remembered, task, "shared_hits")
        return None

    def _given(self, key: str, remembered: CachedPlanText, task: PlanTask, level: str) -> Planned | None:
        """The plan that is remembered; None, and forgotten, where it is none for this question."""
        try:
            planned = _cached_plan(remembered, task.question)
        except PlanTextError:  # of a shared cache anybody may have written to
            self._memory.forget(key)
            return None
        if level == "shared_hits":
            self._memory.put(key, remembered)
        self.counts[level] += 1
        return planned

    async def _ask_model(self, key: str, task: PlanTask) -> Planned:
        planned = await self._planner.plan_with_model(task)
        assert planned.result is not None
        if planned.result.model_version != self._version():  # a reload is under way: it is another model's answer
            key = task.key(planned.result.model_version)
        self._memory.put(key, _memorable(planned))
        if self._shared is not None:
            self._shared.put(key, _memorable(planned))
        return planned


def _memorable(planned: Planned) -> CachedPlanText:
    assert planned.result is not None
    return CachedPlanText(planned.result.text, planned.model_id, planned.strategy)


def _cached_plan(remembered: CachedPlanText, question: Question) -> Planned:
    """Raises PlanTextError when the text is none for this question."""
    plan = plan_from_text(remembered.text, question)
    return Planned(plan=plan, source="cache", model_id=remembered.model_id, strategy=remembered.strategy)
