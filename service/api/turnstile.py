"""When requests begin: a few in a turn of the event loop, those that nobody waits for behind all others."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

_MOST_A_TURN = 8  # requests that begin in a turn of the event loop, however many connections it has;
_FEWEST_A_TURN = 2  # and where others keep the processor and a turn takes longer than it should, as few as this
_TURN_SECONDS = 0.012
_ORDINARY_BYTES = 256  # of a body; a longer one may cost the rules so many times as much, and counts as so many


class Turnstile:
    """Lets a few requests begin in one turn of the event loop; the others wait, first come, first served.

    Without it a turn grows with the number of busy connections, and new ones, of which libuv accepts one for each
    listener and turn, wait for seconds. How many begin follows what turns take (additive increase, multiplicative
    decrease): a health check waits for some turns, and on a busy machine each would be longer.

    What enters behind (shoppers' events) begins one a turn, after whatever else waits: a plan never waits for more than
    one of them, and however many plans there are, events go on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[tuple[Callable[[], object], int]] = deque()
        self._behind: deque[tuple[Callable[[], object], int]] = deque()
        self._allowed = self._left = _MOST_A_TURN
        self._since: float | None = None  # this turn's start; None between turns

    def enter(self, begin: Callable[[], object], body_bytes: int = 0) -> None:
        """Call `begin` now, or as soon as its turn comes; a long body takes the places of several."""
        self._start_turn()
        if self._left > 0:
            self._begin(begin, body_bytes)
        else:
            self._waiting.append((begin, body_bytes))

    def enter_behind(self, begin: Callable[[], object], body_bytes: int = 0) -> None:
        """Call `begin` in one of the next turns, behind whatever waits or comes meanwhile."""
        self._behind.append((begin, body_bytes))
        self._start_turn()

    def _start_turn(self) -> None:
        if self._since is None:
            self._since = self._clock()
            asyncio.get_running_loop().call_soon(self._turn)

    def _begin(self, begin: Callable[[], object], body_bytes: int) -> None:
        self._left -= 1 + body_bytes // _ORDINARY_BYTES
        begin()

    def _turn(self) -> None:
        assert self._since is not None
        is_slow = self._clock() - self._since > _TURN_SECONDS
        self._allowed = max(self._allowed // 2, _FEWEST_A_TURN) if is_slow else min(self._allowed + 1, _MOST_A_TURN)
        self._left, self._since = self._allowed, None
        while self._waiting and self._left > 0:
            self.enter(*self._waiting.popleft())
        if self._behind:
            self._start_turn()
            self._begin(*self._behind.popleft())
