"""Whether more is asked than can be done: the share of recent requests that had to be refused."""

import time
from collections.abc import Callable

_HALF_LIFE = 0.5  # seconds; how long a request counts
_HIGH_SHARE = 0.3  # refused; bursts of a load that can be carried stay below
_FEWEST = 8.0  # requests that a share is taken of


class Pressure:
    """Counts requests and refusals, the older the less."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted = clock()
        self._asked = 0.0
        self._refused = 0.0

    @property
    def high(self) -> bool:
        return self._asked >= _FEWEST and self._refused > _HIGH_SHARE * self._asked

    def asked(self) -> None:
        """A request came in."""
        self._fade()
        self._asked += 1

    def refused(self) -> None:
        """One of them got no replica."""
        self._fade()
        self._refused += 1

    def _fade(self) -> None:
        now = self._clock()
        kept = 0.5 ** ((now - self._noted) / _HALF_LIFE)
        self._noted = now
        self._asked *= kept
        self._refused *= kept
