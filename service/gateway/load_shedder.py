"""The last limit: how much work of its own the gateway may have before it turns requests away.

A plan by rule costs a fraction of a millisecond, so this is far beyond what the model can carry; past it every answer
would come late, and a quick 503 helps its caller more.
"""

import asyncio
import time
from collections.abc import Callable

_SAMPLE = 64  # requests between two measurements of what one costs
_FIRST_COST = 0.0005  # seconds
_FEWEST = 32  # requests that may always be inside
_TICK_SECONDS = 0.02


class LoadShedder:
    """Lets requests in while the work that they mean fits `seconds`: bounded in time, not in number.

    How long the event loop lets others wait counts too: on a machine that is busy with something else the work takes
    longer than the processor time that it costs.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.process_time) -> None:
        """`clock` tells the seconds that this process has computed."""
        self._seconds = seconds
        self._clock = clock
        self._inside = 0
        self._served = 0
        self._spent = 0.0  # seconds computed while anybody was inside, since the last sample
        self._entered = 0.0
        self._cost = _FIRST_COST
        self._lag = 0.0

    @property
    def is_open(self) -> bool:
        return self._inside < _FEWEST or max(self._inside * self._cost, self._lag) < self._seconds

    async def watch(self) -> None:
        """Measure until cancelled how late the event loop is."""
        while True:
            due = time.monotonic() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            self._lag = max(time.monotonic() - due, self._lag / 2)

    def __enter__(self) -> None:
        """Count a request while it is worked on."""
        if not self._inside:
            self._entered = self._clock()
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        self._served += 1
        is_sample = self._served % _SAMPLE == 0
        if is_sample or not self._inside:  # what the process does in between, for hours perhaps, is no request's cost
            now = self._clock()
            self._spent, self._entered = self._spent + now - self._entered, now
        if is_sample:
            self._cost, self._spent = self._spent / _SAMPLE, 0.0
