"""Where shares change their mind, worked by hand on a clock of our own: who is beyond one, and when who gives way."""

import math

import pytest

from rehearsal.simulated_gateway import Clock
from service.gateway.request_queue import QueuedRequest, RequestQueue
from service.gateway.shares import WITHIN, Shares

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


@pytest.mark.parametrize(("more", "replicas", "is_short"), [(0.5, 1, False), (0.51, 1, True), (0.51, 2, False)])
def test_shares_are_told_where_all_ask_for_more_than_the_replicas_seconds(
    more: float, replicas: int, is_short: bool
) -> None:
    shares = Shares(Clock())
    ask(shares, a=0.5, b=more)
    assert shares.is_short(replicas) is is_short


def test_a_client_that_is_alone_has_no_share_in_either_window() -> None:
    clock = Clock()
    shares = Shares(clock)
    ask(shares, a=9.0)
    assert shares.use(1) is None
    clock.now = 1.0
    ask(shares, a=9.0)
    assert shares.use(1) is None
    shares.saw("b")
    assert uses(shares, "a", "b") == [0.15, LITTLE], "the other one is only there"


def test_whoever_was_there_in_the_last_window_is_still_somebody() -> None:
    clock = Clock()
    shares = Shares(clock)
    ask(shares, a=9.0)
    shares.saw("b")
    clock.now = 1.0
    assert uses(shares, "a") == [0.15]
    ask(shares, c=9.0)
    clock.now = 2.0
    assert uses(shares, "c") is None, "alone, since that window is over"


@pytest.mark.parametrize(("middle", "is_within"), [(0.6, True), (0.61, False)])
def test_who_asks_for_half_as_much_again_as_the_share_keeps_its_place(middle: float, is_within: bool) -> None:
    """Of a second, 0.2 are given to whoever asks for no more, and the two others may have 0.4 each."""
    shares = Shares(Clock())
    ask(shares, small=0.2, middle=middle, large=3.0)
    assert uses(shares, "small", "middle", "large") == [LITTLE, 0.0 if is_within else 0.15, 0.15]


def test_the_share_is_more_with_more_replicas() -> None:
    shares = Shares(Clock())
    ask(shares, a=1.4, b=3.0)
    assert uses(shares, "a", "b") == [0.15, 0.15]
    assert uses(shares, "a", "b", replicas=2) == [0.0, 0.15], "a second for each, of which 1.4 are about as much"


def test_a_share_is_reckoned_again_after_ten_milliseconds_or_where_somebody_comes() -> None:
    clock = Clock()
    shares = Shares(clock)
    ask(shares, a=0.7, b=3.0)
    assert uses(shares, "a") == [0.0], "0.5 of a second, and half as much again"
    ask(shares, b=1.0, a=0.06)
    assert uses(shares, "a") == [0.15]
    ask(shares, c=0.1)
    ask(shares, c=0.1)
    clock.now = 0.005
    assert uses(shares, "a", "c") == [0.15, LITTLE]


@pytest.mark.parametrize(("at", "counts"), [(0.999, 1.0), (1.0, 1.0), (1.25, 0.75), (1.999, 0.001), (2.0, 0.0)])
def test_the_last_window_counts_by_what_of_it_is_within_a_second(at: float, counts: float) -> None:
    clock = Clock()
    shares = Shares(clock)
    shares.worked("a", 4.0)
    ask(shares, b=0.0)
    clock.now = at
    ask(shares, b=9.0, a=9.0)
    found = uses(shares, "a")
    assert found is not None
    assert found == [pytest.approx(max(4.0 * counts, 0.15))]


def test_what_was_used_is_what_ran_and_what_runs() -> None:
    clock = Clock()
    shares = Shares(clock)
    first, second = (QueuedRequest(9.0, seconds=5.0, client="a") for _ in range(2))
    ask(shares, a=5.0, b=5.0)
    shares.began(first)
    clock.now = 0.2
    shares.began(second)
    clock.now = 0.3
    shares.ended(first, whole=False)
    shares.ended(first, whole=False)
    clock.now = 0.5
    assert uses(shares, "a", "b") == [pytest.approx(0.3 + 0.3), 0.15]


@pytest.mark.parametrize(
    ("whole", "seconds", "usual"),
    [(True, 0.2, 0.2), (False, 0.2, 1.0), (False, 1.0, 1.0), (False, 1.1, 1.1), (True, 3.0, 3.0)],
)
def test_what_a_clients_generations_take_is_learnt_from_those_that_tell(
    whole: bool, seconds: float, usual: float
) -> None:
    """One that was cut short might have taken any time, unless it had taken longer than usual already."""
    clock = Clock()
    shares = Shares(clock)
    request = QueuedRequest(9.0, seconds=1.0, client="a")
    shares.began(request)
    clock.now = seconds
    shares.ended(request, whole=whole)
    assert shares.usual_seconds(QueuedRequest(9.0, seconds=1.0, client="a")) == pytest.approx(usual)
    assert shares.usual_seconds(QueuedRequest(9.0, seconds=1.0, client="b")) == 1.0


def test_the_newest_generation_weighs_a_fifth_and_what_was_asked_for_is_set_right() -> None:
    clock = Clock()
    shares = Shares(clock)
    for seconds in (0.1, 0.6):
        request = QueuedRequest(9.0, seconds=0.3, client="a")
        began = clock.now
        shares.asked(request)
        shares.began(request)
        clock.now = began + seconds
        shares.ended(request, whole=True)
    assert shares.usual_seconds(QueuedRequest(9.0, client="a")) == pytest.approx(0.1 + (0.6 - 0.1) / 5)
    assert shares._present.of("a").asked == pytest.approx(0.1 + 0.6), "as long as they took, whatever was expected"
    assert shares._present.of("a").used == pytest.approx(0.7)


def test_what_clients_usually_take_is_kept_of_the_last_1024() -> None:
    clock = Clock()
    shares = Shares(clock)
    for number in range(1025):
        request = QueuedRequest(9.0, seconds=1.0, client=str(number))
        shares.began(request)
        clock.now += 0.25
        shares.ended(request, whole=True)
    known = [shares.usual_seconds(QueuedRequest(9.0, seconds=1.0, client=str(number))) for number in (0, 1, 1024)]
    assert known == pytest.approx([1.0, 0.25, 0.25])


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


@pytest.mark.parametrize(("latest_start", "due"), [(math.inf, 0.05), (0.1, 0.05), (0.08, 0.03)])
def test_one_within_the_share_waits_half_as_long_as_its_own_take_and_begins_in_time(
    latest_start: float, due: float
) -> None:
    clock = Clock()
    shares = Shares(clock)
    (holder,) = holders(shares, clock, 0.0)
    waiting = [waiter(latest_start=latest_start)]
    assert shares.give_way(waiting, 1) == ([], pytest.approx(due))
    clock.now = due - 0.001
    assert shares.give_way(waiting, 1) == ([], pytest.approx(due))
    clock.now = due + 1e-9
    assert shares.give_way(waiting, 1) == ([holder], math.inf)
    clock.now += 0.049
    assert shares.give_way(waiting, 1) == ([], math.inf), "it is stopping"


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


def use_of(request: QueuedRequest) -> float:
    return float(request.client)


def queued(queue: RequestQueue, client: str, latest_start: float, seconds: float = 5.0) -> list[QueuedRequest]:
    request = QueuedRequest(99.0, seconds=seconds, latest_start=latest_start, client=client)
    return queue.join(request, 1, None, use_of)


def test_who_has_used_less_waits_for_nobody_who_has_used_more() -> None:
    queue = RequestQueue("oldest", Clock())
    assert [queued(queue, "2", 90.0) for _ in range(3)] == [[], [], []]
    assert queued(queue, "1", 0.0) == [], "before it there is nobody"
    assert len(queued(queue, "1", 4.9)) == 1
    assert queued(queue, "1", 5.0) == []
    assert len(queued(queue, "2", 24.9)) == 1, "three of its own, and two before them"
    assert queued(queue, "2", 25.0) == []
    turns = [queue.next(use=use_of) for _ in range(6)]
    assert [request.client for request in turns if request] == ["1", "1", "2", "2", "2", "2"]


def test_one_who_has_used_more_is_never_refused_for_one_who_has_used_less() -> None:
    queue = RequestQueue("newest", Clock())
    hasty = [queued(queue, "2", 1.0, seconds=0.1) for _ in range(2)]
    assert hasty == [[], []]
    assert [queued(queue, "1", 20.0) for _ in range(3)] == [[], [], []]
    assert [request.client for request in queue] == ["2", "2", "1", "1", "1"]


@pytest.mark.parametrize(
    ("replicas", "last", "in_time"), [(1, 9.0, True), (1, 8.9, False), (2, 4.5, True), (2, 4.4, False)]
)
def test_all_begin_in_time_where_those_before_the_last_are_done(replicas: int, last: float, in_time: bool) -> None:
    clock = Clock()
    queue = RequestQueue("oldest", clock)
    for seconds, latest_start in ((4.0, 50.0), (5.0, 50.0), (7.0, 50.0)):
        queue.join(QueuedRequest(99.0, seconds=seconds, latest_start=latest_start), replicas)
    for request, latest_start in zip(queue, (0.0, 50.0, last), strict=True):
        request.latest_start = latest_start
    assert queue.all_in_time(replicas) is in_time
    clock.now = 0.01
    assert not queue.all_in_time(replicas)


def test_what_a_client_has_used_counts_where_it_asked_for_less() -> None:
    """Generations that are cut short teach nothing of how long they take, and yet take it."""
    clock = Clock()
    shares = Shares(clock)
    ask(shares, a=0.1, b=0.5, c=0.5)
    shares.began(QueuedRequest(9.0, client="a"))
    clock.now = 0.9
    assert uses(shares, "a") == [pytest.approx(0.9)]


@pytest.mark.parametrize(("theirs", "gives_way"), [(0.2, False), (0.21, True)])
def test_one_who_asks_for_far_less_waits_twice_as_long_as_its_own_take_though_there_is_enough(
    theirs: float, gives_way: bool
) -> None:
    """The deadline changes nothing: what asks for more would be cut short for one that takes longer than its own."""
    clock = Clock()
    shares = Shares(clock)
    shares.began(holder := QueuedRequest(9.0, client="large"))
    ask(shares, large=theirs, shop=0.1)
    waiting = [waiter(0.05, latest_start=0.06)]
    assert shares.give_way(waiting, 1) == ([], pytest.approx(0.1) if gives_way else math.inf)
    clock.now = 0.1 + 1e-9
    assert shares.give_way(waiting, 1) == ([holder] if gives_way else [], math.inf)


def test_who_must_stop_is_whoever_has_to_first() -> None:
    clock = Clock()
    shares = Shares(clock)
    shares.began(QueuedRequest(9.0, client="large"))
    clock.now = 0.01
    shares.began(greedy := QueuedRequest(9.0, client="greedy"))
    ask(shares, large=0.7, greedy=20.0, shop=0.1)
    clock.now = 0.061
    assert shares.give_way([waiter(0.1)], 2) == ([greedy], math.inf), "0.01 and half of 0.1; the other one after 0.2"
