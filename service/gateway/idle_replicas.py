"""Runs work that can wait, such as a batch, on idle replicas; it ends as soon as a request needs the replica.

Such work never joins the admission queue, so it refuses and delays no request, except for the moment in which a
cancelled generation stops.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from service.engines.protocol import EngineUnavailableError, GenerationRequest, GenerationResult
from service.gateway.dispatcher import Dispatcher
from service.gateway.request_queue import CapacityError
from service.gateway.slot import Slot

Track = Callable[[asyncio.Task[GenerationResult]], asyncio.Task[GenerationResult]]


class IdleReplicas:
    """Idle replicas as an engine. Their generations are neither admitted nor counted."""

    def __init__(self, dispatcher: Dispatcher, model_id: Callable[[], str], track: Track) -> None:
        """Take `track`, which holds a task and ends it when the pool closes."""
        self._dispatcher = dispatcher
        self._model_id = model_id
        self._track = track

    @property
    def model_id(self) -> str:
        return self._model_id()

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Run a request now. Raises CapacityError where no replica is idle or one was needed, else as an engine does.

        A request for a plan that needs the replica waits for it as long as a cancelled generation takes to stop.
        """

        def start(slot: Slot) -> asyncio.Task[GenerationResult]:
            return self._track(asyncio.create_task(_generate(slot, request)))

        task = self._dispatcher.lend(start)
        if task is None:
            raise CapacityError("every replica is busy", "capacity")
        seconds = None if request.deadline is None else max(request.deadline - time.monotonic(), 0.0)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            task.cancel()  # has no effect where it has ended
        if not task.done() or task.cancelled():
            raise CapacityError("somebody needed the replica, or time ran out", "capacity")
        return task.result()


async def _generate(slot: Slot, request: GenerationRequest) -> GenerationResult:
    model_id, version = slot.engine.model_id, slot.version  # a reload may change them before the result arrives
    result = await slot.engine.generate(request)
    result.model_id, result.model_version = model_id, version
    return result


class BatchReplicas:
    """Idle replicas as an engine that waits for one until a request's deadline.

    Requests go in order of arrival, and one that has lost a replica has the next one.
    """

    def __init__(self, dispatcher: Dispatcher, spare: IdleReplicas) -> None:
        """Take the spare replicas of this dispatcher, and be told when one comes free."""
        self._dispatcher = dispatcher
        self._spare = spare
        self._waiting: deque[asyncio.Future[None]] = deque()  # whose turn is next, first
        dispatcher.on_idle = self._call_next

    @property
    def model_id(self) -> str:
        return self._spare.model_id

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a replica."""
        return len(self._waiting)

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        """Run a request as soon as a replica is idle, again where it was needed, once more where it died.

        Raises CapacityError at the deadline or when the pool closes, else as an engine does.
        """
        deadline = math.inf if request.deadline is None else request.deadline
        asked, has_died, was_first = time.monotonic(), False, False
        while True:
            await self._turn(deadline, was_first=was_first)
            began = time.monotonic()
            try:
                result = await self._spare.generate(request)
            except CapacityError:  # somebody needed the replica
                if time.monotonic() >= deadline:
                    raise
            except EngineUnavailableError:
                if has_died:
                    raise
                has_died = True
            else:
                result.queue_seconds = began - asked
                return result
            was_first = True

    async def _turn(self, deadline: float, *, was_first: bool) -> None:
        """Return once a replica is idle and this is next. Raises CapacityError."""
        if self._dispatcher.closing:
            raise CapacityError("the service is shutting down", "engine")
        if self._dispatcher.can_lend and not self._waiting:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if was_first else self._waiting.append)(turn)
        try:
            async with asyncio.timeout(None if deadline == math.inf else max(deadline - time.monotonic(), 0.0)):
                await turn
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:  # it was called just as it gave up
                self._call_next()
            if isinstance(error, TimeoutError):
                raise CapacityError("every replica was needed until it was too late", "capacity") from None
            raise
        if self._dispatcher.closing:
            raise CapacityError("the service is shutting down", "engine")

    def _call_next(self) -> None:
        """Tell the next waiter that a replica is idle; tell all waiters when the pool closes."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                if not self._dispatcher.closing:
                    return
