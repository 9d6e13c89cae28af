"""Graceful shutdown: report not ready, serve until the load balancer has noticed, then finish requests in flight."""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Drain:
    """A drain begins once, on SIGTERM or on request; it calls `stop` after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.draining = False
        self._stop: Callable[[], None] | None = None

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Set what ends the server: it then takes no new connections and finishes the requests that it has."""
        self._stop = stop

    def begin(self) -> None:
        """Start the wait; a second call changes nothing."""
        if not self.draining:
            self.draining = True
            logger.info("draining", extra={"seconds": self.seconds})
            asyncio.get_running_loop().call_later(self.seconds, self.end)

    def end(self) -> None:
        self.draining = True
        if self._stop is not None:
            self._stop()
