"""Readiness: whether the service would answer a plan now, shown by a real inference no older than some seconds.

It also warns, once in the log and on the page, where most of a slow machine's plans would be late.
"""

import asyncio
import logging
import math
import time

from service.engines.protocol import EngineError
from service.gateway.drain import Drain
from service.gateway.pool import ReplicaPool
from service.planner.planner import Planner
from service.planner.question import Question

logger = logging.getLogger(__name__)

_PROBE = Question.parse("red shoes")
_PROBE_SECONDS = 2.0
_SLOW_QUANTILE = 0.9
_NEARLY = 0.98  # a generation cut short at the deadline counts as lasting until then
_LOOK_SECONDS = 10.0
_MOST_DEADLINE_MS = 2000  # the maximum that a request may set


class Readiness:
    """Tells why the service is not ready, or None. A recent success counts, so a busy service runs no probes."""

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
        """Return None when a model would make a plan now; at most one probe runs at a time."""
        if (reason := self._known_reason()) or self._is_fresh():
            return reason
        async with self._proving:
            if self._is_fresh():  # a probe that we waited for has succeeded
                return self._known_reason()
            try:
                await self._planner.plan_with_model(self._planner.task(_PROBE, time.monotonic() + _PROBE_SECONDS))
            except (EngineError, ValueError) as error:
                return f"a trial plan failed: {type(error).__name__}"
        return self._known_reason()

    def _known_reason(self) -> str | None:
        if self._drain.draining:
            return "the service is shutting down"
        if not (usable := self._pool.usable_count):
            return f"no replica of the model is up: {self._pool.why_down}"
        if usable < self._min_replicas:
            missing = f"only {usable} of {self._pool.replica_count} replicas are up, and {self._min_replicas} must be"
            return f"{missing}: {self._pool.why_down}"
        return None

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._pool.last_success < self._fresh_seconds


class DeadlineWatch:
    """Detects that plans take longer here than the default deadline allows."""

    def __init__(self, pool: ReplicaPool, deadline_ms: int) -> None:
        self._pool = pool
        self._deadline_ms = deadline_ms
        self._told = False

    def notice(self) -> str | None:
        """Return the problem and its remedy; None where most plans are in time."""
        slowest_ms = self._pool.quantile(_SLOW_QUANTILE) * 1000
        if slowest_ms < _NEARLY * self._deadline_ms:
            return None
        enough_ms = min(100 * math.ceil(1.5 * slowest_ms / 100), _MOST_DEADLINE_MS)
        return (
            f"One plan in ten takes the model {slowest_ms:.0f} ms or more on this machine, and requests that name no "
            f"deadline allow {self._deadline_ms} ms: rules, which are coarser, plan what would be late. Send "
            f'"deadline_ms": {enough_ms} with a request, or start the service with PEAKPLAN_DEADLINE_MS={enough_ms}; '
            "what decodes here, and what would be faster, stands in the log's first lines."
        )

    async def watch(self, seconds: float = _LOOK_SECONDS) -> None:
        """Check every `seconds` until cancelled, and log the problem the first time."""
        while True:
            if not self._told and (notice := self.notice()) is not None:
                logger.warning("plans take longer here than the deadline", extra={"detail": notice})
                self._told = True
            await asyncio.sleep(seconds)
