"""Would the service answer a plan now? Proven by a real inference, and proven again once that is some seconds old."""

import asyncio
import time

from service.engines.protocol import EngineError
from service.gateway.drain import Drain
from service.gateway.pool import ReplicaPool
from service.planner.planner import Planner
from service.planner.question import Question

_PROBE = Question.parse("red shoes")
_PROBE_SECONDS = 2.0


class Readiness:
    """Says why not, or None. Traffic that succeeds is proof enough, so a busy service probes nothing."""

    def __init__(
        self, pool: ReplicaPool, planner: Planner, drain: Drain, fresh_seconds: float, min_replicas: int = 1
    ) -> None:
        self._pool = pool
        self._planner = planner
        self._drain = drain
        self._fresh_seconds = fresh_seconds
        self._min_replicas = min_replicas
        self._proving = asyncio.Lock()

    async def why_not(self) -> str | None:
        """None when a plan would be made now by a model; at most one probe runs at a time."""
        if (reason := self._known_reason()) or self._is_fresh():
            return reason
        async with self._proving:
            if self._is_fresh():  # the probe that we waited for
                return self._known_reason()
            try:
                await self._planner.plan_with_model(_PROBE, deadline=time.monotonic() + _PROBE_SECONDS)
            except (EngineError, ValueError) as error:
                return f"a trial plan failed: {type(error).__name__}"
        return self._known_reason()

    def _known_reason(self) -> str | None:
        if self._drain.draining:
            return "the service is shutting down"
        if not (usable := self._pool.usable_count):
            return "no replica of the model is up"
        if usable < self._min_replicas:
            return f"only {usable} of {self._pool.replica_count} replicas are up, and {self._min_replicas} must be"
        return None

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._pool.last_success < self._fresh_seconds
