"""Admission control: which request gets a replica, waits for one, or is refused because none will be free in time.

It is pure: it knows service times and deadlines, neither replicas nor asyncio, and its clock may be simulated.
`dispatcher.py` runs it in the service, and a simulator may run it anywhere:

    refused = admission.ask(request, idle=..., replicas=...)   # else it starts now, if one is idle, or waits
    request = admission.next(replicas)                         # a replica has come free
    admission.ended(request, seconds, whole=..., replicas=...) # what it took
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable

from service.engines.protocol import DegradedReason
from service.gateway.request_queue import CapacityError, QueuedRequest, RequestQueue
from service.gateway.service_times import ServiceTimes
from service.settings.choices import ADMISSION_QUANTILE, Order

FIRST_EXPECTATION = 0.15  # seconds; used until the first generation ends
WAITING_BY_WORTH = 2  # for each replica under high pressure: more to choose from, and still soon refused
_HOPELESS = 0.05  # an idle replica is used at once where at least this share of generations would end in time,
_HOPELESS_UNDER_PRESSURE = 0.2  # or this share while another request, which may fit better, is expected soon
# A less likely request is tried anyway while such trials cost at most this share of all replicas' time: the
# estimate may be wrong or outdated. A trial that succeeds costs nothing: it is a plan.
_TRIAL_SHARE = 0.2


class Pressure:
    """Measures overload: counts requests and refusals with exponential decay."""

    HALF_LIFE = 0.5  # seconds after which a request counts half
    HIGH_SHARE = 0.3  # share refused; bursts of a sustainable load stay below
    FEWEST = 8.0  # requests that are needed for a share

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted = clock()
        self._asked = 0.0
        self._refused = 0.0

    @property
    def high(self) -> bool:
        return self._asked >= self.FEWEST and self._refused > self.HIGH_SHARE * self._asked

    def asked(self) -> None:
        """Count a request."""
        self._fade()
        self._asked += 1

    def refused(self) -> None:
        """Count a refusal of one of them."""
        self._fade()
        self._refused += 1

    def _fade(self) -> None:
        now = self._clock()
        kept = 0.5 ** ((now - self._noted) / self.HALF_LIFE)
        self._noted = now
        self._asked *= kept
        self._refused *= kept


class Admission:
    """Decides about requests; its caller starts, wakes and refuses them accordingly."""

    def __init__(
        self,
        order: Order = "adaptive",
        quantile: float = ADMISSION_QUANTILE,
        clock: Callable[[], float] = time.monotonic,
        *,
        by_worth: bool = False,
    ) -> None:
        """Let a request wait only while the share `quantile` of generations would finish before its deadline.

        With `by_worth`, of those that wait the one of most worth goes first, the oldest of equals. So nobody is refused
        for want of replicas while one of less worth waits on, or begins after it came.
        """
        self.times = ServiceTimes(clock)  # for all replicas
        self.counts: Counter[str] = Counter()  # refusals by reason, and trials
        self._queue = RequestQueue(order, clock)
        self._adaptive = order == "adaptive" or by_worth
        self._by_worth = by_worth
        self._most_waiting = WAITING_BY_WORTH if by_worth else 1
        self._quantile = quantile
        self._clock = clock
        self._pressure = Pressure(clock)
        self._arrivals = itertools.count()
        self._next_trial = -math.inf

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._queue)

    @property
    def expected_seconds(self) -> float:
        """Mean duration of recent generations, in seconds."""
        return self.times.mean or FIRST_EXPECTATION

    def ask(self, request: QueuedRequest, *, idle: bool, replicas: int) -> list[QueuedRequest]:
        """Admit a new request, given idle and total replicas; return the refused ones, possibly itself.

        Unless refused, it starts now where a replica is idle, and has joined the queue where none is.
        """
        self._pressure.asked()
        request.arrival = next(self._arrivals)
        if not replicas:
            return self._counted([self._refused(request, "no replica is up", "engine")])
        request.seconds = self.times.expected(request.length) or FIRST_EXPECTATION
        if idle:
            return [] if self._may_start(request) else self._counted([self._refused_as_hopeless(request)])
        request.latest_start = request.deadline - self._needed(request.length)
        if request.latest_start < self._clock():
            return self._counted([self._refused_as_hopeless(request)])
        refused: list[QueuedRequest] = []
        if self._is_full(replicas):
            least = self._queue.least(self._worth)
            if self._worth(request) <= self._worth(least):
                return self._counted([self._refused_as_least(request)])
            self._queue.leave(least)
            refused.append(self._refused_as_least(least))
        return self._counted([*refused, *self._queue.join(request, replicas, self._worth if self._by_worth else None)])

    def certain_refusal(self, deadline: float, length: int, replicas: int, worth: float = 0.0) -> CapacityError | None:
        """Return why a request that came now would certainly get no replica, else None; counted as its refusal."""
        seconds = self.times.expected(length) or FIRST_EXPECTATION
        request = QueuedRequest(deadline, length, worth, next(self._arrivals), seconds)
        refused = []
        if not replicas:
            refused = [self._refused(request, "no replica is up", "engine")]
        elif self._is_full(replicas) and self._worth(request) <= self._worth(self._queue.least(self._worth)):
            refused = [self._refused_as_least(request)]
        if refused:
            self._pressure.asked()
        self._counted(refused)
        return request.refusal

    def next(self) -> QueuedRequest | None:
        """Return the waiter whose turn it is now that a replica is free."""
        return self._queue.next(self._worth if self._by_worth or (self._adaptive and self._pressure.high) else None)

    def leave(self, request: QueuedRequest) -> None:
        """Remove a request from the queue."""
        self._queue.leave(request)

    def drop_late(self) -> list[QueuedRequest]:
        """Refuse, and return, the waiters that can no longer finish in time."""
        return self._counted(self._queue.drop_late())

    def drop_all(self, message: str) -> list[QueuedRequest]:
        """Refuse, and return, all waiters: no replica is left."""
        return self._counted(self._queue.drop_all(message, "engine"))

    def ended(self, request: QueuedRequest, seconds: float | None, *, whole: bool, replicas: int) -> None:
        """Record a generation's duration, `whole` or cut short; `seconds` None says nothing about other generations."""
        if seconds is not None:
            self.times.add(seconds, request.length, whole=whole)
        if request.is_trial:
            pause = (seconds or 0.0) * max(1 / (_TRIAL_SHARE * max(replicas, 1)) - 1, 0.0)
            self._next_trial = self._clock() + (0.0 if whole else pause)

    def _may_start(self, request: QueuedRequest) -> bool:
        """Tell whether an idle replica should run this. An unlikely request is a trial; one runs at a time."""
        remaining = request.deadline - self._clock()
        enough = _HOPELESS_UNDER_PRESSURE if self._pressure.high else _HOPELESS
        if self.times.chance(remaining, request.length) >= enough:
            return True
        if remaining <= 0 or self._clock() < self._next_trial:
            return False
        request.is_trial = True
        self._next_trial = math.inf
        self.counts["trials"] += 1
        return True

    def _is_full(self, replicas: int) -> bool:
        """Tell whether the queue is full: under high pressure, a few waiters for each replica are enough."""
        return self._adaptive and self._pressure.high and len(self._queue) >= self._most_waiting * replicas

    def _worth(self, request: QueuedRequest) -> tuple[float, int]:
        """Return what its caller says that it is worth, or else the plans a second of replica time if it started now.

        Ties favour who came first, or else the shorter prompt.
        """
        if self._by_worth:
            return request.worth, -request.arrival
        chance = self.times.chance(request.deadline - self._clock(), request.length)
        return chance / request.seconds, -request.length

    def _needed(self, length: int) -> float:
        return self.times.quantile(self._quantile, length) or FIRST_EXPECTATION

    def _counted(self, refused: list[QueuedRequest]) -> list[QueuedRequest]:
        for request in refused:
            assert request.refusal is not None
            self.counts[f"refused_{request.refusal.reason}"] += 1
            self._pressure.refused()
        return refused

    def _refused_as_hopeless(self, request: QueuedRequest) -> QueuedRequest:
        return self._refused(request, "there is too little time left for any generation", "deadline")

    def _refused_as_least(self, request: QueuedRequest) -> QueuedRequest:
        return self._refused(request, "far more is asked than all replicas can do", "capacity")

    @staticmethod
    def _refused(request: QueuedRequest, message: str, reason: DegradedReason) -> QueuedRequest:
        request.refusal = CapacityError(message, reason)
        return request
