"""How many requests begin in one turn of the event loop, and which."""

import asyncio
from functools import partial

import pytest

from service.api.turnstile import Turnstile

pytestmark = pytest.mark.anyio


async def test_few_requests_begin_in_one_turn_and_in_order() -> None:
    turnstile, begun, turns = Turnstile(), list[int](), 0
    for number in range(200):
        turnstile.enter(partial(begun.append, number))
    first = len(begun)
    while len(begun) < 200:
        before, turns = len(begun), turns + 1
        await asyncio.sleep(0)
        assert len(begun) - before <= first
    assert turns >= 200 // first - 1
    assert begun == list(range(200))


async def test_long_bodies_take_the_places_of_several() -> None:
    """Five milliseconds of the rules each may they cost, where an ordinary question costs a fraction of one."""
    turnstile, begun, turns = Turnstile(lambda: 0.0), list[int](), 0
    for number in range(60):
        turnstile.enter(partial(begun.append, number), 5000 if number < 30 else 100)
    while len(begun) < 30:
        before, turns = len(begun), turns + 1
        await asyncio.sleep(0)
        assert len(begun) - before <= 1
    await asyncio.sleep(0)
    assert len(begun) >= 30 + 7
    while len(begun) < 60:
        await asyncio.sleep(0)
    assert begun == list(range(60))


async def test_fewer_requests_begin_while_turns_are_slow_and_more_again_once_they_are_not() -> None:
    now = 0.0
    turnstile, begun = Turnstile(lambda: now), list[int]()
    for number in range(1000):
        turnstile.enter(partial(begun.append, number))

    async def next_turn(seconds: float) -> int:
        nonlocal now
        now += seconds
        before = len(begun)
        await asyncio.sleep(0)
        return len(begun) - before

    quick = [await next_turn(0.001) for _ in range(5)][-1]
    slow = [await next_turn(0.1) for _ in range(5)][-1]
    again = [await next_turn(0.001) for _ in range(20)][-1]

    assert 0 < slow < quick == again
    assert begun == list(range(len(begun)))


async def test_what_nobody_waits_for_begins_behind_plans_and_is_never_shut_out() -> None:
    turnstile, begun = Turnstile(lambda: 0.0), list[str]()
    for _ in range(3):
        turnstile.enter_behind(partial(begun.append, "event"))
    for _ in range(100):
        turnstile.enter(partial(begun.append, "plan"))
    assert "event" not in begun
    while len(begun) < 103:
        before = len(begun)
        await asyncio.sleep(0)
        turn = begun[before:]
        assert turn.count("event") <= 1
        assert "event" not in turn[:-1], "plans that wait begin first"
    assert begun.count("event") == 3
    assert begun.index("event") < begun.count("plan"), "however many plans there are, events go on"
