import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.gateway.load_shedder import LoadShedder, resident_bytes


def test_the_door_closes_when_the_work_inside_takes_too_long() -> None:
    load_shedder = LoadShedder(seconds=0.1)
    with ExitStack() as inside:
        entered = 0
        while load_shedder.is_open:
            inside.enter_context(load_shedder)
            entered += 1
        assert entered == 200  # of half a millisecond each
    assert load_shedder.is_open


def test_what_a_request_costs_is_measured() -> None:
    now = 0.0
    load_shedder = LoadShedder(seconds=0.1, clock=lambda: now)
    for _ in range(64):
        with load_shedder:
            now += 0.01
    with ExitStack() as inside:
        for _ in range(32):
            assert load_shedder.is_open
            inside.enter_context(load_shedder)
        assert not load_shedder.is_open


def test_what_the_process_does_between_requests_is_no_requests_cost() -> None:
    now = 0.0
    load_shedder = LoadShedder(seconds=0.1, clock=lambda: now)
    for number in range(130):
        with load_shedder:
            now += 0.001
        if number == 100:
            now += 60.0  # of a quiet hour: probes, metrics, readings
    with ExitStack() as inside:
        for _ in range(99):
            inside.enter_context(load_shedder)
        assert load_shedder.is_open


@pytest.mark.anyio
async def test_a_loop_that_is_late_closes_the_door_to_a_crowd() -> None:
    load_shedder = LoadShedder(seconds=0.1)
    watching = asyncio.create_task(load_shedder.watch())
    await asyncio.sleep(0)
    with ExitStack() as inside:
        for _ in range(31):
            inside.enter_context(load_shedder)
        time.sleep(0.3)  # the loop does nothing else meanwhile
        await asyncio.sleep(0.01)
        assert load_shedder.is_open  # a hiccup, and only a few are there
        inside.enter_context(load_shedder)
        assert not load_shedder.is_open
        async with asyncio.timeout(20):
            while not load_shedder.is_open:
                await asyncio.sleep(0.02)
    watching.cancel()


@pytest.mark.anyio
async def test_past_its_memory_it_is_closed_until_there_is_room_again() -> None:
    used = 100
    shedder = LoadShedder(0.1, most_bytes=200, memory=lambda: used)
    watching = asyncio.create_task(shedder.watch())
    await asyncio.sleep(0)
    assert shedder.is_open
    used = 300
    async with asyncio.timeout(20):
        while shedder.is_open:
            await asyncio.sleep(0.01)
        used = 100
        while not shedder.is_open:
            await asyncio.sleep(0.01)
    watching.cancel()


@pytest.mark.anyio
async def test_its_memory_is_looked_at_twice_a_second_and_may_be_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    ticks = iter(range(50))
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if next(ticks, None) is None:
            raise asyncio.CancelledError

    def memory() -> int:
        looks.append(now)
        return 200

    shedder = LoadShedder(0.1, most_bytes=200, memory=memory)
    monkeypatch.setattr("service.gateway.load_shedder.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await shedder.watch()
    assert looks == pytest.approx([0, 0.5, 1.0])
    assert shedder.is_open


def test_its_memory_is_measured() -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("only Linux tells")
    (told,) = [int(line.split()[1]) for line in status.read_text(encoding="ascii").splitlines() if "VmRSS" in line]
    assert resident_bytes() == pytest.approx(1024 * told, rel=0.05)


@pytest.mark.parametrize(("platform", "told", "expected"), [("linux", 300, 300 * 1024), ("darwin", 300, 300)])
def test_without_proc_it_is_the_most_that_the_process_ever_had(
    platform: str, told: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS a thousand times too much was read, so that every request was refused."""

    def none(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", none)
    monkeypatch.setattr("service.gateway.load_shedder.sys.platform", platform)
    monkeypatch.setattr("service.gateway.load_shedder.resource.getrusage", lambda _: SimpleNamespace(ru_maxrss=told))
    assert resident_bytes() == expected


@pytest.mark.anyio
async def test_lateness_is_forgotten_by_half_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now, open_at = 0.0, list[bool]()
    late = iter([0.7, 0.0, 0.0, 0.0, 0.0])
    shedder = LoadShedder(0.1, memory=lambda: 0)
    with ExitStack() as inside:
        for _ in range(32):
            inside.enter_context(shedder)

        async def sleep(seconds: float) -> None:
            nonlocal now
            open_at.append(shedder.is_open)
            if (more := next(late, None)) is None:
                raise asyncio.CancelledError
            now += seconds + more

        monkeypatch.setattr("service.gateway.load_shedder.asyncio.sleep", sleep)
        monkeypatch.setattr("service.gateway.load_shedder.time.monotonic", lambda: now)
        with pytest.raises(asyncio.CancelledError):
            await shedder.watch()
    assert open_at == [True, False, False, False, True, True], "0.7 s late, then 0.35, 0.175, 0.0875"
