"""Tests of turns in the event loop, with a clock of the test's."""

import asyncio
import math
import selectors
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from service.gateway.request_queue import CapacityError
from service.gateway.turns import CostlyTurns, Metered
from tests.fake_engines import LONG, settle

pytestmark = pytest.mark.anyio
PIECE = 0.004  # seconds of the processor that a costly piece of work takes
WAIT = 0.075  # seconds for which it waits for its turn
Reading = Callable[[Callable[[float], None]], Any]


class Processor:
    """A clock that only work advances, which takes `pace` times as long as with a processor of its own."""

    used = 0.0
    pace = 1.0

    def __call__(self) -> float:
        return self.used

    def work(self, seconds: float = PIECE) -> None:
        self.used += self.pace * seconds

    def rest(self, seconds: float) -> None:
        self.used += seconds


class Pauses:
    """The event loop's timers: each is due when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self._due: list[Callable[[], Any]] = []
        loop, call_later = asyncio.get_running_loop(), asyncio.get_running_loop().call_later

        def later(seconds: float, call: Callable[..., Any], *given: Any, **more: Any) -> Any:
            if getattr(call, "__name__", "") != "_release":  # somebody else's
                return call_later(seconds, call, *given, **more)
            self.seconds.append(seconds)
            self._due.append(call)
            return None

        monkeypatch.setattr(loop, "call_later", later)

    def end(self) -> None:
        self._due.pop(0)()


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes by the processor's work, and jumps to the next timer where there is none."""

    def __init__(self, processor: Processor) -> None:
        class Jumps(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
                processor.rest(max(timeout or 0.0, 0.0))
                return super().select(0)

        super().__init__(Jumps())
        self._processor = processor

    def time(self) -> float:
        return self._processor()


def bystanders_seconds(turn: Callable[[Processor], Reading], callers: int = 4, keeps: float = 1.0) -> list[float]:
    """Return what each question of a bystander took in an event loop in which callers ask costly ones for ever.

    The service `keeps` this share of the processor, and others have the rest: what it does takes as much longer.
    """
    processor, taken = Processor(), list[float]()
    processor.pace = 1 / keeps
    loop = SimulatedLoop(processor)
    read = turn(processor)

    async def costly() -> None:
        while True:
            await read(processor.work)
            await asyncio.sleep(0)  # it is told that no replica has time, and asks again

    async def bystander() -> None:
        for _ in range(40):
            await asyncio.sleep(0.0537)
            began = processor()
            for _step in range(3):  # its request is read; its plan is asked for; its answer is written
                processor.work(PIECE / 10)
                await asyncio.sleep(0)
            taken.append(processor() - began)

    async def everybody() -> None:
        tasks = [loop.create_task(costly()) for _ in range(callers)]
        await bystander()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop.run_until_complete(everybody())
    loop.close()
    return taken


def _in_turns(processor: Processor) -> Reading:
    turns = CostlyTurns(processor)

    async def read_in_turn(work: Callable[[float], None]) -> None:
        try:
            await turns.take("costly", partial(work, PIECE), processor() + WAIT)
        except CapacityError:
            work(PIECE / 4)  # as much as of an ordinary question

    return read_in_turn


def _at_once(_: Processor) -> Reading:
    async def read_at_once(work: Callable[[float], None]) -> None:
        work(PIECE)

    return read_at_once


def test_beside_four_costly_callers_a_bystander_waits_for_one_piece_and_not_for_a_dozen() -> None:
    with_turns, without = bystanders_seconds(_in_turns), bystanders_seconds(_at_once)
    assert max(with_turns) < 2 * PIECE
    assert min(without) > 8 * PIECE


@pytest.mark.parametrize(("callers", "keeps"), [(40, 1.0), (4, 0.1)])
def test_however_many_ask_and_however_little_of_the_processor_is_left_it_waits_for_no_more(
    callers: int, keeps: float
) -> None:
    """Forty whose turn did not come in time once did all their work at once; a piece of ten times the length, for want
    of the processor, was followed by a tenth of the pause.
    """
    taken = bystanders_seconds(_in_turns, callers, keeps)
    assert sum(taken) / len(taken) < 2 * PIECE / keeps


async def test_between_two_costly_pieces_as_much_time_is_left_as_the_first_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processor, pauses, done = Processor(), Pauses(monkeypatch), list[str]()
    turns = CostlyTurns(processor)

    def piece(name: str) -> Callable[[], None]:
        return lambda: (processor.work(), done.append(name))[-1]

    asked = [asyncio.create_task(turns.take("", piece(name), LONG)) for name in "abcd"]
    ordinary = asyncio.get_running_loop().create_task(settle())
    ordinary.add_done_callback(lambda _: done.append("ordinary"))
    for number, name in enumerate("abcd", 1):
        await settle()
        await settle()
        assert [each for each in done if each != "ordinary"] == list("abcd")[:number], f"{name} is the only one"
        assert pauses.seconds == [pytest.approx(PIECE)] * number
        pauses.end()
    assert "ordinary" in done[:2], "it waited for one of four at most"
    await asyncio.gather(*asked)


async def test_what_is_ready_goes_before_a_costly_piece() -> None:
    done: list[str] = []
    turns = CostlyTurns()
    costly = asyncio.create_task(turns.take("", lambda: done.append("costly"), math.inf))
    asyncio.get_running_loop().call_soon(done.append, "ordinary")
    await costly
    assert done == ["ordinary", "costly"]


async def test_who_has_waited_long_enough_is_told_so_and_does_none_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, turns, done = Pauses(monkeypatch), CostlyTurns(Processor()), list[str]()
    await turns.take("", lambda: done.append("first"), LONG)
    with pytest.raises(CapacityError, match="too many long questions") as told:
        await turns.take("", lambda: done.append("late"), -1.0)
    assert told.value.reason == "capacity"
    pauses.end()
    await turns.take("", lambda: done.append("next"), -1.0)
    assert done == ["first", "next"], "a turn that nobody has is anybody's"
    assert len(pauses.seconds) == 2


async def test_clients_take_turns_however_many_connections_each_has(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, turns, done = Pauses(monkeypatch), CostlyTurns(Processor()), list[str]()
    asked = [
        asyncio.create_task(turns.take(who, partial(done.append, who), LONG))
        for who in ("many", *["many"] * 4, "one", "other", "one")
    ]
    for _ in asked:
        await settle()
        pauses.end()
    await asyncio.gather(*asked)
    assert done == ["many", "many", "one", "other", "many", "one", "many", "many"]


async def test_work_that_fails_and_who_leaves_pass_their_turn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, turns = Pauses(monkeypatch), CostlyTurns(Processor())
    with pytest.raises(ZeroDivisionError):
        await turns.take("", lambda: 1 / 0, LONG)
    leaves, called = (asyncio.create_task(turns.take("", lambda: "left", LONG)) for _ in range(2))
    stays = asyncio.create_task(turns.take("", lambda: "stayed", LONG))
    await settle()
    leaves.cancel()
    pauses.end()  # passes over who has left
    called.cancel()  # just as its turn came
    assert await stays == "stayed"
    assert leaves.cancelled()
    assert called.cancelled()


async def test_the_steps_of_a_coroutine_are_metered_and_its_waits_are_not() -> None:
    processor = Processor()
    gate = asyncio.get_running_loop().create_future()

    async def work() -> str:
        processor.work(1.0)
        told = await gate
        processor.work(2.0)
        return str(told)

    async def let_go() -> None:
        processor.work(64.0)  # somebody else's
        gate.set_result("planned")

    metered = Metered(work(), processor)
    others = asyncio.create_task(let_go())
    assert await metered == "planned"
    assert metered.seconds == 3.0
    await others


async def test_what_is_metered_fails_and_is_cancelled_as_it_would_be() -> None:
    processor, ended = Processor(), list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            processor.work(1.0)
            ended.append("cancelled")

    metered = Metered(work(), processor)

    async def wait() -> None:
        await metered

    task = asyncio.create_task(wait())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ended, metered.seconds) == (["cancelled"], 1.0)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        await Metered(fails())

    async def is_late() -> str:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return "late"
        return ""

    assert await Metered(is_late()) == "late"
