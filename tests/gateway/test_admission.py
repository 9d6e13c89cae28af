"""Admission control in simulated time: which request starts, waits or is refused, and that estimates recover."""

import math
import random
import statistics
from collections.abc import Callable
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehearsal.simulated_gateway import Arrival, Clock, Outcome, Simulation
from service.gateway.admission import Admission, Pressure
from service.gateway.request_queue import QueuedRequest

ALLOWED = 0.295
SOME_SECONDS = 5.0


def pressure_of(asked: int, refused: int, clock: Clock | None = None) -> Pressure:
    pressure = Pressure(clock or Clock())
    for number in range(asked):
        pressure.asked()
        if number < refused:
            pressure.refused()
    return pressure


@pytest.mark.parametrize(
    ("asked", "refused", "high"), [(100, 90, True), (100, 31, True), (100, 10, False), (4, 4, False), (0, 0, False)]
)
def test_pressure_is_high_when_a_large_share_of_many_is_refused(asked: int, refused: int, high: bool) -> None:
    assert pressure_of(asked, refused).high is high


def test_old_refusals_count_no_more() -> None:
    clock = Clock()
    pressure = pressure_of(100, 90, clock)
    clock.now = 3.0
    for _ in range(10):
        pressure.asked()
    assert not pressure.high


def poisson(rate: float, seconds: float, rng: random.Random) -> list[float]:
    return [at for at in accumulate(rng.expovariate(rate) for _ in range(int(rate * seconds) + 1)) if at < seconds]


def plans_between(outcomes: list[Outcome], start: float, end: float) -> int:
    return sum(outcome.by_model and start <= outcome.arrival.at < end for outcome in outcomes)


@settings(max_examples=100, deadline=None)
@given(
    states=st.lists(st.tuples(st.floats(1e-4, 100.0), st.integers(0, 500), st.booleans()), max_size=150),
    fastest=st.floats(0.001, 0.99 * ALLOWED),
    spread=st.floats(0.0, 1.0),
    rate=st.floats(1.0, 300.0),
    replicas=st.integers(1, 8),
    slope=st.floats(0.0, 1.0),
    seed=st.integers(0, 1000),
)
def test_whatever_it_believes_at_first_the_model_answers_within_seconds(
    states: list[tuple[float, int, bool]],
    fastest: float,
    spread: float,
    rate: float,
    replicas: int,
    slope: float,
    seed: int,
) -> None:
    """Check recovery from any state, for any service times below the deadline, dependent on length or not."""
    simulation, rng = Simulation(replicas), random.Random(seed)
    for seconds, length, whole in states:
        simulation.admission.times.add(seconds, length, whole=whole)

    def arrival(at: float) -> Arrival:
        length = rng.randrange(5, 500)
        share = spread * (slope * length / 500 + (1 - slope) * rng.random())
        return Arrival(at, fastest + (0.99 * ALLOWED - fastest) * share, length, ALLOWED)

    outcomes = simulation.run([arrival(at) for at in (0.0, *poisson(rate, 4 * SOME_SECONDS, rng))])
    assert all(outcome.ended <= outcome.request.deadline for outcome in outcomes)  # and nobody waits for ever
    asked = [outcome.arrival.at for outcome in outcomes]
    for start in (0.0, SOME_SECONDS, 2 * SOME_SECONDS):
        if any(start <= at < start + SOME_SECONDS - 2 for at in asked):
            assert plans_between(outcomes, start, start + SOME_SECONDS) > 0


@settings(max_examples=50, deadline=None)
@given(slow=st.floats(0.4, 60.0), quick=st.floats(0.001, 0.25), rate=st.floats(2.0, 200.0), seed=st.integers(0, 1000))
def test_a_machine_that_was_too_slow_for_a_while_is_found_out_to_be_quick_again(
    slow: float, quick: float, rate: float, seed: int
) -> None:
    simulation, rng = Simulation(2), random.Random(seed)
    arrivals = [Arrival(at, slow if at < 10 else quick) for at in poisson(rate, 20.0, rng)]
    outcomes = simulation.run(arrivals)
    if any(10 < at.at < 13 for at in arrivals):
        assert plans_between(outcomes, 10.0, 15.0) > 0
    by_then = [outcome for outcome in outcomes if outcome.arrival.at > 15]
    if rate * quick < 1:  # a load that two replicas carry easily
        assert sum(outcome.by_model for outcome in by_then) >= 0.5 * len(by_then)


def test_trials_cost_a_bounded_share_of_the_replicas_time_and_are_counted() -> None:
    simulation = Simulation(1)
    outcomes = simulation.run([Arrival(number / 50, 5.0) for number in range(3000)])  # a minute
    busy = sum(min(0.295 + 0.02, outcome.ended - outcome.began + 0.02) for outcome in outcomes if outcome.began >= 0)
    assert not any(outcome.by_model for outcome in outcomes)
    assert busy < 0.3 * 60
    assert simulation.admission.counts["trials"] > 10
    assert simulation.admission.counts["refused_deadline"] > 2000


def test_two_slow_questions_do_not_switch_the_model_off() -> None:
    simulation = Simulation(2)
    slow = [Arrival(0.0, 2.0, length=480), Arrival(0.01, 2.0, length=480)]
    quick = [Arrival(1.0 + number / 4, 0.08, length=25) for number in range(40)]
    outcomes = simulation.run([*slow, *quick])
    assert all(outcome.by_model for outcome in outcomes[2:])


def test_an_idle_replica_takes_what_may_end_in_time() -> None:
    admission = Admission(clock=Clock())
    for seconds in (0.1, 0.2, 0.3, 0.4, 0.5):
        admission.times.add(seconds, 30)
    hopeful = QueuedRequest(deadline=0.15, length=30)
    assert admission.ask(hopeful, idle=True, replicas=1) == []
    assert not hopeful.is_trial


def test_a_trial_that_succeeds_is_followed_by_the_next() -> None:
    clock = Clock()
    admission = Admission(clock=clock)
    for _ in range(100):
        admission.times.add(5.0, 30)
    for _ in range(3):
        request = QueuedRequest(deadline=clock.now + ALLOWED, length=30)
        assert admission.ask(request, idle=True, replicas=1) == []
        assert request.is_trial
        other = QueuedRequest(deadline=clock.now + ALLOWED, length=30)
        assert admission.ask(other, idle=True, replicas=1) == [other]  # one at a time
        admission.ended(request, 0.1, whole=True, replicas=1)
    assert admission.counts == {"trials": 3, "refused_deadline": 3}


def test_with_no_replica_up_that_is_known_at_once() -> None:
    admission = Admission(clock=Clock())
    request = QueuedRequest(deadline=math.inf)
    assert admission.ask(request, idle=False, replicas=0) == [request]
    certain = admission.certain_refusal(math.inf, 0, replicas=0)
    assert certain is not None
    assert certain.reason == "engine"
    assert admission.counts == {"refused_engine": 2}


def mixed(rng: random.Random) -> tuple[int, float]:
    """Draw the length and seconds of a question on a slow machine: p50 0.19 s, p99 0.7 s, longer for longer prompts."""
    length = min(int(rng.lognormvariate(3.5, 0.6)), 500)
    return length, (0.13 + 0.0023 * length) * rng.lognormvariate(-0.12, 0.45)


@pytest.mark.parametrize("times_capacity", [10, 30])
def test_far_beyond_capacity_a_slow_machine_still_makes_the_plans_that_it_can(times_capacity: int) -> None:
    """Compare goodput with capacity: the plans of the same replicas and questions without deadlines."""
    rng = random.Random(1)
    capacity = 2 / statistics.fmean(mixed(rng)[1] for _ in range(10_000))
    arrivals = []
    for at in poisson(times_capacity * capacity, 60.0, rng):
        length, seconds = mixed(rng)
        arrivals.append(Arrival(at, seconds, length, ALLOWED))
    simulation = Simulation(2, forward=0.06)
    outcomes = simulation.run(arrivals)
    assert plans_between(outcomes, 0.0, 60.0) >= 0.9 * 60 * capacity
    assert all(outcome.ended <= outcome.request.deadline for outcome in outcomes)


@pytest.mark.parametrize("worth_more", [lambda: QueuedRequest(10.0, 20), lambda: QueuedRequest(0.2, 20)])
def test_under_high_pressure_one_waits_for_each_replica_and_it_is_the_one_worth_most(
    worth_more: Callable[[], QueuedRequest],
) -> None:
    admission = Admission(clock=Clock())
    for length in (20, 40, 80, 160, 320):
        admission.times.add(0.02 + length / 1000, length)
    for _ in range(40):  # nothing can be done in zero time: these are refused
        admission.ask(QueuedRequest(deadline=0.0), idle=True, replicas=1)
    long, longer = QueuedRequest(10.0, 200), QueuedRequest(10.0, 300)
    assert admission.ask(long, idle=False, replicas=1) == []
    assert admission.certain_refusal(10.0, 300, replicas=1) is not None
    assert admission.ask(longer, idle=False, replicas=1) == [longer]
    assert admission.certain_refusal(10.0, 20, replicas=1) is None
    short = worth_more()
    assert admission.ask(short, idle=False, replicas=1) == [long]
    assert admission.waiting == 1
    assert admission.next() is short
