"""Admission by worth, in simulated time: whoever matters most goes first, and nobody is wronged."""

import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehearsal.simulated_gateway import Arrival, Clock, Outcome, Simulation
from service.gateway.admission import Admission
from service.gateway.request_queue import QueuedRequest

SECONDS = 0.02
worths = st.integers(0, 5).map(lambda number: number / 5)
arrivals = st.lists(
    st.tuples(st.floats(0.0, 0.02), worths, st.floats(0.03, 0.3), st.floats(0.005, 0.05)), min_size=1, max_size=120
)


def simulate(drawn: list[tuple[float, float, float, float]], replicas: int) -> list[Outcome]:
    simulation = Simulation(replicas, by_worth=True)
    for _ in range(20):
        simulation.admission.times.add(SECONDS)
    times = accumulate(gap for gap, *_ in drawn)
    return simulation.run(
        Arrival(at, seconds, allowed=allowed, worth=worth)
        for at, (_, worth, allowed, seconds) in zip(times, drawn, strict=True)
    )


def began(outcome: Outcome) -> bool:
    return outcome.began == outcome.began  # a number


def refused_for_want_of_replicas(outcome: Outcome) -> bool:
    return outcome.request.refusal is not None and outcome.request.refusal.reason == "capacity"


@settings(max_examples=200, deadline=None)
@given(drawn=arrivals, replicas=st.integers(1, 4))
def test_nobody_is_refused_while_one_of_less_worth_waits_on(
    drawn: list[tuple[float, float, float, float]], replicas: int
) -> None:
    outcomes = simulate(drawn, replicas)
    from_queue = [outcome for outcome in outcomes if outcome.began > outcome.arrival.at]
    for lost in filter(refused_for_want_of_replicas, outcomes):
        for other in from_queue:
            if other.request.worth < lost.request.worth:
                is_late = lost.ended == lost.request.latest_start  # for whom there was no time, whoever waits on
                assert is_late or not other.arrival.at < lost.ended < other.began


@settings(max_examples=200, deadline=None)
@given(drawn=arrivals, replicas=st.integers(1, 4))
def test_nobody_waits_past_the_deadline(drawn: list[tuple[float, float, float, float]], replicas: int) -> None:
    for outcome in simulate(drawn, replicas):
        assert outcome.ended <= outcome.request.deadline
        if refused_for_want_of_replicas(outcome):
            assert outcome.ended <= outcome.request.latest_start


@settings(max_examples=200, deadline=None)
@given(drawn=arrivals, replicas=st.integers(1, 4))
def test_equal_worth_is_first_come_first_served(drawn: list[tuple[float, float, float, float]], replicas: int) -> None:
    equal = [(gap, 0.5, allowed, seconds) for gap, _, allowed, seconds in drawn]
    starts = [outcome.began for outcome in simulate(equal, replicas) if began(outcome)]
    assert all(first <= second for first, second in pairwise(starts))


@pytest.mark.parametrize("times_capacity", [2, 10])
def test_past_capacity_the_model_has_what_matters_and_makes_as_many_plans(times_capacity: int) -> None:
    rng = random.Random(3)
    drawn = [
        (rng.expovariate(times_capacity * 2 / SECONDS), rng.random(), 0.295, SECONDS * rng.uniform(0.5, 1.5))
        for _ in range(times_capacity * 2000)
    ]
    outcomes = simulate(drawn, replicas=2)
    blind = Simulation(2)
    by_chance = blind.run([outcome.arrival for outcome in outcomes])
    planned = [outcome for outcome in outcomes if outcome.by_model]
    assert len(planned) >= 0.95 * sum(outcome.by_model for outcome in by_chance)
    mean = sum(outcome.request.worth for outcome in planned) / len(planned)
    best = 1 - 0.5 / times_capacity  # the mean of the best share that capacity can do
    assert mean > 0.5 + 0.7 * (best - 0.5)


def test_below_capacity_as_many_are_planned_by_the_model_as_where_the_oldest_goes_first() -> None:
    """Whoever matters least is not overtaken until it is too late: once, 455 were refused here for 96 by chance."""
    rng = random.Random(1)
    times = accumulate(rng.expovariate(0.8 * 2 / SECONDS) for _ in range(20_000))
    drawn = [Arrival(at, SECONDS * rng.uniform(0.5, 1.5), allowed=0.15, worth=rng.random()) for at in times]
    lost = {}
    for by_worth in (False, True):
        simulation = Simulation(2, by_worth=by_worth)
        for _ in range(20):
            simulation.admission.times.add(SECONDS)
        lost[by_worth] = sum(not outcome.by_model for outcome in simulation.run(drawn))
    assert lost[True] <= 1.1 * lost[False] < 400


def test_a_request_of_more_worth_takes_the_place_of_the_newest_of_least() -> None:
    admission = Admission(clock=Clock(), by_worth=True)
    for _ in range(20):
        admission.times.add(SECONDS)
    for _ in range(40):  # nothing can be done in zero time: pressure is high
        admission.ask(QueuedRequest(deadline=0.0), idle=True, replicas=1)
    first, second, third = (QueuedRequest(10.0, worth=worth) for worth in (0.2, 0.2, 0.2))
    assert admission.ask(first, idle=False, replicas=1) == []
    assert admission.ask(second, idle=False, replicas=1) == []
    assert admission.ask(third, idle=False, replicas=1) == [third]
    assert admission.certain_refusal(10.0, 0, 1, worth=0.2) is not None
    assert admission.certain_refusal(10.0, 0, 1, worth=0.3) is None
    most = QueuedRequest(10.0, worth=0.3)
    assert admission.ask(most, idle=False, replicas=1) == [second]
    assert [admission.next(), admission.next(), admission.next()] == [most, first, None]
