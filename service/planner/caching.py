"""The sources of a plan: the cache, the model (once for all concurrent identical requests), or rules, by choice too.

`Planner` uses models; this decides which questions need one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from service.engines.meaning import QuestionMeaning
from service.engines.protocol import EngineError
from service.planner.plan_cache import CachedPlanText, PlanCache, SharedPlanCache
from service.planner.plan_text import PlanTextError, parse
from service.planner.planner import Planned, Planner, plan_of
from service.planner.prompt import PlanTask
from service.planner.single_flight import SingleFlight
from service.planner.spot_checks import SpotChecks
from service.planner.vocabulary import Vocabulary
from service.planner.worth.routing import Router
from service.settings.choices import Strategy


class CachingPlanner:
    """Plans questions within deadlines, whatever fails in models and caches."""

    def __init__(
        self,
        planner: Planner,
        version: Callable[[], str],
        memory: PlanCache,
        shared: SharedPlanCache | None = None,
        refusal: Callable[[float | None, int, float, str], EngineError | None] = lambda _, __, ___, ____: None,
        router: Router | None = None,
        spot_checks: SpotChecks | None = None,
    ) -> None:
        """Combine planner and caches; `version` returns the current model's, and others' cached plans are ignored.

        `refusal` returns why no replica would take a prompt of so many characters, of this worth, from this client,
        with this deadline now, if that is certain. `router` says what questions are worth, and which are for rules;
        `spot_checks` looks whether it is right.
        """
        self._planner = planner
        self._version = version
        self._memory = memory
        self._shared = shared
        self._refusal = refusal
        self._router = router or Router()
        self._spot_checks = spot_checks
        self._flights: SingleFlight[Planned] = SingleFlight()
        self.counts: Counter[str] = Counter()  # counts of hits, shared_hits, joined and misses

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the plans that are made now."""
        return self._planner.vocabulary

    def plan_at_once(self, task: PlanTask) -> Planned | None:
        """Return a plan that needs no waiting, else None: a cached one, or one by rule.

        That is where rules are chosen or no replica is free in time.

        Never fails.
        """
        try:
            return self._plan_at_once(task)
        except Exception as fault:  # a bug of ours at this question must not cost the shopper the plan
            return self._despite(fault, task)

    def _plan_at_once(self, task: PlanTask) -> Planned | None:
        if task.planners == "rules":  # an experiment's arm, which the model's cached plans would spoil
            self.counts["misses"] += 1
            return self._planner.plan_by_choice(task)
        key = task.key(self._version())
        if (remembered := self._memory.get(key)) is not None:
            return self._given(key, remembered, task, "hits")
        if self._router.is_for_rules(task):
            return self._by_choice(task)
        if self._shared is not None or self._flights.has(key):
            return None
        worth = self._router.weigh(task)
        if (refusal := self._refusal(task.deadline, len(task.prompt), worth, task.client)) is None:
            return None
        return self._by_rule(task, refusal)

    def plan_briefly(self, task: PlanTask, refusal: EngineError) -> Planned:
        """Return a plan by rule of what an ordinary question has of a long one, which nobody has the time to read.

        Never fails.
        """
        brief = PlanTask(task.question.brief, task.vocabulary, task.deadline, task.caller, task.client)
        try:
            return self._by_rule(brief, refusal)
        except Exception as fault:
            return self._despite(fault, brief)

    def _by_choice(self, task: PlanTask) -> Planned:
        planned = self._planner.plan_by_choice(task)
        self.counts["misses"] += 1
        if self._spot_checks is not None:
            self._spot_checks.offer(task, planned.plan, self._router.expects_to_differ(task))
        return planned

    async def plan(self, task: PlanTask) -> Planned:
        """Return the best plan available before the deadline. Never fails."""
        try:
            return await self._plan(task)
        except Exception as fault:
            return self._despite(fault, task)

    def _despite(self, fault: Exception, task: PlanTask) -> Planned:
        self.counts["misses"] += 1
        return self._planner.plan_despite(task, fault)

    async def _plan(self, task: PlanTask) -> Planned:
        key = task.key(self._version())
        if (known := await self._recall(key, task)) is not None:
            return known
        try:
            planned, shared = await self._flights.share(key, task.deadline, lambda: self._ask_model(key, task))
            if not shared:
                self.counts["misses"] += 1
                return planned
            joined = _cached_plan(_memorable(planned), task)
            self.counts["joined"] += 1
            return joined
        except (EngineError, PlanTextError) as error:
            return self._by_rule(task, error)

    def _by_rule(self, task: PlanTask, error: EngineError | PlanTextError) -> Planned:
        planned = self._planner.plan_by_rule(task, error)
        self.counts["misses"] += 1
        return planned

    async def unwanted(self, worker: asyncio.Task[Any]) -> None:
        """Return once nobody else waits for the plan that this task makes; do not cancel the task before."""
        await self._flights.unwanted(worker)

    async def _recall(self, key: str, task: PlanTask) -> Planned | None:
        if (remembered := self._memory.get(key)) is not None:
            return self._given(key, remembered, task, "hits")
        if self._shared is not None and (remembered := await self._shared.get(key)) is not None:
            return self._given(key, remembered, task, "shared_hits")
        return None

    def _given(self, key: str, remembered: CachedPlanText, task: PlanTask, level: str) -> Planned | None:
        """Return the cached plan; None, and drop the entry, where it is invalid for this question."""
        try:
            if level == "shared_hits":  # where anybody may have written
                remembered = replace(remembered, model_id=self._planner.model_id)
                check_foreign(remembered, task)
            planned = _cached_plan(remembered, task)
        except ValueError:  # a PlanTextError is one
            self._memory.forget(key)
            return None
        if level == "shared_hits":
            self._memory.put(key, remembered)
        self.counts[level] += 1
        return planned

    async def _ask_model(self, key: str, task: PlanTask) -> Planned:
        self._router.weigh(task)
        planned = await self._planner.plan_with_model(task)
        assert planned.result is not None
        if planned.result.model_version != self._version():  # during a reload, the answer may come from another model
            key = task.key(planned.result.model_version)
        self._memory.put(key, _memorable(planned))
        if self._shared is not None:
            self._shared.put(key, _memorable(planned))
        return planned


def check_foreign(remembered: CachedPlanText, task: PlanTask) -> None:
    """Raise PlanTextError for an entry that no model can have written for this question.

    Its text must be one that the question's grammar admits. All else of a plan follows from the text and the question.
    """
    if remembered.strategy not in get_args(Strategy) or not _admits(task.grammar, remembered.text):
        raise PlanTextError("a text that the question's grammar does not admit")


def _admits(grammar: str, text: str) -> bool:
    """Tell whether a grammar admits a text, byte by byte: no tokenizer is needed (1.5 ms)."""
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer  # only where there is a shared cache

    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
    spelling = list(text.encode("utf-8", "replace"))
    return matcher.try_consume_tokens(spelling) == len(spelling) and matcher.is_accepting()


def _memorable(planned: Planned) -> CachedPlanText:
    assert planned.result is not None
    return CachedPlanText(planned.result.text, planned.model_id, planned.strategy, planned.result.meaning)


def _cached_plan(remembered: CachedPlanText, task: PlanTask) -> Planned:
    """Build a cached plan. Raises ValueError (PlanTextError) when it is not valid for this question."""
    meaning = QuestionMeaning.unpacked(remembered.meaning)
    plan = plan_of(parse(remembered.text, task.question, task.vocabulary), task, meaning)
    return Planned(plan=plan, source="cache", model_id=remembered.model_id, strategy=remembered.strategy)
