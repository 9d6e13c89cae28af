"""The sources of a plan: the cache, the model (once for all concurrent identical requests), or the reader.

`Planner` uses models; this decides which questions need one. Routing never changes a plan.

The cache keeps the text that the model wrote, not the plan: a plan quotes words as *this* shopper wrote them, and the
model reads them lower-cased. The text is parsed against the question that it answers, so that no entry, whatever its
origin, can put a word into a plan that is not in the question.
"""

import asyncio
import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, get_args

from service.engines.protocol import EngineError, QuestionMeaning
from service.planner.completion import plan_from_draft
from service.planner.plan_text import PlanTextError, parse
from service.planner.planner import Planned, Planner
from service.planner.prompt import PlanTask
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary
from service.settings.choices import Routing, Strategy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CachedPlanText:
    """Text that a model wrote earlier, and what its kind head made of the question, packed; "" where it has none."""

    text: str
    model_id: str
    strategy: str
    meaning: str = ""


class SharedPlanCache(Protocol):
    """A second level shared by several processes. Neither call raises; `get` takes a few milliseconds at most."""

    async def get(self, key: str) -> CachedPlanText | None: ...

    def put(self, key: str, remembered: CachedPlanText) -> None: ...


class PlanCache:
    """A cache of at most `entries` texts, each for `seconds`."""

    def __init__(self, entries: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._entries = entries
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, CachedPlanText]] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> CachedPlanText | None:
        """Return the text for the key, unless it has expired."""
        found = self._kept.get(key)
        if found is None:
            return None
        until, remembered = found
        if until <= self._clock():
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return remembered

    def put(self, key: str, remembered: CachedPlanText) -> None:
        self._kept[key] = (self._clock() + self._seconds, remembered)
        self._kept.move_to_end(key)
        while len(self._kept) > self._entries:
            self._kept.popitem(last=False)

    def forget(self, key: str) -> None:
        self._kept.pop(key, None)


class FlightLateError(EngineError):
    """Raised when another request's work for the same question takes longer than this deadline allows."""

    reason = "deadline"


class _AbandonedError(Exception):
    """Raised when the request that did the work was cancelled."""


class _Flight(Generic[T]):
    """Work in progress in the task of its first requester, and the other requesters that wait for its outcome."""

    def __init__(self, deadline: float | None) -> None:
        self.worker = asyncio.current_task()
        self.alone = asyncio.Event()
        self.alone.set()
        self._deadline = deadline
        self._waiting: dict[asyncio.Future[T], None] = {}  # in order of arrival

    async def outcome(self, deadline: float | None) -> T:
        """Return the work's result. Raises its error, FlightLateError at the deadline, or _AbandonedError."""
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        self.alone.clear()
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - time.monotonic(), 0)):
                return await waiter
        except TimeoutError:
            raise FlightLateError("the same question, asked before, was not answered in time") from None
        finally:
            del self._waiting[waiter]
            if not self._waiting:
                self.alone.set()

    def land(self, outcome: T) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(outcome)

    def fail(self, error: Exception) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def outlasts(self, deadline: float | None) -> bool:
        """Tell whether a request with this deadline has no more time than the work had."""
        return self._deadline is None or (deadline is not None and deadline <= self._deadline)


class SingleFlight(Generic[T]):
    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    def has(self, key: str) -> bool:
        return key in self._flights

    async def share(self, key: str, deadline: float | None, work: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """Return the work's outcome, and whether it was shared. Raises the work's errors, and FlightLateError.

        A failure counts for all requests that had no more time than the work; the others try for themselves. The first
        requester works in its own task: another task would cost every plan more than sharing saves. So a caller that
        wants to leave awaits `unwanted` first. If it is cancelled anyway, the others take over the work.
        """
        while (others := self._flights.get(key)) is not None:
            try:
                return await others.outcome(deadline), True
            except _AbandonedError:
                continue
            except EngineError:
                if others.outlasts(deadline):
                    raise
                self._forget(key, others)
        own = self._flights[key] = _Flight[T](deadline)
        try:
            outcome = await work()
        except BaseException as error:
            self._forget(key, own)
            own.fail(error if isinstance(error, Exception) else _AbandonedError())
            raise
        self._forget(key, own)
        own.land(outcome)
        return outcome, False

    async def unwanted(self, worker: asyncio.Task[Any]) -> None:
        """Return once no other request waits for this task's work."""
        for flight in list(self._flights.values()):
            if flight.worker is worker:
                await flight.alone.wait()

    def _forget(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


_LATELY = 256  # worths of questions that competed for replicas


class Router:
    """Weighs questions by how sure the reader is of them (`Reading.worth`).

    Where an experiment has an arm that is routed by worth and one that is not, both compete for the same replicas, and
    what is worth nothing would lose to everything. So a question of the second arm has the worth of another that
    competed lately, drawn by chance: both arms get as many plans by the model, one for the best of its questions.
    """

    def __init__(
        self,
        routing: Routing = "off",
        is_idle: Callable[[], bool] = lambda: False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Take `is_idle`, which tells whether a replica would start a question at once: it is not weighed then."""
        self._routing = routing
        self._is_idle = is_idle
        self._draw = draw
        self._lately: deque[float] = deque(maxlen=_LATELY)

    def is_for_reader(self, task: PlanTask) -> bool:
        """Tell whether the reader plans this by choice; never without one."""
        if (task.planners or self._routing) != "always" or task.reader is None:
            return False
        is_new = task.worth is None
        is_for_reader = task.reader.takes(worth := _weighed(task))
        if is_new and not is_for_reader:
            self._lately.append(worth)
        return is_for_reader

    def weigh(self, task: PlanTask) -> float:
        """Return what the model's plan of this is worth, 0 if no request competes, and note it in the task."""
        if task.reader is None or (task.worth is None and self._is_idle()):
            return 0.0
        is_new = task.worth is None
        if (task.planners or self._routing) == "off":
            if is_new and self._lately:
                task.worth = self._lately[int(self._draw() * len(self._lately))]
            return task.worth or 0.0
        worth = _weighed(task)
        if is_new:
            self._lately.append(worth)
        return worth


def _weighed(task: PlanTask) -> float:
    """Return the worth of a task that has a reader, and note it there."""
    if task.worth is None:
        task.worth = task.reading.worth if task.reading is not None else 0.0
    return task.worth


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
        remembers: bool = True,
    ) -> None:
        """Combine planner and caches; `version` returns the current model's, and others' cached plans are ignored.

        `refusal` returns why no replica would take a prompt of so many characters, of this worth, from this client,
        with this deadline now, if that is certain. `router` says what questions are worth, and which are the reader's.
        Unless it `remembers`, it only reads the cache: a batch's questions would displace those that people ask.
        """
        self._planner = planner
        self._version = version
        self._memory = memory
        self._shared = shared
        self._refusal = refusal
        self._router = router or Router()
        self._remembers = remembers
        self._flights: SingleFlight[Planned] = SingleFlight()
        self.counts: Counter[str] = Counter()  # counts of hits, shared_hits, joined and misses

    @property
    def vocabulary(self) -> Vocabulary:
        return self._planner.vocabulary

    @property
    def reader(self) -> Reader | None:
        return self._planner.reader

    def plan_at_once(self, task: PlanTask) -> Planned | None:
        """Return a plan that needs no waiting, else None: a cached one, or the reader's.

        That is where the reader is chosen or no replica is free in time.

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
        if self._router.is_for_reader(task):
            self.counts["misses"] += 1
            return self._planner.plan_by_choice(task)
        if self._shared is not None or self._flights.has(key):
            return None
        worth = self._router.weigh(task)
        if (refusal := self._refusal(task.deadline, len(task.prompt), worth, task.client)) is None:
            return None
        return self._stand_in(task, refusal)

    def plan_briefly(self, task: PlanTask, refusal: EngineError) -> Planned:
        """Return the reader's plan of a long question, cut to an ordinary one's length.

        Never fails.
        """
        brief = PlanTask(task.question.brief, task.vocabulary, task.deadline, task.caller, task.client, task.reader)
        try:
            return self._stand_in(brief, refusal)
        except Exception as fault:
            return self._despite(fault, brief)

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
            return self._stand_in(task, error)

    def _stand_in(self, task: PlanTask, error: EngineError | PlanTextError) -> Planned:
        planned = self._planner.stand_in(task, error)
        self.counts["misses"] += 1
        return planned

    async def unwanted(self, worker: asyncio.Task[Any]) -> None:
        """Return once no other request waits for this task's plan; only then may the task be cancelled."""
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
        if self._remembers:
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
    draft = parse(remembered.text, task.question, task.vocabulary)
    plan = plan_from_draft(draft, task.question, task.vocabulary, meaning)
    return Planned(plan=plan, source="cache", model_id=remembered.model_id, strategy=remembered.strategy)
