"""Work that nobody waits for: it runs on a replica that would be idle, and ends as soon as somebody needs that one."""

import asyncio
import time
from collections.abc import Callable

from service.engines.protocol import GenerationRequest, GenerationResult
from service.gateway.dispatcher import Dispatcher
from service.gateway.request_queue import CapacityError
from service.gateway.slot import Slot

Track = Callable[[asyncio.Task[GenerationResult]], asyncio.Task[GenerationResult]]


class SpareReplicas:
    """Idle replicas as an engine. What they generate was neither asked for nor admitted, and is counted nowhere."""

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
