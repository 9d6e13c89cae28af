"""Load shedding: a limit on the gateway's own work and memory, beyond which it refuses requests.

A plan by the reader costs about a millisecond, so this limit is far beyond the model's capacity; past it every answer
would come late, and a quick 503 helps its caller more.
"""

import asyncio
import contextlib
import resource
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from pathlib import Path

_SAMPLE = 64  # requests between two measurements of a request's cost
_FIRST_COST = 0.0005  # seconds
_FEWEST = 32  # requests that are always allowed inside, or to wait
_FEW = 4  # of a client that are handled although others' are too many,
_FAR_TOO_MANY = 2.0  # unless they are that many times what is allowed
_TICK_SECONDS = 0.02
_TICKS_A_LOOK = 25  # at the memory
# So many that come late one after another, for so long, each behind that many others, say that a queue stands; fewer
# say that the machine had a hiccup. For some time after a refusal each of them says that it still does.
_STANDING, _STANDING_SECONDS, _AGAIN_SECONDS = 64, 1.0, 10.0
_MOST_QUEUES = 1024  # of clients that are remembered; the one heard of least lately is forgotten


class _Queue:
    """A queue of which only the wait is known, of who comes out of it: told as standing as by CoDel (RFC 8289)."""

    def __init__(self) -> None:
        self._out: deque[float] = deque(maxlen=_FEWEST)  # when the last ones came out
        self._late = 0  # one after another,
        self._since = 0.0  # the first of them then
        self._refused = float("-inf")

    def stands(self, now: float, waited: float, most: float) -> bool:
        """Take the next one; tell whether it waited for longer than `most` because more come than are handled."""
        is_crowd = len(self._out) == _FEWEST and self._out[0] >= now - waited  # so many came out while it waited
        self._out.append(now)
        if waited <= most or not is_crowd:
            self._late = 0
            return False
        if not self._late:
            self._since = now
        self._late += 1
        is_row = self._late >= _STANDING and now - self._since >= _STANDING_SECONDS
        if not is_row and now - self._refused > _AGAIN_SECONDS:
            return False
        self._refused = now
        return True


class LoadShedder:
    """Admits requests while their work fits into `seconds`: a bound on time, not on number.

    The event loop's lag counts too: on a machine that is busy with something else, the work takes longer than its
    processor time.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.process_time,
        most_bytes: float = float("inf"),
        memory: Callable[[], int] | None = None,
    ) -> None:
        """Take `clock`, which returns this process's CPU time in seconds, and `memory`, its bytes."""
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._memory = memory or resident_bytes
        self._is_full = False
        self._clock = clock
        self._inside = 0
        self._inside_of: Counter[str] = Counter()  # by client
        self._served = 0
        self._spent = 0.0  # CPU seconds while any request was inside, since the last sample
        self._entered = 0.0
        self._cost = _FIRST_COST
        self._lag = 0.0
        self._queues = {True: _Queue(), False: _Queue()}  # of connections, and of requests on those that are accepted
        self._own_queues: OrderedDict[tuple[str, bool], _Queue] = OrderedDict()  # the same of each client

    @property
    def is_open(self) -> bool:
        if self._is_full:
            return False
        return self._inside < _FEWEST or self._seconds_inside < self._seconds

    def is_open_to(self, client: str) -> bool:
        """Tell whether a request of this client is handled: one who has few inside is not turned down for others'."""
        if self.is_open or self._is_full:
            return not self._is_full
        return self._inside_of[client] < _FEW and self._seconds_inside < _FAR_TOO_MANY * self._seconds

    @contextlib.contextmanager
    def handling(self, client: str) -> Iterator[None]:
        """Count a request of a client while it is being handled."""
        self._inside_of[client] += 1
        try:
            with self:
                yield
        finally:
            self._inside_of[client] -= 1
            if not self._inside_of[client]:
                del self._inside_of[client]

    def admits(self, waited: float, *, is_fresh: bool = False, client: str = "") -> bool:
        """Tell whether a request is handled that waited so many seconds for the event loop, `is_fresh` to be accepted.

        A request that waits in the kernel or for a turn is not inside, and the loop need not be late: where more come
        than are handled, each answer would come later than the one before, and none in time. A client that sends too
        many requests is refused even while other clients' requests are in time.
        """
        now, own = time.monotonic(), self._own_queue(client, is_fresh=is_fresh)
        queues = (self._queues[is_fresh], own)
        stands = [queue.stands(now, waited, self._seconds) for queue in queues]  # each learns of it
        return self.is_open_to(client) and not any(stands)

    @property
    def _seconds_inside(self) -> float:
        return max(self._inside * self._cost, self._lag)

    def _own_queue(self, client: str, *, is_fresh: bool) -> _Queue:
        queue = self._own_queues.setdefault((client, is_fresh), _Queue())
        self._own_queues.move_to_end((client, is_fresh))
        if len(self._own_queues) > _MOST_QUEUES:
            self._own_queues.popitem(last=False)
        return queue

    async def watch(self) -> None:
        """Measure the event loop's lag, and now and then the memory, until cancelled."""
        ticks = 0
        while True:
            if ticks % _TICKS_A_LOOK == 0:
                self._is_full = self._memory() > self._most_bytes
            ticks += 1
            due = time.monotonic() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            self._lag = max(time.monotonic() - due, self._lag / 2)

    def __enter__(self) -> None:
        """Count a request while it is being handled."""
        if not self._inside:
            self._entered = self._clock()
        self._inside += 1

    def __exit__(self, *_: object) -> None:
        self._inside -= 1
        self._served += 1
        is_sample = self._served % _SAMPLE == 0
        if is_sample or not self._inside:  # CPU time of the process between requests is no request's cost
            now = self._clock()
            self._spent, self._entered = self._spent + now - self._entered, now
        if is_sample:
            self._cost, self._spent = self._spent / _SAMPLE, 0.0


def resident_bytes() -> int:
    """Return the memory that this process has in RAM; where the system does not tell, the most that it ever had."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # macOS tells bytes, all others KiB
    return int(pages) * resource.getpagesize()
