"""The pool of replicas: a request gets an idle one, waits for one, or is refused at once if none will be free in time.

A pool is itself an `Engine`. It knows requests and deadlines, not plans.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from service.engines.protocol import (
    Engine,
    EngineError,
    EngineUnavailableError,
    GenerationRequest,
    GenerationResult,
)
from service.gateway.admission import Admission
from service.gateway.dispatcher import Dispatcher
from service.gateway.idle_replicas import BatchReplicas, IdleReplicas
from service.gateway.request_queue import CapacityError
from service.gateway.slot import GaveWayError, GenerationTask, Slot
from service.settings.choices import ADMISSION_QUANTILE, HANG_SECONDS, Order

__all__ = ["CapacityError", "ReplicaPool"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

_HANG_FACTOR = 8  # times nearly all generations' duration; a busy machine slows all of them
_HANG_KNOWN = 20  # generations before which only a cancellation without an answer counts as a hang
_WARM_UP_SECONDS = 10.0  # for one generation


class ReplicaPool:
    """Several engines behind one queue of waiting requests."""

    def __init__(
        self,
        engines: Sequence[Engine],
        *,
        version: str = "",
        order: Order = "adaptive",
        quantile: float = ADMISSION_QUANTILE,
        hang_seconds: float = HANG_SECONDS,
        warm_up: Sequence[GenerationRequest] = (),
        by_worth: bool = False,
    ) -> None:
        """Let a request wait only while the share `quantile` of generations would finish before its deadline.

        A generation that exceeds `hang_seconds`, and by far the usual duration, is a hang. `warm_up` requests run on
        every replica before the first real one, so that estimates rest on real generations. With `by_worth` those that
        wait go in the order of their worth.
        """
        if not engines:
            raise ValueError("a pool needs at least one engine")
        self._slots = [Slot(engine, version) for engine in engines]
        self._admission = Admission(order, quantile, by_worth=by_worth)
        self._dispatcher = Dispatcher(self._slots, self._admission)
        self._hang_seconds = hang_seconds
        self._warm_up_requests = warm_up
        self._last_success = float("-inf")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keepers: dict[Slot, asyncio.Task[None]] = {}
        self._reloading = asyncio.Lock()
        self._counts: Counter[str] = Counter()
        self.spare = IdleReplicas(self._dispatcher, lambda: self.model_id, self._track)
        self.patient = BatchReplicas(self._dispatcher, self.spare)

    @property
    def model_id(self) -> str:
        return self._slots[0].engine.model_id

    @property
    def kernel(self) -> str:
        """The kernel that computes the model; "" where only another server knows."""
        return self._slots[0].engine.kernel

    @property
    def version(self) -> str:
        """Version of the model that the pool serves; until a reload is complete, the older one."""
        return self._slots[-1].version

    @property
    def available(self) -> bool:
        return any(slot.usable for slot in self._slots)

    @property
    def usable_count(self) -> int:
        """Number of replicas that are up and trusted."""
        return self._dispatcher.usable_count

    @property
    def replica_count(self) -> int:
        return len(self._slots)

    @property
    def why_down(self) -> str:
        """Why a replica that is down is down; "" when none is."""
        return next((slot.why_down for slot in self._slots if not slot.usable), "")

    @property
    def down_seconds(self) -> float:
        """How long the replica has been down that has been down longest."""
        return max(slot.down_seconds for slot in self._slots)

    @property
    def outstanding(self) -> int:
        """Number of requests that wait for a replica or have one."""
        return self._admission.waiting + sum(slot.busy for slot in self._slots)

    @property
    def counts(self) -> Counter[str]:
        """Counts since the start: admitted, trials, retried, hung, corrupt, restarts, gave_way, refused_REASON."""
        restarts = sum(slot.restarts for slot in self._slots)
        return Counter({**self._counts, **self._admission.counts, "restarts": restarts})

    @property
    def idle(self) -> bool:
        """Whether a request that came now would neither wait nor keep another one waiting."""
        return not self._admission.waiting and any(slot.usable and not slot.busy for slot in self._slots)

    @property
    def expected_seconds(self) -> float:
        """Mean duration of recent generations, in seconds."""
        return self._admission.expected_seconds

    def quantile(self, share: float) -> float:
        """Return the seconds within which this share of recent generations ended; 0 when nothing is known."""
        return self._admission.times.quantile(share)

    @property
    def last_success(self) -> float:
        """When a generation last completed, on the `time.monotonic` clock."""
        return self._last_success

    async def start(self) -> None:
        """Start every engine, the first one alone, because it may have to download weights for the others.

        All warm up at the same time, as they will work later. Raises EngineError, with everything closed again, when
        one does not start.
        """
        first, *rest = [slot.engine for slot in self._slots]
        try:
            await first.start()
            outcomes = await asyncio.gather(*(engine.start() for engine in rest), return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
            await asyncio.gather(*(self._warm_up(slot.engine) for slot in self._slots))
        except BaseException:
            await self.close()
            raise
        for slot in self._slots:
            self._supervise(slot)

    async def close(self) -> None:
        """Refuse all waiters, stop running requests, close every engine."""
        self._dispatcher.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(slot.engine.close() for slot in self._slots))

    async def failed(self) -> None:
        """Return once no engine is left; the pool restarts them by itself anyway."""
        while self.available:
            await asyncio.gather(*(slot.engine.failed() for slot in self._slots if slot.usable))

    async def reload(self, make_engine: Callable[[int], Engine], version: str = "") -> None:
        """Replace the engine of every slot in turn, each started before the old one stops: nothing is dropped.

        `make_engine` gets the slot's number. One additional model is in memory meanwhile. Raises EngineError when a new
        engine does not start; those already replaced stay.
        """
        async with self._reloading:
            for number, slot in enumerate(self._slots):
                await self._replace(slot, make_engine(number), version)

    def refusal(
        self, deadline: float | None, length: int = 0, worth: float = 0.0, client: str = ""
    ) -> CapacityError | None:
        """Return why a prompt of `length` characters would get no replica now; None where it may."""
        return self._dispatcher.refusal(deadline, length, worth, client)

    def worked(self, client: str, seconds: float) -> None:
        """Count what the gateway itself has done for a client, in seconds of the processor, in its share."""
        self._admission.worked(client, seconds)

    async def generate(
        self, request: GenerationRequest, *, second_opinion_on: GenerationResult | None = None
    ) -> GenerationResult:
        """Run a request on the next free replica, once more if that one dies or hangs, or somebody needs it more.

        A second opinion comes from a replica other than that of the given result, if there is one. Returns by the
        deadline, though the replica may then be busy for one more forward. Raises CapacityError when the deadline
        passes or certainly would; RequestRefusedError; EngineUnavailableError.
        """
        avoided = None if second_opinion_on is None else self._slots[second_opinion_on.replica]
        if avoided is not None:
            self._counts["corrupt"] += 1
            self._counts["retried"] += 1
            return await self._run_on_next(request, avoided)
        try:
            return await self._run_on_next(request)
        except EngineUnavailableError:
            self._counts["retried"] += 1
            return await self._run_on_next(request)
        except GaveWayError:
            self._counts["retried"] += 1
            return await self._run_on_next(request)

    def distrust(self, result: GenerationResult) -> None:
        """Restart the replica that gave this result: its answer was corrupt, and another one's was not."""
        slot = self._slots[result.replica]
        if slot.version == result.model_version:  # otherwise a reload has replaced it meanwhile
            slot.quarantine("its answer was corrupt, another replica's was sound")
            self._dispatcher.lost_one()

    async def _warm_up(self, engine: Engine) -> None:
        """Generate a replica's warm-up requests, and record how long each takes."""
        for request in self._warm_up_requests:
            started = time.monotonic()
            try:
                result = await engine.generate(replace(request, deadline=started + _WARM_UP_SECONDS))
            except EngineError as error:  # the first real request will show the error
                logger.warning("a warm-up generation failed", extra={"reason": str(error)})
                continue
            whole, seconds = result.stop_reason != "cancelled", time.monotonic() - started
            if whole:
                self._last_success = time.monotonic()
            self._admission.times.add(seconds, len(request.prompt), whole=whole)

    async def _run_on_next(self, request: GenerationRequest, avoid: Slot | None = None) -> GenerationResult:
        asked = time.monotonic()
        length, worth, client = len(request.prompt), request.worth, request.client
        slot = await self._dispatcher.acquire(
            request.deadline, length, avoid, worth, client, lambda slot: slot.has_read(request)
        )
        queue_seconds = time.monotonic() - asked
        try:
            result = await self._run(slot, request)
        except EngineUnavailableError as error:
            slot.failed(str(error))
            logger.warning("replica lost a request", extra={"reason": str(error)})
            raise
        result.queue_seconds = queue_seconds
        return result

    async def _run(self, slot: Slot, request: GenerationRequest) -> GenerationResult:
        """Generate in a task of its own: the caller leaves at the deadline, and the engine is offered once free."""
        self._counts["admitted"] += 1
        slot.reads(request)
        model_id, version = slot.engine.model_id, slot.version  # a reload may change them before the result arrives
        remaining = math.inf if request.deadline is None else request.deadline - time.monotonic()
        timeout = self._timeout()
        # Traces take longer than plans, and say nothing of them.
        on_end = partial(self._finish, slot, None if request.trace else len(request.prompt))
        generation = GenerationTask(slot.engine, request, min(remaining, timeout), on_end)
        self._track(generation.task)
        self._dispatcher.began(slot, generation.give_way)
        try:
            result = await generation.outcome
        except TimeoutError:
            if remaining > timeout:
                self._counts["hung"] += 1
                slot.quarantine("it hangs")
                raise EngineUnavailableError(f"no answer within {timeout:.3g} s") from None
            raise CapacityError("the deadline passed during the generation", "deadline") from None
        finally:
            generation.task.cancel()  # has no effect where it has ended
        if result.stop_reason == "cancelled":
            raise CapacityError("the deadline passed during the generation", "deadline")
        result.model_id, result.model_version, result.replica = model_id, version, self._slots.index(slot)
        return result

    def _timeout(self) -> float:
        """Return how long a generation may last before its replica counts as hung."""
        times = self._admission.times
        if len(times) < _HANG_KNOWN:
            return math.inf
        return max(self._hang_seconds, _HANG_FACTOR * times.quantile(0.99))

    def _finish(
        self, slot: Slot, length: int | None, result: GenerationResult | None, error: Exception | None, seconds: float
    ) -> None:
        whole = result is not None and result.stop_reason != "cancelled"
        if whole:
            self._last_success = time.monotonic()
            slot.succeeded()
        counts = error is None and length is not None  # a crash says nothing about service times
        usual = self._admission.times.expected(length or 0) or seconds
        if counts and (whole or seconds > usual):  # one that was cut short earlier might have been fast
            slot.took(seconds, usual)
        if slot.lags_behind(self._slots):
            slot.quarantine("it is far slower than the others")
        self._dispatcher.release(slot, seconds if counts else None, whole=whole)

    def _supervise(self, slot: Slot) -> None:
        self._keepers[slot] = self._track(
            asyncio.create_task(slot.keep_alive(self._dispatcher.lost_one, self._dispatcher.offer))
        )
        self._dispatcher.offer(slot)

    async def _replace(self, slot: Slot, engine: Engine, version: str) -> None:
        try:
            await engine.start()
            await self._warm_up(engine)
            self._keepers[slot].cancel()
            await asyncio.gather(self._keepers[slot], return_exceptions=True)
            await slot.replace(engine, version)
        except EngineError:
            await engine.close()
            raise
        self._supervise(slot)

    def _track(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Hold a task until it is done, so that `close` can end it."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
