"""What ends a generation before its end: a deadline, or whoever asked for it."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


class ForwardStoppedError(Exception):
    """Raised by a forward that stopped between two layers. What it has written lies after the kept positions."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """Tells, when called, whether a generation should stop now.

    Compiled kernels, which call no Python, look at `deadline` (on the clock of `time.monotonic`) and at `socket`: a
    descriptor that has something to read, or whose other end is gone, once `cancelled` would return true; -1 for none.
    """

    cancelled: Callable[[], bool] = lambda: False
    deadline: float | None = None
    socket: int = -1

    def __call__(self) -> bool:
        return self.cancelled() or self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; infinite without one."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()


NEVER = Interruption()
