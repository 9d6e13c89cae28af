"""How many requests begin in one turn of the event loop, and which."""

import asyncio
from collections.abc import Callable
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


async def drained(begun: list[str], count: int) -> list[list[str]]:
    """Return what began, turn by turn, until so many have."""
    turns: list[list[str]] = []
    while len(begun) < count:
        before = len(begun)
        await asyncio.sleep(0)
        turns.append(begun[before:])
    return [turn for turn in turns if turn]


async def test_what_nobody_waits_for_is_gathered_and_begins_behind_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    turnstile, begun, due = Turnstile(lambda: 0.0), list[str](), timers(monkeypatch)
    for number in range(10):
        turnstile.enter_behind(partial(begun.append, f"event {number}"))
    await asyncio.sleep(0)
    assert (begun, len(due)) == ([], 1), "one timer for all of them, and nothing else wakes the loop"
    for _ in range(100):
        turnstile.enter(partial(begun.append, "plan"))
    due.pop()()
    turns = await drained(begun, 110)
    events = [each for each in begun if each != "plan"]
    assert events == [f"event {number}" for number in range(10)]
    for turn in turns:
        assert sum(each != "plan" for each in turn) <= 4
        assert "plan" not in turn[[each == "plan" for each in [*turn, "x"]].index(False) :], "plans begin first"
    assert begun.index("event 9") < 109, "however many plans there are, events go on"
    assert not due


async def test_long_lists_begin_one_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turnstile, begun, due = Turnstile(lambda: 0.0), list[str](), timers(monkeypatch)
    for _ in range(3):
        turnstile.enter_behind(partial(begun.append, "list"), 16_000)
    due.pop()()
    assert await drained(begun, 3) == [["list"], ["list"], ["list"]]


async def test_while_every_replica_plans_events_wait_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now, busy = 0.0, True
    turnstile, begun, due = Turnstile(lambda: now, lambda: busy), list[str](), timers(monkeypatch)

    async def wake(seconds: float) -> list[str]:
        nonlocal now
        now += seconds
        due.pop()()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return begun

    turnstile.enter_behind(partial(begun.append, "first"))
    assert await wake(0.02) == []
    turnstile.enter_behind(partial(begun.append, "second"))
    busy = False
    assert await wake(0.01) == ["first", "second"]
    busy = True
    turnstile.enter_behind(partial(begun.append, "third"))
    waited = [await wake(0.02) == ["first", "second"], *[await wake(0.01) == ["first", "second"] for _ in range(5)]]
    assert waited == [True] * 6
    assert await wake(0.011) == ["first", "second", "third"], "the longest that they wait is known"
    assert not due


def timers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return what this loop is asked to call later, instead of calling it then."""
    due: list[Callable[[], object]] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda _, call: due.append(call))
    return due


async def test_clients_take_turns_so_that_nobody_waits_for_hundreds_of_another() -> None:
    turnstile, begun = Turnstile(lambda: 0.0), list[str]()
    for number in range(200):
        turnstile.enter(partial(begun.append, f"flood {number}"), client="flood")
    for number in range(3):
        turnstile.enter(partial(begun.append, f"other {number}"), client="other")
    first = len(begun)
    while len(begun) < 203:
        await asyncio.sleep(0)
    later = begun[first:]
    assert [at for at, name in enumerate(later) if name.startswith("other")] == [1, 3, 5]
    for client in ("flood", "other"):
        own = [int(name.split()[1]) for name in begun if name.startswith(client)]
        assert own == sorted(own), "each in its order"


async def test_what_is_turned_away_takes_no_place_but_not_without_end() -> None:
    """A queue of thousands that come too late stood for seconds where eight of them were told so in a turn."""
    turnstile, begun = Turnstile(lambda: 0.0), list[str]()

    def refuse() -> bool:
        begun.append("refused")
        return False

    for _ in range(8):
        turnstile.enter(partial(begun.append, "plan"))
    for _ in range(100):
        turnstile.enter(refuse)
    turnstile.enter(partial(begun.append, "plan"))
    assert begun == ["plan"] * 8
    await asyncio.sleep(0)
    assert begun[8:].count("refused") == 64 + 8
    await asyncio.sleep(0)
    assert begun[-1] == "plan"
    assert len(begun) == 109
