import math

import pytest

from rehearsal.simulated_gateway import Clock
from service.gateway.request_queue import QueuedRequest, RequestQueue
from service.settings.choices import Order

LONG = 60.0


def request(latest_start: float = LONG, seconds: float = 0.0) -> QueuedRequest:
    return QueuedRequest(deadline=math.inf, seconds=seconds, latest_start=latest_start)


def joined(queue: RequestQueue, *requests: QueuedRequest) -> list[QueuedRequest]:
    """Let all wait for one replica; return those refused meanwhile."""
    return [refused for one in requests for refused in queue.join(one, replicas=1)]


@pytest.mark.parametrize(("order", "expected"), [("oldest", 0), ("newest", 2), ("adaptive", 0)])
def test_whose_turn_it_is(order: Order, expected: int) -> None:
    queue, requests = RequestQueue(order, Clock()), [request() for _ in range(3)]
    assert joined(queue, *requests) == []
    assert queue.next() is requests[expected]
    assert len(queue) == 2


def test_the_queue_is_bounded_in_time_not_in_number() -> None:
    queue = RequestQueue("oldest", Clock())
    assert joined(queue, *(request(seconds=LONG / 2000) for _ in range(1000))) == []
    late = request(latest_start=LONG / 4)
    assert joined(queue, late) == [late]
    assert late.refusal is not None
    assert late.refusal.reason == "capacity"
    assert len(queue) == 1000


def test_two_replicas_take_twice_as_many() -> None:
    queue = RequestQueue("oldest", Clock())
    refused = [one for _ in range(30) for one in queue.join(request(latest_start=10.0, seconds=1.0), replicas=2)]
    assert len(queue) == 21
    assert len(refused) == 9


def test_overload_gives_up_the_oldest_at_once_and_serves_the_newest() -> None:
    queue = RequestQueue("adaptive", Clock())
    requests = [request(10.0 + number, seconds=5.0) for number in range(6)]
    refused = joined(queue, *requests)
    assert refused == requests[:2]
    assert {one.refusal.reason for one in refused if one.refusal} == {"capacity"}
    assert queue.serves_newest
    assert queue.next() is requests[5]


def test_who_has_least_time_loses_their_place_even_when_newest() -> None:
    queue = RequestQueue("newest", Clock())
    patient, hasty = [request(10.0, seconds=3.0) for _ in range(4)], request(1.0, seconds=3.0)
    assert joined(queue, *patient) == []
    assert joined(queue, hasty) == [hasty]


def test_who_can_no_longer_finish_is_told_then() -> None:
    clock = Clock()
    queue, waiting, patient = RequestQueue("adaptive", clock), request(0.02), request()
    joined(queue, waiting, patient)
    assert queue.drop_late() == []
    clock.now = 0.02
    assert queue.drop_late() == [waiting]
    assert queue.serves_newest
    assert len(queue) == 1
    clock.now = 5.0
    assert not queue.serves_newest


def test_a_place_without_a_deadline_is_kept() -> None:
    queue = RequestQueue("adaptive", Clock())
    for_ever = request(math.inf, seconds=LONG)
    refused = joined(queue, for_ever, *(request(seconds=LONG) for _ in range(10)))
    assert refused
    assert for_ever not in refused


def test_who_has_left_gets_no_turn() -> None:
    queue, requests = RequestQueue("oldest", Clock()), [request() for _ in range(3)]
    joined(queue, *requests)
    queue.leave(requests[0])
    queue.leave(requests[0])
    assert [queue.next(), queue.next(), queue.next()] == [*requests[1:], None]


def test_whoever_is_worth_most_goes_first_where_that_is_asked_for() -> None:
    queue, requests = RequestQueue("adaptive", Clock()), [request(seconds=float(number)) for number in (2, 3, 1)]
    joined(queue, *requests)
    assert queue.least(lambda one: one.seconds) is requests[2]
    assert queue.next(lambda one: one.seconds) is requests[1]


def test_everybody_is_sent_away() -> None:
    queue = RequestQueue("oldest", Clock())
    joined(queue, *(request() for _ in range(3)))
    refused = queue.drop_all("closed", "engine")
    assert [(str(one.refusal), one.refusal.reason) for one in refused if one.refusal] == [("closed", "engine")] * 3
    assert len(queue) == 0
