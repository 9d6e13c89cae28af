"""Fair shares in simulated time: whoever asks for no more than a fair share is served as if there were nobody else."""

import random
from itertools import accumulate, pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehearsal.simulated_gateway import Arrival, Clock, Outcome, Simulation
from service.gateway.admission import Admission
from service.gateway.request_queue import QueuedRequest
from service.gateway.shares import SMALL_SHARE, WINDOW_SECONDS, WITHIN, Shares

SECONDS = 0.02
arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 0.02),  # after the one before
        st.integers(0, 5).map(lambda number: number / 5),  # worth
        st.floats(0.03, 0.3),  # allowed
        st.floats(0.005, 0.2),  # seconds that it takes
        st.sampled_from("aaaaaabbc"),  # whose
    ),
    min_size=1,
    max_size=120,
)
Drawn = list[tuple[float, float, float, float, str]]


class Watched(Simulation):
    """A simulation that remembers who waited, and whose use was what, when somebody was refused or began."""

    def __init__(self, replicas: int, *, by_worth: bool) -> None:
        super().__init__(replicas, by_worth=by_worth)
        self.decisions: list[SimpleNamespace] = []
        for _ in range(20):
            self.admission.times.add(SECONDS)

    def _noted(self, kind: str, request: QueuedRequest) -> None:
        use = self.admission._shares.use(self.replicas) or (lambda _: 0.0)
        waiting = [(each, use(each)) for each in self.admission._queue]
        self.decisions.append(
            SimpleNamespace(kind=kind, at=self.clock.now, request=request, use=use(request), waiting=waiting)
        )

    def _refuse(self, refused: list[QueuedRequest]) -> None:
        for request in refused:
            self._noted("refused", request)
        super()._refuse(refused)

    def _start(self, outcome: Outcome) -> None:
        self._noted("began", outcome.request)
        super()._start(outcome)


def simulate(drawn: Drawn, replicas: int, *, by_worth: bool = True) -> tuple[Watched, list[Outcome]]:
    simulation = Watched(replicas, by_worth=by_worth)
    times = accumulate(gap for gap, *_ in drawn)
    return simulation, simulation.run(
        Arrival(at, seconds, allowed=allowed, worth=worth, client=client)
        for at, (_, worth, allowed, seconds, client) in zip(times, drawn, strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(drawn=arrivals, replicas=st.integers(1, 4), by_worth=st.booleans())
def test_nobody_is_refused_for_somebody_who_comes_after(drawn: Drawn, replicas: int, by_worth: bool) -> None:
    """Whoever is refused for want of replicas is so because of those before: less use, or as much and more worth."""
    simulation, _ = simulate(drawn, replicas, by_worth=by_worth)
    for refused in (each for each in simulation.decisions if each.kind == "refused"):
        request = refused.request
        is_late = refused.at >= request.latest_start  # for whom there was no time, whoever waits on
        if request.refusal.reason != "capacity" or is_late:
            continue
        before = [other for other, use in refused.waiting if use <= refused.use]
        assert before, "it was refused although all who wait on come after it"
        if by_worth:
            assert all(other.worth >= request.worth for other, use in refused.waiting if use == refused.use), (
                "somebody of less worth, with the same use, waits on"
            )


@settings(max_examples=150, deadline=None)
@given(drawn=arrivals, replicas=st.integers(1, 4), by_worth=st.booleans())
def test_who_begins_is_among_those_with_least_use_and_nobody_waits_past_the_deadline(
    drawn: Drawn, replicas: int, by_worth: bool
) -> None:
    simulation, outcomes = simulate(drawn, replicas, by_worth=by_worth)
    for began in (each for each in simulation.decisions if each.kind == "began"):
        assert began.use <= min((use for _, use in began.waiting), default=began.use)
    assert all(outcome.ended <= outcome.request.deadline for outcome in outcomes)


@settings(max_examples=100, deadline=None)
@given(drawn=arrivals, replicas=st.integers(1, 4), by_worth=st.booleans())
def test_a_client_that_is_alone_is_served_as_where_nobody_is_told_apart(
    drawn: Drawn, replicas: int, by_worth: bool
) -> None:
    alone = [(gap, worth, allowed, seconds, "a") for gap, worth, allowed, seconds, _ in drawn]
    simulation, _ = simulate(alone, replicas, by_worth=by_worth)
    assert simulation.admission.counts["gave_way"] == 0
    assert not any(each.use for each in simulation.decisions)


@settings(max_examples=100, deadline=None)
@given(drawn=arrivals, replicas=st.integers(1, 4))
def test_equal_clients_and_worths_are_first_come_first_served(drawn: Drawn, replicas: int) -> None:
    equal = [(gap, 0.5, allowed, min(seconds, 0.001), client) for gap, _, allowed, seconds, client in drawn]
    simulation, outcomes = simulate(equal, replicas)
    if all(each.use == 0 for each in simulation.decisions):
        starts = [outcome.began for outcome in outcomes if outcome.began == outcome.began]
        assert all(first <= second for first, second in pairwise(starts))


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


@pytest.mark.parametrize("replicas", [2, 4])
def test_costly_clients_hold_nobody_up_who_asks_for_a_fair_share(replicas: int) -> None:
    arrivals = crowd(random.Random(1), replicas)
    simulation = Simulation(replicas, by_worth=True)
    ours = of_the_shop(simulation.run(arrivals))
    taken = sorted(outcome.ended - outcome.arrival.at for outcome in ours)
    assert sum(outcome.by_model for outcome in ours) >= 0.99 * len(ours)
    assert taken[int(0.99 * len(taken))] <= 2 * 0.06
    assert simulation.admission.counts["gave_way"] > 0


def test_with_one_replica_nearly_all_are_planned_though_some_wait_for_one_that_stops() -> None:
    ours = of_the_shop(Simulation(1, by_worth=True).run(crowd(random.Random(1), 1)))
    assert sum(outcome.by_model for outcome in ours) >= 0.95 * len(ours)


def test_without_shares_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shares, "use", lambda *_: None)
    ours = of_the_shop(Simulation(2, by_worth=True).run(crowd(random.Random(1), 2)))
    assert sum(outcome.by_model for outcome in ours) < 0.8 * len(ours)


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


def order(admission: Admission, client: str) -> float:
    """Return what a client is beyond its share of one replica by."""
    use = admission._shares.use(1)
    assert use is not None
    return use(QueuedRequest(10.0, client=client))


def test_what_no_idle_replica_would_take_is_no_part_of_what_is_asked_for() -> None:
    clock = Clock()
    admission = Admission(clock=clock)
    for _ in range(20):
        admission.times.add(0.2)
    admission._shares.saw("shop")
    for number, idle in enumerate((True, False)):  # the first is tried
        hopeless = [QueuedRequest(0.1, client="costly") for _ in range(100)]
        refused = [admission.ask(each, idle=idle, replicas=1) for each in hopeless]
        assert sum(map(len, refused)) == 99 + number
    assert order(admission, "costly") == 0.0
    crowded = [QueuedRequest(0.21, client="costly") for _ in range(100)]
    clock.now = 0.02  # time for a generation, though not for waiting
    assert sum(len(admission.ask(each, idle=False, replicas=1)) for each in crowded) == 100
    assert order(admission, "costly") == 0.0
    clock.now = 0.0
    for each in crowded:
        admission.ask(each, idle=False, replicas=1)
    assert order(admission, "costly") > WITHIN


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
        shares.asked(QueuedRequest(1.0, seconds=1.0, client=str(number)))
    assert len(shares._present.accounts) == 1024
    assert shares._present.asked == pytest.approx(1024.0)
    assert shares.use(1) is not None
    clock.now = 2 * WINDOW_SECONDS
    assert shares.use(1) is None


def test_small_use_is_a_fair_share_however_many_there_are() -> None:
    shares = Shares(Clock())
    for number in range(200):
        shares.asked(QueuedRequest(1.0, seconds=SMALL_SHARE / 2, client=str(number)))
    shares.asked(greedy := QueuedRequest(1.0, seconds=10.0, client="greedy"))
    use = shares.use(1)
    assert use is not None
    assert [use(QueuedRequest(1.0, client="7")), use(greedy)] == [0.0, WITHIN + SMALL_SHARE]


def test_what_the_gateway_did_for_a_client_counts_in_its_share_as_replicas_time_does() -> None:
    """Rules' work once counted nowhere: a caller's costly questions were as welcome at the model as anybody's."""
    clock = Clock()
    admission = Admission(clock=clock)
    for client, questions in (("costly", 12), ("shop", 1)):
        for _ in range(questions):
            admission._shares.asked(QueuedRequest(10.0, seconds=0.1, client=client))
    costly, ours = (QueuedRequest(10.0, client=client) for client in ("costly", "shop"))
    assert order(admission, "costly") == WITHIN, "it asks for about as much as there is"
    for _ in range(180):
        admission.worked("costly", 0.005)
    assert [order(admission, "costly"), order(admission, "shop")] == [pytest.approx(WITHIN + 0.9), 0.0]
    for request in (costly, ours):
        assert admission.ask(request, idle=False, replicas=1) == []
    assert [admission.next(), admission.next()] == [ours, costly]
    clock.now = 2 * WINDOW_SECONDS
    assert admission._shares.use(1) is None


def test_a_request_within_its_share_takes_a_place_from_one_beyond_it() -> None:
    admission = Admission(clock=Clock(), by_worth=True)
    for _ in range(20):
        admission.times.add(SECONDS)
    for _ in range(400):  # nothing can be done in zero time: pressure is high
        admission.ask(QueuedRequest(deadline=0.0, client="costly"), idle=True, replicas=1)
        admission._shares.asked(QueuedRequest(10.0, seconds=SECONDS, client="costly"))
    most = [QueuedRequest(10.0, worth=0.9, client="costly") for _ in range(2)]
    assert [admission.ask(each, idle=False, replicas=1) for each in most] == [[], []]
    assert admission.certain_refusal(10.0, 0, 1, worth=0.9, client="costly") is not None
    assert admission.certain_refusal(10.0, 0, 1, worth=0.1, client="shop") is None
    ours = QueuedRequest(10.0, worth=0.1, client="shop")
    assert admission.ask(ours, idle=False, replicas=1) == [most[1]]
    assert [admission.next(), admission.next(), admission.next()] == [ours, most[0], None]
