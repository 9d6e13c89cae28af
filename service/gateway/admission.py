"""Admission control: which request gets a replica, waits for one, or is refused because none will be free in time.

It is pure: it knows service times and deadlines, neither replicas nor asyncio, and its clock may be simulated.
`dispatcher.py` runs it in the service, and a simulator may run it anywhere:

    refused = admission.ask(request, idle=..., replicas=...)   # else it starts now, if one is idle, or waits
    request = admission.next()                                 # a replica has come free
    admission.began(request)                                   # it works for this one
    stopped, again = admission.give_way()                      # whose generation is too long for who waits
    admission.ended(request, seconds, whole=..., replicas=...) # what it took
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable

from service.engines.protocol import DegradedReason
from service.gateway.request_queue import CapacityError, QueuedRequest, RequestQueue, Use
from service.gateway.service_times import ServiceTimes
from service.gateway.shares import WITHIN, Shares
from service.settings.choices import ADMISSION_QUANTILE, Order

FIRST_EXPECTATION = 0.15  # seconds; used until the first generation ends
WAITING_BY_WORTH = 2  # for each replica under high pressure: more to choose from, and still soon refused
_HOPELESS = 0.05  # an idle replica is used at once where at least this share of generations would end in time,
_HOPELESS_UNDER_PRESSURE = 0.2  # or this share while another request, which may fit better, is expected soon
# A less likely request is tried anyway while such trials cost at most this share of all replicas' time: the
# estimate may be wrong or outdated. A trial that succeeds costs nothing: it is a plan.
_TRIAL_SHARE = 0.2
# While other generations end whole the estimate is as new as they are, and what it rules out is most often hopeless:
# questions far too long, which callers may ask for ever.
_TRIAL_SHARE_BESIDE = 0.02
_NEW_SECONDS = 1.0  # since a generation ended whole


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

        With `by_worth`, if not all waiting requests can be served, the one of most worth goes first, the oldest of
        equals. So no request is refused for one of less worth. If all can be served, the oldest goes first: otherwise
        the request of least worth would be overtaken until it is too late.

        Before any of this, when several clients together ask for more than there is, clients within their fair share
        go first, then those that have used least (`shares.py`).
        """
        self.times = ServiceTimes(clock)  # for all replicas
        self.counts: Counter[str] = Counter()  # refusals by reason, and trials
        self._queue = RequestQueue(order, clock)
        self._shares = Shares(clock)
        self._adaptive = order == "adaptive" or by_worth
        self._by_worth = by_worth
        self._most_waiting = WAITING_BY_WORTH if by_worth else 1
        self._quantile = quantile
        self._clock = clock
        self._pressure = Pressure(clock)
        self._arrivals = itertools.count()
        self._next_trial = self._last_whole = -math.inf
        self._replicas = 1  # when it was asked last

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

        Unless refused, it starts now where a replica is idle, and has joined the queue where none is. One that no
        idle replica would take asks for no part of the replicas' time: others' parts are not less for it.
        """
        self._pressure.asked()
        request.arrival = next(self._arrivals)
        self._replicas = max(replicas, 1)
        if not replicas:
            return self._counted([self._refused(request, "no replica is up", "engine")])
        self._shares.saw(request.client)
        request.seconds = self.times.expected(request.length) or FIRST_EXPECTATION
        scale = self._scale(request)
        request.seconds *= scale
        is_likely = self._is_likely(request, scale)
        if idle:
            if not is_likely and not self._is_tried(request):
                return self._counted([self._refused_as_hopeless(request)])
            self._shares.asked(request)
            return []
        if is_likely:
            self._shares.asked(request)
        needed = self.times.quantile(self._quantile, request.length) or FIRST_EXPECTATION
        request.latest_start = request.deadline - needed * scale
        if request.latest_start < self._clock():
            return self._counted([self._refused_as_hopeless(request)])
        refused: list[QueuedRequest] = []
        use = self._shares.use(replicas)
        if self._is_full(replicas):
            least = self._least(use)
            if self._precedence(request, use) <= self._precedence(least, use):
                return self._counted([self._refused_as_least(request)])
            self._queue.leave(least)
            refused.append(self._refused_as_least(least))
        worth = self._worth if self._by_worth else None
        return self._counted([*refused, *self._queue.join(request, replicas, worth, use)])

    def certain_refusal(
        self, deadline: float, length: int, replicas: int, worth: float = 0.0, client: str = ""
    ) -> CapacityError | None:
        """Return why a request that came now would certainly get no replica, else None; counted as its refusal."""
        seconds = self.times.expected(length) or FIRST_EXPECTATION
        request = QueuedRequest(deadline, length, worth, next(self._arrivals), seconds, client=client)
        self._shares.saw(client)
        use = self._shares.use(self._replicas)
        refused = []
        if not replicas:
            refused = [self._refused(request, "no replica is up", "engine")]
        elif self._is_full(replicas) and self._precedence(request, use) <= self._precedence(self._least(use), use):
            refused = [self._refused_as_least(request)]
        if refused:
            self._pressure.asked()
            self._shares.asked(request)
        self._counted(refused)
        return request.refusal

    def next(self) -> QueuedRequest | None:
        """Return the waiter whose turn it is now that a replica is free."""
        use = self._shares.use(self._replicas) if len(self._queue) > 1 else None
        is_short = self._adaptive and self._pressure.high
        if self._by_worth and not is_short:
            is_short = self._queue.serves_newest or not self._queue.all_in_time(self._replicas, use)
        return self._queue.next(self._worth if is_short else None, use)

    def began(self, request: QueuedRequest) -> None:
        """Note that a replica works for a request now: its client uses it."""
        self._shares.began(request)

    def worked(self, client: str, seconds: float) -> None:
        """Count what the gateway itself has done for a client, in seconds: reading, completing."""
        self._shares.worked(client, seconds)

    def give_way(self) -> tuple[list[QueuedRequest], float]:
        """Return the requests whose generation must stop now, for somebody within a fair share, and when to ask again.

        That is on the clock, in seconds; ask before where somebody has joined the queue or a replica has begun.
        """
        if not self.waiting:
            return [], math.inf
        stopped, again = self._shares.give_way(self._queue, self._replicas)
        self.counts["gave_way"] += len(stopped)
        return stopped, again

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
        self._shares.ended(request, whole=whole)
        if seconds is not None:
            is_late = not whole and self._clock() >= request.deadline
            self.times.add(seconds, request.length, whole=whole, late=is_late)
        if whole:
            self._last_whole = self._clock()
        if request.is_trial:
            is_new = self._clock() - self._last_whole < _NEW_SECONDS
            share = _TRIAL_SHARE_BESIDE if is_new else _TRIAL_SHARE
            pause = (seconds or 0.0) * max(1 / (share * max(replicas, 1)) - 1, 0.0)
            self._next_trial = self._clock() + (0.0 if whole else pause)

    def _is_likely(self, request: QueuedRequest, scale: float) -> bool:
        """Tell whether an idle replica would run this because it may well end in time."""
        enough = _HOPELESS_UNDER_PRESSURE if self._pressure.high else _HOPELESS
        return self.times.chance((request.deadline - self._clock()) / scale, request.length) >= enough

    def _is_tried(self, request: QueuedRequest) -> bool:
        """Tell whether an unlikely request is run all the same: a trial; one runs at a time."""
        if request.deadline <= self._clock() or self._clock() < self._next_trial:
            return False
        request.is_trial = True
        self._next_trial = math.inf
        self.counts["trials"] += 1
        return True

    def _is_full(self, replicas: int) -> bool:
        """Tell whether the queue is full: under high pressure, a few waiters for each replica are enough."""
        return self._adaptive and self._pressure.high and len(self._queue) >= self._most_waiting * replicas

    def _least(self, use: Use | None) -> QueuedRequest:
        """Return who waits and comes last. Raises ValueError when none waits."""
        return self._queue.least(lambda request: self._precedence(request, use))

    def _precedence(self, request: QueuedRequest, use: Use | None) -> tuple[float, float, int]:
        """Return what decides where only one of two can wait: whose client used less, then what it is worth."""
        return (0.0 if use is None else -use(request), *self._worth(request))

    def _worth(self, request: QueuedRequest) -> tuple[float, int]:
        """Return what its caller says that it is worth, or else the plans a second of replica time if it started now.

        Ties favour who came first, or else the shorter prompt.
        """
        if self._by_worth:
            return request.worth, -request.arrival
        chance = self.times.chance(request.deadline - self._clock(), request.length)
        return chance / request.seconds, -request.length

    def _scale(self, request: QueuedRequest) -> float:
        """Return how many times as long as others' a request should take.

        1, except where its client keeps within a fair share of too little: others' costly questions must not shut it
        out.
        """
        use = self._shares.use(self._replicas) if self._shares.is_short(self._replicas) else None
        return 1.0 if use is None or use(request) > WITHIN else self._shares.usual_seconds(request) / request.seconds

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
