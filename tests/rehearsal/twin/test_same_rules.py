"""The compiled gateway against the service's own, on random states: the same decision at every step."""

import ctypes
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from rehearsal.twin.cell import (
    ASKED,
    BY_CHOICE,
    BY_RULE,
    DEGRADED,
    MODEL,
    Cell,
    Constants,
    Load,
    most_inside,
    routed,
    rules,
)
from rehearsal.twin.native import library
from service.gateway.admission import Admission
from service.gateway.load_shedder import LoadShedder
from service.gateway.request_queue import QueuedRequest
from service.planner.caching import Router
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import Routing
from tests.gateway.simulated import Arrival, Clock, Outcome, Simulation
from tests.readers import BOUND, bounded_model, by_length

REASONS = {None: 0, "deadline": 1, "capacity": 2, "engine": 3}


@contextmanager
def compiled_gateway(*, by_worth: bool = False) -> Iterator[tuple[ctypes.CDLL, int]]:
    functions = library.load()
    gateway = functions.gateway_create(ctypes.byref(rules(1, by_worth=by_worth)))
    try:
        yield functions, gateway
    finally:
        functions.gateway_destroy(gateway)


class Both:
    """One gateway twice: whatever is done, is done to both and must have the same outcome."""

    def __init__(self, functions: ctypes.CDLL, gateway: int, replicas: int, *, by_worth: bool = False) -> None:
        self.clock = Clock()
        self.replicas = replicas
        self.python = Admission(clock=self.clock, by_worth=by_worth)
        self.functions, self.gateway = functions, gateway
        self.requests: list[QueuedRequest] = []
        self.running: list[int] = []
        self.decided: list[int] = []
        self.orders: set[str] = set()  # by which a waiter was chosen

    def dropped(self) -> list[int]:
        numbers = (ctypes.c_int * (len(self.requests) + 1))()
        count = self.functions.gateway_dropped(self.gateway, numbers)
        return sorted(numbers[:count])

    def numbers(self, refused: list[QueuedRequest]) -> list[int]:
        return sorted(self.requests.index(request) for request in refused)

    def ask(self, allowed: float, length: int, worth: float = 0.0) -> None:
        now = self.clock.now
        number = self.functions.gateway_new(self.gateway, now + allowed, length, worth)
        request = QueuedRequest(now + allowed, length, worth)
        self.requests.append(request)
        refusal = self.python.certain_refusal(request.deadline, length, self.replicas, worth)
        assert (refusal is not None) == bool(
            self.functions.gateway_certainly_refused(self.gateway, number, now, self.replicas)
        )
        if refusal is not None:
            self.decided.append(REASONS[refusal.reason])
            return
        idle = len(self.running) < self.replicas
        refused = self.python.ask(request, idle=idle, replicas=self.replicas)
        self.functions.gateway_ask(self.gateway, number, now, idle, self.replicas)
        assert self.dropped() == self.numbers(refused)
        mine = self.functions.gateway_refusal(self.gateway, number)
        assert mine == REASONS[request.refusal.reason if request.refusal else None]
        self.decided.append(mine)
        if not mine and idle:
            self.running.append(number)
        if not mine and not idle:
            assert self.functions.gateway_latest_start(self.gateway, number) == request.latest_start

    def end(self, seconds: float) -> None:
        now, number = self.clock.now, self.running.pop(0)
        whole = now <= self.requests[number].deadline
        self.python.ended(self.requests[number], seconds, whole=whole, replicas=self.replicas)
        self.functions.gateway_ended(self.gateway, number, now, seconds, whole, self.replicas)
        if self.python.waiting > 1:
            newest = "newest" if self.python._queue.serves_newest else "oldest"
            self.orders.add("worth" if self.python._pressure.high else newest)
        following = self.python.next()
        chosen = self.functions.gateway_next(self.gateway, now)
        assert chosen == (-1 if following is None else self.requests.index(following))
        if chosen >= 0:
            self.running.append(chosen)

    def drop_late(self) -> None:
        refused = self.python.drop_late()
        self.functions.gateway_drop_late(self.gateway, self.clock.now)
        assert self.dropped() == self.numbers(refused)


@pytest.mark.parametrize("by_worth", [False, True])
@pytest.mark.parametrize("replicas", [1, 2, 8])
@pytest.mark.parametrize("busy", [0.5, 1.0, 1.5, 3.0, 10.0])
def test_every_decision_is_the_gateways_own(replicas: int, busy: float, *, by_worth: bool) -> None:
    """All is random, at calm, at the limit and in a surge; clocks that stand still too."""
    seen: set[int] = set()
    orders, trials = set[str](), 0
    for seed in range(3):
        numbers = random.Random(1000 * seed + replicas)
        with compiled_gateway(by_worth=by_worth) as (functions, gateway):
            both = Both(functions, gateway, replicas, by_worth=by_worth)
            for _ in range(500):
                both.clock.now += numbers.choice([0.0, numbers.expovariate(replicas * busy / 0.04)])
                length = numbers.choice([5, 30, 30, 80, 300])
                if both.running and numbers.random() < min(1.0, 1 / busy):
                    both.end(numbers.lognormvariate(-3.5, 0.6) * (1 + length / 100) * numbers.choice([1, 1, 1, 8]))
                both.ask(numbers.choice([0.295, 0.295, 0.1, 0.02, 1.0]), length, numbers.choice([0.1, 0.4, 0.4, 0.9]))
                if numbers.random() < 0.3:
                    both.drop_late()
                if numbers.random() < 0.005:
                    both.clock.now += 20  # what is known grows old
            seen |= set(both.decided)
            orders |= both.orders
            trials += both.python.counts["trials"]
    assert 0 in seen
    assert busy < 3 or 2 in seen, "a surge that refuses nobody tests nothing"
    assert busy != 1.5 or orders == {"oldest", "newest", "worth"}, "each order of the line has to be seen"
    assert busy > (1.5 if by_worth else 3) or trials, "what is unlikely is tried now and then"


def test_a_gateway_without_replicas_refuses_alike() -> None:
    with compiled_gateway() as (functions, gateway):
        both = Both(functions, gateway, 0)
        for _ in range(20):
            both.clock.now += 0.01
            both.ask(0.295, 30)
        assert set(both.decided) == {REASONS["engine"]}


class Asking(Simulation):
    """The service in simulated time, which asks first whether a request would certainly be refused, as the API does."""

    def _arrive(self, outcome: Outcome) -> None:
        one = outcome.arrival
        refusal = self.admission.certain_refusal(one.at + one.allowed, one.length, self.replicas, one.worth)
        if refusal is None:
            super()._arrive(outcome)
        else:
            outcome.ended = one.at


@pytest.mark.parametrize("routing", get_args(Routing))
@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("busy", [0.7, 1.0, 1.5, 3.0])
def test_a_cell_of_one_host_plans_the_same_requests_by_the_model(
    replicas: int, busy: float, routing: Routing, tmp_path: Path
) -> None:
    """Who plans, starts, ends, the cut at the deadline and late waiters: request by request the same as the service."""
    mean, count = 0.02, 4000
    numbers = np.random.default_rng(replicas)
    rows = np.zeros((count, 6))
    rows[:, 0] = np.cumsum(numbers.exponential(mean / busy / replicas, count))
    rows[:, 1] = np.exp(numbers.normal(np.log(mean) - 0.3, 0.8, count))
    rows[:, 2] = numbers.choice([10, 30, 80], count)
    rows[:, 3] = numbers.choice([0.295, 0.1], count)
    rows[:, 4] = numbers.choice([0.02, 0.2, 0.5, 0.9], count)
    rows[:, 5] = -1
    router, reader = Router(routing), by_length()
    by_worth, choice = routed(routing, bounded_model(tmp_path / "model", BOUND))
    load = Load(times=np.full((1, 1, 1), mean), seconds=rows[-1, 0] + 10, replay=rows, by_worth=by_worth, choice=choice)
    cell = Cell(load, nodes=1, hosts=1, constants=Constants(refit_every=1))
    cell.bring_in(0, 0, replicas, np.zeros(0))
    cell.put_in_everywhere(0, 0.0)
    cell.advance(rows[-1, 0] + 9)
    service = Asking(replicas, forward=mean / 5, by_worth=routing != "off")
    asked = [row for row in rows.tolist() if not router.is_for_reader(task_worth(row[4], reader))]
    outcomes = service.run(
        [Arrival(at, seconds, int(length), allowed, worth) for at, seconds, length, allowed, worth, _ in asked]
    )
    by_model = sum(outcome.by_model for outcome in outcomes)
    chosen = count - len(asked)
    assert cell.outcomes.sum(axis=0)[[MODEL, BY_CHOICE, BY_RULE]].tolist() == [by_model, chosen, len(asked) - by_model]
    assert cell.host_counts[0, ASKED] == len(asked), "what the reader plans by choice is no offered work"
    assert cell.host_counts[0, DEGRADED] == len(asked) - by_model
    assert (chosen > 0) == (routing == "always")
    assert busy < 1.5 or by_model < len(asked)


def task_worth(worth: float, reader: Reader) -> PlanTask:
    """A question of this worth."""
    task = PlanTask(Question.parse("red shoes"), shipped_vocabulary(), reader=reader)
    task.worth = worth
    return task


def test_a_host_answers_503_beyond_as_many_inside_as_the_service() -> None:
    for backlog in (0.001, 0.1, 0.5):
        shedder, inside = LoadShedder(backlog), 0
        while shedder.is_open:
            shedder.__enter__()
            inside += 1
        assert inside == most_inside(backlog)
