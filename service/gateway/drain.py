"""The orderly end: not ready any more, serving on until the balancer has noticed, then finishing what is in flight."""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Drain:
    """Begins once, on SIGTERM or on request; calls `stop` after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.draining = False
        self._stop: Callable[[], None] | None = None

    def on_stop(self, stop: Callable[[], None]) -> None:
        """What ends the server: it takes no new connections then and finishes the requests that it has."""
        self._stop = stop

    def begin(self) -> None:
        """Start the wait; a second time changes nothing."""
        if not self.draining:
            self.draining = True
            logger.info("draining", extra={"seconds": self.seconds})
            asyncio.get_running_loop().call_later(self.seconds, self.end)

    def end(self) -> None:
        """Stop now."""
        self.draining = True
        if self._stop is not None:
            self._stop()
