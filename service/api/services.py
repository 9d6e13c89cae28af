"""The parts that the handlers use, and the dependency that gives them to a handler."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request

from service.api.experiment import Experiment
from service.api.lifecycle import DeadlineWatch, Readiness, Reloader
from service.api.models import Problem
from service.api.observation import Observer
from service.api.outcome_log import OutcomeLog
from service.api.problems import MEDIA_TYPE, REFERENCE
from service.api.request_ids import RequestIds
from service.api.shop import SampleShop
from service.events.keeper import EventKeeper
from service.gateway.drain import Drain
from service.gateway.load_shedder import LoadShedder
from service.gateway.pool import ReplicaPool
from service.gateway.turns import BatchRoom, CostlyTurns, Places
from service.planner.caching import CachingPlanner
from service.planner.redis_plan_cache import RedisPlanCache
from service.telemetry.metrics import Metrics, write_to_stdout
from service.telemetry.traces import Tracer


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one running service. Their creator starts and closes them, the pool before the others."""

    pool: ReplicaPool
    planner: CachingPlanner
    readiness: Readiness
    drain: Drain
    load_shedder: LoadShedder
    metrics: Metrics
    observer: Observer
    reloader: Reloader
    batches: CachingPlanner  # plans on idle replicas
    batch_places: Places  # limits how many of their questions are planned at once
    deadline_ms: int  # for requests without one
    deadline_watch: DeadlineWatch
    trace_seconds: float
    shop: SampleShop
    request_ids: RequestIds = field(default_factory=RequestIds)
    turns: CostlyTurns = field(default_factory=CostlyTurns)
    tracing: asyncio.Lock = field(default_factory=asyncio.Lock)  # one trace at a time
    batch_room: BatchRoom = field(default_factory=BatchRoom)
    batch_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    shared_memory: RedisPlanCache | None = None
    tracer: Tracer | None = None
    outcomes: OutcomeLog | None = None
    events: EventKeeper | None = None
    experiment: Experiment | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, write: Callable[[bytes], None] = write_to_stdout) -> None:
        """Connect to the shared cache, publish metrics with `write`, and watch the event loop's lag."""
        if self.shared_memory is not None:
            self.shared_memory.start()
        for work in (
            self.metrics.publish_for_ever(write),
            self.load_shedder.watch(),
            self.deadline_watch.watch(),
            self.reloader.watch(),
            self.readiness.watch(),
            self.shop.open_ahead(),
        ):
            self._tasks.append(asyncio.create_task(work))

    async def close(self) -> None:
        """Stop everything in the background, then the pool."""
        await self.reloader.close()
        await self.pool.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.shop.close()
        if self.shared_memory is not None:
            await self.shared_memory.close()
        for keeper in (self.tracer, self.outcomes, self.events):
            if keeper is not None:
                await asyncio.to_thread(keeper.close)


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Use = Annotated[Services, Depends(_services)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of an endpoint's errors."""
    content = {MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(model=Problem.__name__)}}}
    return {status: {"description": "What is wrong, in words.", "content": content} for status in statuses}
