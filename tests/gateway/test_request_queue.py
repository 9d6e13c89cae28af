import asyncio
import math
import time

import pytest

from service.engines.protocol import EngineUnavailableError
from service.gateway.request_queue import CapacityError, Order, RequestQueue

pytestmark = pytest.mark.anyio
LONG = 60.0


def served(line: RequestQueue[str], *, turns: int) -> int:
    """Give so many turns; returns how many were taken."""
    taken = 0
    for _ in range(turns):
        if (turn := line.next()) is not None:
            turn.set_result("replica")
            taken += 1
    return taken


@pytest.mark.parametrize(("order", "expected"), [("oldest", 0), ("newest", 2), ("adaptive", 0)])
async def test_whose_turn_it_is(order: Order, expected: int) -> None:
    line: RequestQueue[str] = RequestQueue(order)
    waiters = [line.join(time.monotonic() + LONG, 0.0) for _ in range(3)]
    assert served(line, turns=1) == 1
    assert [waiter.turn.done() for waiter in waiters].index(True) == expected
    assert len(line) == 2


async def test_too_little_time_is_refused_at_once() -> None:
    with pytest.raises(CapacityError, match="too little time"):
        RequestQueue[str]().join(time.monotonic() - 0.001, 0.0)


async def test_the_line_is_bounded_in_time_not_in_length() -> None:
    line: RequestQueue[str] = RequestQueue("oldest")
    for _ in range(1000):
        line.join(time.monotonic() + LONG, LONG / 2000)
    refused = line.join(time.monotonic() + LONG, LONG / 500).turn
    assert isinstance(refused.exception(), CapacityError)
    assert len(line) == 1000


async def test_overload_gives_up_the_oldest_at_once_and_serves_the_newest() -> None:
    line: RequestQueue[str] = RequestQueue("adaptive")
    waiters = [line.join(time.monotonic() + 10.0 + number, 5.0) for number in range(6)]
    errors = [waiter.turn.exception() if waiter.turn.done() else None for waiter in waiters]
    assert [isinstance(error, CapacityError) for error in errors] == [True, True, True, False, False, False]
    assert {error.refusal for error in errors if isinstance(error, CapacityError)} == {"busy"}
    assert line.serves_newest
    served(line, turns=1)
    assert waiters[5].turn.done()


async def test_who_has_least_time_loses_their_place_even_when_newest() -> None:
    line: RequestQueue[str] = RequestQueue("newest")
    patient = [line.join(time.monotonic() + 10, 3.0) for _ in range(4)]
    hasty = line.join(time.monotonic() + 1, 3.0)
    assert isinstance(hasty.turn.exception(), CapacityError)
    assert not any(waiter.turn.done() for waiter in patient)


async def test_who_can_no_longer_finish_is_told_then() -> None:
    line: RequestQueue[str] = RequestQueue()
    waiter = line.join(time.monotonic() + 0.02, 0.0)
    with pytest.raises(CapacityError, match="too late"):
        await waiter.turn
    assert len(line) == 0
    assert line.serves_newest


async def test_a_place_without_a_deadline_is_kept() -> None:
    line: RequestQueue[str] = RequestQueue()
    for_ever = line.join(math.inf, LONG)
    others = [line.join(time.monotonic() + LONG, LONG) for _ in range(10)]
    await asyncio.sleep(0)
    assert not for_ever.turn.done()
    assert [waiter.turn.exception() for waiter in others if waiter.turn.done()]


async def test_leaving_and_cancelled_turns_are_skipped() -> None:
    line: RequestQueue[str] = RequestQueue("oldest")
    first, second, third = (line.join(time.monotonic() + LONG, 0.0) for _ in range(3))
    line.leave(first)
    line.leave(first)
    second.turn.cancel()
    assert served(line, turns=3) == 1
    assert third.turn.result() == "replica"


async def test_everybody_is_sent_away() -> None:
    line: RequestQueue[str] = RequestQueue()
    waiters = [line.join(time.monotonic() + LONG, 0.0) for _ in range(3)]
    line.refuse_all(EngineUnavailableError("closed"))
    assert all(isinstance(waiter.turn.exception(), EngineUnavailableError) for waiter in waiters)
