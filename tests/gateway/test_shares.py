"""Fair shares, and the service times they and admission reckon with, in simulated time."""

import math
import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.gateway.admission import Admission
from service.gateway.request_queue import QueuedRequest
from service.gateway.service_times import KEPT, MAX_AGE_SECONDS, WINDOW, ServiceTimes
from service.gateway.shares import WINDOW_SECONDS, WITHIN, Shares
from tests.gateway.simulated import Arrival, Clock, Outcome, Simulation


def test_the_window_is_bounded_in_number_and_age_but_for_the_last_ones() -> None:
    clock = Clock()
    times = ServiceTimes(clock)
    for _ in range(WINDOW + 10):
        times.add(9.0)
    assert len(times) == len(times._window) == len(times._sorted) == WINDOW
    clock.now = MAX_AGE_SECONDS / 2
    for _ in range(KEPT):
        times.add(1.0)
    for clock.now in (MAX_AGE_SECONDS + 0.1, 3600.0):
        assert len(times) == KEPT
        assert times.quantile(0.5) == times.mean == pytest.approx(1.0)


@given(st.lists(st.tuples(st.floats(1e-4, 60.0), st.integers(0, 4000)), min_size=1, max_size=200), st.integers(0, 4000))
def test_whatever_was_seen_longer_prompts_take_no_less(seen: list[tuple[float, int]], length: int) -> None:
    times = ServiceTimes()
    for seconds, of in seen:
        times.add(seconds, of)
    assert 0 < times.expected(length) <= times.expected(length + 100)
    assert 0 < times.quantile(0.05, length) <= times.quantile(0.7, length) <= times.quantile(1.0, length)
    assert times.chance(times.quantile(0.5, length) * 1.001, length) >= 0.4
    assert times.chance(times.quantile(1.0, length) * 1.001, length) == 1


def test_what_is_always_late_has_no_chance_and_says_nothing_of_less() -> None:
    """Remembered as lasting until its deadline alone, it seemed to end just in time."""
    times = ServiceTimes()
    for _ in range(20):
        times.add(0.1, 40)
    for _ in range(4):
        times.add(0.3, 600, whole=False, late=True)
    assert times.chance(0.3, 600) == 0.0
    assert times.chance(0.3, 480) == 0.0, "about as long"
    assert times.chance(0.3, 479) > 0.0, "shorter"
    assert times.chance(0.376, 600) > 0.0, "with far more time"
    assert times.chance(0.3, 40) == 1.0
    times.add(0.25, 700)
    assert times.chance(0.3, 600) == pytest.approx(1 / 5), "one that ended tells as well"
    times.add(0.25, 479)
    assert times.chance(0.3, 600) == pytest.approx(1 / 5), "not a shorter one"


SECONDS = 0.02


def crowd(rng: random.Random, replicas: int) -> list[Arrival]:
    """Return a shop's questions, a tenth of what there is, and those of four who ask for three times as much as all."""
    ours = [
        Arrival(at, rng.uniform(0.03, 0.06), client="shop")
        for at in accumulate(rng.expovariate(2.0 * replicas) for _ in range(400))
    ]
    theirs = [
        Arrival(at, rng.uniform(0.06, 0.49), client=f"costly {number}")
        for number in range(4)
        for at in accumulate(rng.expovariate(2.5 * replicas) for _ in range(int(ours[-1].at * 2.5 * replicas)))
    ]
    return sorted([*ours, *theirs], key=lambda one: one.at)


def of_the_shop(outcomes: list[Outcome]) -> list[Outcome]:
    """Return its outcomes once it is known who asks for how much."""
    return [outcome for outcome in outcomes if outcome.arrival.client == "shop" and outcome.arrival.at > 0.5]


@pytest.mark.parametrize(("replicas", "planned"), [(1, 0.95), (2, 0.99), (4, 0.99)])
def test_costly_clients_hold_nobody_up_who_asks_for_a_fair_share(replicas: int, planned: float) -> None:
    """With one replica some wait for the one that stops."""
    simulation = Simulation(replicas, by_worth=True)
    ours = of_the_shop(simulation.run(crowd(random.Random(1), replicas)))
    taken = sorted(outcome.ended - outcome.arrival.at for outcome in ours)
    assert sum(outcome.by_model for outcome in ours) >= planned * len(ours)
    assert replicas == 1 or taken[int(0.99 * len(taken))] <= 2 * 0.06
    assert simulation.admission.counts["gave_way"] > 0


@pytest.mark.parametrize("replicas", [1, 2])
def test_questions_that_no_replica_plans_in_time_take_nothing_from_others(replicas: int) -> None:
    """They once had two thirds of the replicas: each was cut short by its deadline and remembered as taking that long.

    What they asked for in vain counted, too, and left a bystander on a slow machine a fifth of what there is.
    """
    rng = random.Random(4)
    ours = [
        Arrival(at, rng.uniform(0.11, 0.19), length=rng.randrange(25, 90), client="shop")
        for at in accumulate(rng.expovariate(2.0 * replicas) for _ in range(150 * replicas))
    ]
    hopeless = [
        Arrival(at, rng.uniform(0.6, 0.9), length=600, client=f"costly {number}")
        for number in range(4)
        for at in accumulate(rng.expovariate(6.0) for _ in range(int(6.0 * ours[-1].at)))
    ]
    alone = of_the_shop(Simulation(replicas).run(ours))
    outcomes = Simulation(replicas).run(sorted([*ours, *hopeless], key=lambda one: one.at))
    beside = of_the_shop(outcomes)
    lost = sum(outcome.by_model for outcome in alone) - sum(outcome.by_model for outcome in beside)
    assert lost <= 0.03 * len(alone)
    theirs = [outcome for outcome in outcomes if outcome.arrival.length == 600 and outcome.began >= 0]
    assert 0 < sum(outcome.ends - outcome.began for outcome in theirs) < 0.1 * replicas * ours[-1].at


def test_while_there_is_enough_for_all_hardly_anybody_gives_way() -> None:
    """Only a generation more than twice as long as another client's, where it asks for more than twice as much."""
    rng = random.Random(2)
    drawn = [
        Arrival(at, rng.uniform(0.01, 0.09), client="b" if rng.random() < 0.1 else "a")
        for at in accumulate(rng.expovariate(0.5 * 2 / 0.05) for _ in range(3000))
    ]
    simulation = Simulation(2)
    outcomes = simulation.run(drawn)
    assert simulation.admission.counts["gave_way"] <= 0.001 * len(outcomes)
    assert sum(outcome.by_model for outcome in outcomes) > 0.98 * len(outcomes)


def test_two_who_ask_for_too_much_share_equally_whatever_else_they_ask_for() -> None:
    rng = random.Random(3)
    drawn = sorted(
        (
            Arrival(at, 0.05, allowed=0.5, client=client)
            for client, rate in (("a", 200.0), ("b", 60.0))
            for at in accumulate(rng.expovariate(rate) for _ in range(int(20 * rate)))
        ),
        key=lambda one: one.at,
    )
    planned = {"a": 0, "b": 0}
    for outcome in Simulation(2, by_worth=True).run(drawn):
        planned[outcome.arrival.client] += outcome.by_model
    assert 0.6 < planned["a"] / planned["b"] < 1.7


def test_what_is_remembered_is_bounded_and_fades() -> None:
    clock = Clock()
    shares = Shares(clock)
    for number in range(5000):
        each = QueuedRequest(1.0, seconds=1.0, client=str(number))
        shares.asked(each)
        shares.began(each)
        shares.ended(each, whole=True)
    assert len(shares._present.accounts) == len(shares._usual) == 1024
    assert shares.use(1) is not None
    clock.now = 2 * WINDOW_SECONDS
    assert shares.use(1) is None


def test_what_the_gateway_did_for_a_client_counts_in_its_share_as_replicas_time_does() -> None:
    """Rules' work once counted nowhere: a caller's costly questions were as welcome at the model as anybody's."""
    admission = Admission(clock=Clock())
    for client, questions in (("costly", 12), ("shop", 1)):
        for _ in range(questions):
            admission._shares.asked(QueuedRequest(10.0, seconds=0.1, client=client))
    assert uses(admission._shares, "costly") == [0.0], "it asks for about as much as there is"
    for _ in range(180):
        admission.worked("costly", 0.005)
    assert uses(admission._shares, "costly", "shop") == [pytest.approx(0.9), LITTLE]
    costly, ours = (QueuedRequest(10.0, client=client) for client in ("costly", "shop"))
    for request in (costly, ours):
        assert admission.ask(request, idle=False, replicas=1) == []
    assert [admission.next(), admission.next()] == [ours, costly]


LITTLE = -1.0  # comes before all others


def ask(shares: Shares, **seconds: float) -> None:
    for client, each in seconds.items():
        shares.asked(QueuedRequest(9.0, seconds=each, client=client))


def uses(shares: Shares, *clients: str, replicas: int = 1) -> list[float] | None:
    """Return what each is beyond its share by, or LITTLE where it asks for no more; None where there is one client."""
    use = shares.use(replicas)
    if use is None:
        return None
    orders = [use(QueuedRequest(9.0, client=client)) for client in clients]
    return [order - WITHIN if order else LITTLE for order in orders]


@pytest.mark.parametrize(
    ("whole", "seconds", "usual", "asked"), [(True, 0.2, 0.2, 0.2), (False, 0.2, 1.0, 1.0), (False, 1.1, 1.1, 1.0)]
)
def test_what_a_clients_generations_take_is_learnt_from_those_that_tell(
    whole: bool, seconds: float, usual: float, asked: float
) -> None:
    """One that was cut short might have taken any time, unless it had taken longer than usual already."""
    clock = Clock()
    shares, request = Shares(clock), QueuedRequest(9.0, seconds=1.0, client="a")
    shares.asked(request)
    shares.began(request)
    clock.now = seconds
    shares.ended(request, whole=whole)
    known = [shares.usual_seconds(QueuedRequest(9.0, seconds=1.0, client=client)) for client in "ab"]
    assert known == [pytest.approx(usual), 1.0]
    assert shares._asked("a", shares._left()) == pytest.approx(asked), "what it took, of which a tenth has passed"


def holders(shares: Shares, clock: Clock, *at: float) -> list[QueuedRequest]:
    """Let a greedy client's generations begin at these moments, where a shop asks for little."""
    running = []
    for moment in at:
        clock.now = moment
        running.append(QueuedRequest(9.0, seconds=5.0, client="greedy"))
        shares.began(running[-1])
    ask(shares, greedy=20.0, shop=0.1)
    return running


def waiter(seconds: float = 0.1, latest_start: float = math.inf, arrival: int = 0) -> QueuedRequest:
    return QueuedRequest(9.0, seconds=seconds, latest_start=latest_start, arrival=arrival, client="shop")


def test_a_generation_that_does_not_stop_is_no_longer_counted_on() -> None:
    """A dead replica never ends; who waits for it has another one then."""
    clock = Clock()
    shares = Shares(clock)
    first, second = holders(shares, clock, 0.0, 0.01)
    waiting = [waiter()]
    clock.now = 0.07
    assert shares.give_way(waiting, 2) == ([first], math.inf)
    clock.now = 0.119
    assert shares.give_way(waiting, 2) == ([], math.inf)
    clock.now = 0.121
    assert shares.give_way(waiting, 2) == ([second], math.inf)
    shares.ended(first, whole=False)
    shares.ended(second, whole=False)
    assert shares.give_way(waiting, 2) == ([], math.inf), "nothing runs"


def test_the_oldest_generation_gives_way_to_whoever_came_first() -> None:
    clock = Clock()
    shares = Shares(clock)
    first, second = holders(shares, clock, 0.0, 0.02)
    late, early = waiter(0.1, arrival=2), waiter(0.04, arrival=1)
    clock.now = 0.021
    assert shares.give_way([late, early], 2) == ([first], pytest.approx(0.07)), "0.02 and half of the other's 0.1"
    shares.ended(first, whole=False)
    clock.now = 0.071
    assert shares.give_way([late], 2) == ([second], math.inf)


def test_nobody_gives_way_to_one_beyond_the_share_nor_does_one_within_it() -> None:
    clock = Clock()
    shares = Shares(clock)
    (holder,) = holders(shares, clock, 0.0)
    ours = waiter()
    shares.began(ours)
    clock.now = 0.5
    assert shares.give_way([QueuedRequest(9.0, seconds=0.1, client="greedy")], 1) == ([], math.inf)
    assert shares.give_way([waiter(), waiter(arrival=1)], 1) == ([holder], math.inf)
    assert shares.give_way([], 1) == ([], math.inf)


def test_what_a_client_has_used_counts_where_it_asked_for_less() -> None:
    """Generations that are cut short teach nothing of how long they take, and yet take it."""
    clock = Clock()
    shares = Shares(clock)
    ask(shares, a=0.1, b=0.5, c=0.5)
    shares.began(QueuedRequest(9.0, client="a"))
    clock.now = 0.9
    assert uses(shares, "a") == [pytest.approx(0.9)]


def test_a_share_is_an_equal_part_of_what_is_left_by_those_who_ask_for_less() -> None:
    """Of a second, the client that asks for 0.2 gets it, and the others may have 0.4 each, and somewhat more."""
    shares = Shares(Clock())
    ask(shares, small=0.2, middle=0.5, large=3.0)
    assert uses(shares, "small", "middle", "large") == [LITTLE, 0.0, 0.15]
    ask(shares, other=3.0)
    assert uses(shares, "small", "middle", "large") == [LITTLE, 0.15, 0.15]
    assert uses(shares, "middle", "large", replicas=2) == [0.0, 0.15]
