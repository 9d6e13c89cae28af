"""Tests of turns in the event loop, with a clock of the test's."""

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any

import pytest

from service.gateway.turns import CostlyTurns, Metered
from tests.fake_engines import LONG, settle

pytestmark = pytest.mark.anyio
PIECE = 0.004  # seconds of the processor that a costly piece of work takes


class Processor:
    """A processor's clock, which only work advances."""

    used = 0.0

    def __call__(self) -> float:
        return self.used

    def work(self, seconds: float = PIECE) -> None:
        self.used += seconds


class Pauses:
    """The event loop's timers: each is due when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        self._due: list[Callable[[], Any]] = []
        loop, call_later = asyncio.get_running_loop(), asyncio.get_running_loop().call_later

        def later(seconds: float, call: Callable[..., Any], *given: Any, **more: Any) -> Any:
            if getattr(call, "__name__", "") != "release":  # somebody else's
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
                processor.work(max(timeout or 0.0, 0.0))
                return super().select(0)

        super().__init__(Jumps())
        self._processor = processor

    def time(self) -> float:
        return self._processor()


def bystanders_seconds(turn: Callable[[Processor], Callable[[Callable[[], None]], Any]]) -> list[float]:
    """Return what each question of a bystander took in an event loop in which four callers ask costly ones for ever."""
    processor, taken = Processor(), list[float]()
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
        callers = [loop.create_task(costly()) for _ in range(4)]
        await bystander()
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    loop.run_until_complete(everybody())
    loop.close()
    return taken


def _in_turns(processor: Processor) -> Callable[[Callable[[], None]], Any]:
    turns = CostlyTurns(processor)
    return lambda work: turns.take(work, time.monotonic() + LONG)


def _at_once(_: Processor) -> Callable[[Callable[[], None]], Any]:
    async def work_at_once(work: Callable[[], None]) -> None:
        work()

    return work_at_once


def test_beside_four_costly_callers_a_bystander_waits_for_one_piece_and_not_for_a_dozen() -> None:
    with_turns, without = bystanders_seconds(_in_turns), bystanders_seconds(_at_once)
    assert max(with_turns) < 2 * PIECE
    assert min(without) > 8 * PIECE


async def test_between_two_costly_pieces_as_much_time_is_left_as_the_first_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processor, pauses, done = Processor(), Pauses(monkeypatch), list[str]()
    turns = CostlyTurns(processor)

    def piece(name: str) -> Callable[[], None]:
        return lambda: (processor.work(), done.append(name))[-1]

    asked = [asyncio.create_task(turns.take(piece(name), time.monotonic() + LONG)) for name in "abcd"]
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
    costly = asyncio.create_task(turns.take(lambda: done.append("costly"), time.monotonic() + LONG))
    asyncio.get_running_loop().call_soon(done.append, "ordinary")
    await costly
    assert done == ["ordinary", "costly"]


async def test_who_has_waited_long_enough_works_without_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, turns = Pauses(monkeypatch), CostlyTurns(Processor())
    assert await turns.take(lambda: "first", time.monotonic() + LONG) == "first"
    assert await turns.take(lambda: "late", time.monotonic() - 1) == "late"
    pauses.end()
    assert await turns.take(lambda: "next", time.monotonic() + LONG) == "next"
    assert len(pauses.seconds) == 2, "who had no turn leaves nobody one"


async def test_work_that_fails_and_who_leaves_pass_their_turn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, turns = Pauses(monkeypatch), CostlyTurns(Processor())
    with pytest.raises(ZeroDivisionError):
        await turns.take(lambda: 1 / 0, time.monotonic() + LONG)
    leaves = asyncio.create_task(turns.take(lambda: "left", time.monotonic() + LONG))
    stays = asyncio.create_task(turns.take(lambda: "stayed", time.monotonic() + LONG))
    await settle()
    leaves.cancel()
    pauses.end()
    assert await stays == "stayed"
    assert leaves.cancelled()


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
