"""A service in simulated time: the real admission control, and replicas with given service times."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from service.gateway.admission import Admission
from service.gateway.request_queue import QueuedRequest
from service.settings.choices import Order


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: `seconds` that its generation takes, those `allowed` until its answer, its `worth`, whose it is."""

    at: float
    seconds: float
    length: int = 30
    allowed: float = 0.295
    worth: float = 0.0
    client: str = ""


@dataclass(eq=False, slots=True)
class Outcome:
    """The outcome of an arrival: when a replica began it, when it was answered, whether by the model."""

    arrival: Arrival
    request: QueuedRequest
    began: float = math.nan
    ended: float = math.nan
    by_model: bool = False
    ends: float = math.nan  # when its replica is free
    has_given_way: bool = False


class Simulation:
    def __init__(
        self, replicas: int, order: Order = "adaptive", forward: float = 0.02, *, by_worth: bool = False
    ) -> None:
        """Take `forward`, the seconds after its deadline that a generation still keeps its replica."""
        self.clock = Clock()
        self.admission = Admission(order, clock=self.clock, by_worth=by_worth)
        self.replicas = replicas
        self._forward = forward
        self._idle = replicas
        self._events: list[tuple[float, int, Callable[[Outcome], None], Outcome]] = []
        self._numbers = itertools.count()
        self._by_request: dict[QueuedRequest, Outcome] = {}

    def run(self, arrivals: Iterable[Arrival]) -> list[Outcome]:
        """Return the outcomes, in the order of the arrivals."""
        outcomes = [
            Outcome(one, QueuedRequest(one.at + one.allowed, one.length, one.worth, client=one.client))
            for one in arrivals
        ]
        self._by_request = {outcome.request: outcome for outcome in outcomes}
        for outcome in outcomes:
            self._at(outcome.arrival.at, self._arrive, outcome)
        while self._events:
            self.clock.now, _, happen, outcome = heapq.heappop(self._events)
            happen(outcome)
        return outcomes

    def _at(self, when: float, happen: Callable[[Outcome], None], outcome: Outcome) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), happen, outcome))

    def _arrive(self, outcome: Outcome) -> None:
        is_idle = self._idle > 0
        self._refuse(self.admission.ask(outcome.request, idle=is_idle, replicas=self.replicas))
        if outcome.request.refusal is not None:
            return
        if is_idle:
            self._start(outcome)
        else:
            self._make_way(outcome)
            self._at(outcome.request.latest_start, lambda _: self._refuse(self.admission.drop_late()), outcome)

    def _start(self, outcome: Outcome) -> None:
        self._idle -= 1
        outcome.began = self.clock.now
        longest = max(outcome.request.deadline - self.clock.now, 0.0) + self._forward
        outcome.ends = self.clock.now + min(outcome.arrival.seconds, longest)
        self._at(outcome.ends, self._end, outcome)
        self.admission.began(outcome.request)
        self._make_way(outcome)

    def _make_way(self, outcome: Outcome) -> None:
        stopped, again = self.admission.give_way()
        for request in stopped:
            stops = self._by_request[request]
            stops.has_given_way, stops.ends = True, min(stops.ends, self.clock.now + self._forward)
            self._at(stops.ends, self._end, stops)
        if again < math.inf:
            self._at(again, self._make_way, outcome)

    def _end(self, outcome: Outcome) -> None:
        if self.clock.now < outcome.ends or outcome.ended == outcome.ended:
            return  # it gave way before
        self._idle += 1
        outcome.by_model = self.clock.now <= outcome.request.deadline and not outcome.has_given_way
        outcome.ended = min(self.clock.now, outcome.request.deadline)
        taken = self.clock.now - outcome.began
        self.admission.ended(outcome.request, taken, whole=outcome.by_model, replicas=self.replicas)
        if (request := self.admission.next()) is not None:
            self._start(self._by_request[request])

    def _refuse(self, refused: list[QueuedRequest]) -> None:
        for request in refused:
            self._by_request[request].ended = self.clock.now
