"""Max-min fair shares of the replicas' time: which clients are within theirs, and how much the others have used.

A client is whom a rate limit counts, too: the owner of a key or certificate, or else an address. Shares are max-min
fair (Bertsekas and Gallager, Data Networks, 6.5.2): where all together ask for more than there is, a client that asks
for less than an equal part has all of it, and the rest is for the others in equal parts. Nothing is reserved: a
client that is alone has everything. Those beyond their share go in the order of what they have used lately, as with the
virtual counters of Sheng et al., Fairness in Serving Large Language Models (OSDI 2024), and their longest generations
give way: nothing else could bound a wait behind them.

Whether there is enough for all shows after a second at the earliest, and callers whose questions cost most take every
replica in the first tenth of it. So clients that ask for little always go first, and a far longer generation of another
client gives way to them. Others are not told apart while there is enough for all.

One person with many addresses counts as that many clients: only keys tell people apart.

It is pure: it knows neither replicas nor asyncio, and its clock may be simulated.
"""

import math
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from service.gateway.request_queue import QueuedRequest, Use

WINDOW_SECONDS = 1.0  # that are remembered
# Seconds of replicas' time in the window that are always a fair share: shoppers who each have an address are equal.
SMALL_SHARE = 0.15
WITHIN = 1e-9  # in the order of clients: after those who ask for little, before all who are beyond the share
_TOLERANCE = 1.5  # times the share: a client near its share keeps its place, because questions come in bursts
_NEWEST_WEIGHS = 0.2  # in a client's mean
PATIENCE = 0.5  # of the one who waits, in generations of its own usual length
PATIENCE_WITHIN = 2.0  # the same behind somebody within the share: an ordinary generation of theirs ends by then
FAR_MORE = 2.0  # times what another asks for: what runs for it gives way to that one
STOPPING_SECONDS = 0.05  # in which a generation that gives way should have ended; with a dead replica it never does
_SHARE_SECONDS = 0.01  # for which a share holds: reckoning it costs time for each client
_MOST_CLIENTS = 1024  # that are remembered; the one heard of least lately is forgotten


class _Account:
    """Of one client in one window: seconds of replicas' time that it asked for and used."""

    __slots__ = ("asked", "used")

    def __init__(self) -> None:
        self.asked = self.used = 0.0


class _Window:
    """All clients' accounts of some seconds."""

    def __init__(self) -> None:
        self.accounts: OrderedDict[str, _Account] = OrderedDict()  # whom it heard of last is last
        self.asked = 0.0  # by all of them

    def of(self, client: str) -> _Account:
        account = self.accounts.setdefault(client, _Account())
        self.accounts.move_to_end(client)
        if len(self.accounts) > _MOST_CLIENTS:
            self.asked -= self.accounts.popitem(last=False)[1].asked
        return account

    def ask(self, client: str, seconds: float) -> None:
        self.of(client).asked += seconds
        self.asked += seconds


class Shares:
    """What clients asked for and used over a sliding window: the present one, and the part left of the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()  # the present window
        self._present, self._last = _Window(), _Window()
        self._usual: OrderedDict[str, float] = OrderedDict()  # a client's mean seconds; whose ended last is last
        self._running: dict[QueuedRequest, float] = {}  # since when, the oldest first
        self._giving_way: dict[QueuedRequest, float] = {}  # since when
        self._share_was, self._reckoned = 0.0, -math.inf
        self._state: tuple[float, ...] = ()  # of which the share was reckoned

    def saw(self, client: str) -> None:
        """Note that a client is there."""
        self._slide()
        self._present.of(client)

    def asked(self, request: QueuedRequest) -> None:
        """Count a request with the seconds that it should take as its client's do, whether it gets a replica or not."""
        self._slide()
        self._present.ask(request.client, self.usual_seconds(request))

    def worked(self, client: str, seconds: float) -> None:
        """Count the gateway's own work for a client as replicas' time: others wait for both."""
        self._slide()
        self._present.ask(client, seconds)
        self._present.of(client).used += seconds

    def began(self, request: QueuedRequest) -> None:
        """Note that a replica works for a request."""
        self._running[request] = self._clock()

    def ended(self, request: QueuedRequest, *, whole: bool) -> None:
        """Note that a replica works for it no more; nothing where it never began. `whole`: it was not cut short."""
        if (began := self._running.pop(request, None)) is None:
            return
        self._slide()
        self._giving_way.pop(request, None)
        seconds, usual = self._clock() - began, self.usual_seconds(request)
        self._present.of(request.client).used += seconds
        if not whole and seconds <= usual:
            return  # it might have taken any time
        self._present.ask(request.client, seconds - usual)  # what it really asked for
        known = self._usual.get(request.client, seconds)
        self._usual[request.client] = known + (seconds - known) * _NEWEST_WEIGHS
        self._usual.move_to_end(request.client)
        if len(self._usual) > _MOST_CLIENTS:
            self._usual.popitem(last=False)

    def use(self, replicas: int) -> Use | None:
        """Return what a request's client has of the replicas' time, in the order in which they go.

        0 for one who asks for little, `WITHIN` for any other within the share, more for those beyond it: the seconds
        that they used, too. As of now, with so many `replicas` in service. None where there is one client alone.
        """
        self._slide()
        if not self._is_shared:
            return None
        left, running = self._left(), self._seconds_running()
        seconds = replicas * WINDOW_SECONDS
        share = self._share_now(seconds, left) if self.is_short(replicas) else math.inf
        known: dict[str, float] = {}

        def use(request: QueuedRequest) -> float:
            if (order := known.get(client := request.client)) is None:
                demand = self._demand(client, left, running)
                if demand <= _TOLERANCE * SMALL_SHARE:
                    order = 0.0
                elif demand <= _TOLERANCE * share:
                    order = WITHIN
                else:
                    order = WITHIN + max(self._used(client, left, running), SMALL_SHARE)
                known[client] = order
            return order

        return use

    def is_short(self, replicas: int) -> bool:
        """Tell whether all together ask for more than so many replicas can do."""
        self._slide()
        return self._present.asked + self._last.asked * self._left() > replicas * WINDOW_SECONDS

    def give_way(self, waiting: Iterable[QueuedRequest], replicas: int) -> tuple[list[QueuedRequest], float]:
        """Return the running requests that must stop now for some of those who wait, and when to ask again.

        Who is within the share waits behind a generation of somebody beyond it for at most half as long as its own
        take, and begins in time for its deadline; behind one of anybody else who asks for far more it waits for at
        most twice as long.
        """
        if not self._running or (use := self.use(replicas)) is None:
            return [], math.inf
        now, left, running = self._clock(), self._left(), self._seconds_running()
        demand = cache(lambda client: self._demand(client, left, running))
        holders = [request for request in self._running if request not in self._giving_way]
        served = sum(now - since < STOPPING_SECONDS for since in self._giving_way.values())
        within = sorted((request for request in waiting if use(request) <= WITHIN), key=lambda request: request.arrival)
        stopped, again, most = [], math.inf, _most(holders, use, demand)
        for waiter in within[served:]:
            if FAR_MORE * demand(waiter.client) >= most:
                continue
            due, holder = self._first_to_end(waiter, holders, use, demand)
            holders.remove(holder)
            most = _most(holders, use, demand)
            if due > now:
                again = min(again, due)
            else:
                self._giving_way[holder] = now
                stopped.append(holder)
        return stopped, again

    def _first_to_end(
        self, waiter: QueuedRequest, holders: Iterable[QueuedRequest], use: Use, demand: Callable[[str], float]
    ) -> tuple[float, QueuedRequest]:
        """Return when and which of the holders gives way first to one who waits; one of them does, by `_most`."""
        usual, far_more = self.usual_seconds(waiter), FAR_MORE * demand(waiter.client)
        latest = waiter.latest_start - STOPPING_SECONDS
        dues = [
            (min(self._running[holder] + PATIENCE * usual, latest), holder)
            if use(holder) > WITHIN
            else (self._running[holder] + PATIENCE_WITHIN * usual, holder)
            for holder in holders
            if use(holder) > WITHIN or demand(holder.client) > far_more
        ]
        return min(dues, key=lambda each: each[0])

    def usual_seconds(self, request: QueuedRequest) -> float:
        """Return how long its client's generations take on average, or else what is expected of this one."""
        return self._usual.get(request.client, request.seconds)

    @property
    def _is_shared(self) -> bool:
        present, last = self._present.accounts, self._last.accounts
        return len(present) > 1 or len(last) > 1 or len(present.keys() | last.keys()) > 1

    def _left(self) -> float:
        """Return how much of the last window still counts."""
        return 1 - (self._clock() - self._began) / WINDOW_SECONDS

    def _share_now(self, seconds: float, left: float) -> float:
        """Return the share, reckoned anew where somebody has come or some time has passed."""
        state = (len(self._present.accounts), len(self._last.accounts), self._began, seconds)
        if self._clock() - self._reckoned > _SHARE_SECONDS or state != self._state:
            self._share_was, self._reckoned, self._state = self._share(seconds, left), self._clock(), state
        return self._share_was

    def _share(self, seconds: float, left: float) -> float:
        """Return the most that a client may ask for to have it all, where all ask for more than these seconds."""
        asked = sorted(
            self._asked(client, left) for client in self._present.accounts.keys() | self._last.accounts.keys()
        )
        for number, least in enumerate(asked):
            if least * (len(asked) - number) > seconds:
                return max(seconds / (len(asked) - number), SMALL_SHARE)
            seconds -= least
        return math.inf

    def _asked(self, client: str, left: float) -> float:
        return max(_of(self._present, client).asked + _of(self._last, client).asked * left, 0.0)

    def _demand(self, client: str, left: float, running: Mapping[str, float]) -> float:
        """Return what it asked for, or has used where that is more: what a generation takes shows while it runs."""
        return max(self._asked(client, left), self._used(client, left, running))

    def _used(self, client: str, left: float, running: Mapping[str, float]) -> float:
        used = _of(self._present, client).used + _of(self._last, client).used * left
        return used + running.get(client, 0.0)

    def _seconds_running(self) -> dict[str, float]:
        """Return for how long replicas have worked for each client's requests that they still work for."""
        now, seconds = self._clock(), defaultdict[str, float](float)
        for request, began in self._running.items():
            seconds[request.client] += now - began
        return seconds

    def _slide(self) -> None:
        past = int((self._clock() - self._began) / WINDOW_SECONDS)
        if past:
            self._last = self._present if past == 1 else _Window()
            self._present = _Window()
            self._began += past * WINDOW_SECONDS


def _most(holders: Iterable[QueuedRequest], use: Use, demand: Callable[[str], float]) -> float:
    """Return the most that a holder's client demands, which is any if it is beyond its share; 0 without holders."""
    return max((math.inf if use(each) > WITHIN else demand(each.client) for each in holders), default=0.0)


_NOTHING = _Account()


def _of(window: _Window, client: str) -> _Account:
    """Return a client's account, also of one that is not known."""
    return window.accounts.get(client, _NOTHING)
