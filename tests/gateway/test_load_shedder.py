import asyncio
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


def test_a_client_with_few_inside_is_not_turned_down_for_others() -> None:
    load_shedder = LoadShedder(seconds=0.1)
    with ExitStack() as inside:
        for _ in range(200):
            inside.enter_context(load_shedder.handling("flood"))
        assert not load_shedder.is_open
        assert not load_shedder.is_open_to("flood")
        for _ in range(4):
            assert load_shedder.is_open_to("shop")
            assert load_shedder.admits(0.0, client="shop")
            inside.enter_context(load_shedder.handling("shop"))
        assert not load_shedder.is_open_to("shop")
        for number in range(196):
            assert load_shedder.is_open_to("another")
            inside.enter_context(load_shedder.handling(str(number)))
        assert not load_shedder.is_open_to("another"), "twice as many as are allowed"
    assert load_shedder.is_open_to("flood")
    assert not load_shedder._inside_of, "nobody is remembered who has left"


def test_what_a_request_costs_is_measured_without_what_the_process_does_between_two() -> None:
    now = 0.0
    load_shedder = LoadShedder(seconds=0.1, clock=lambda: now)
    for number in range(130):
        with load_shedder:
            now += 1 / 512
        if number == 100:
            now += 60.0  # of a quiet hour: probes, metrics, readings
    with ExitStack() as inside:
        for _ in range(52):
            assert load_shedder.is_open
            inside.enter_context(load_shedder)
        assert not load_shedder.is_open


@pytest.mark.anyio
async def test_past_its_memory_it_is_closed_to_everybody_until_there_is_room_again() -> None:
    used = 100
    shedder = LoadShedder(0.1, most_bytes=200, memory=lambda: used)
    watching = asyncio.create_task(shedder.watch())
    await asyncio.sleep(0)
    assert shedder.is_open
    used = 300
    async with asyncio.timeout(20):
        while shedder.is_open:
            await asyncio.sleep(0.01)
        assert not shedder.is_open_to("shop")
        used = 100
        while not shedder.is_open:
            await asyncio.sleep(0.01)
    watching.cancel()


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
@pytest.mark.parametrize(("crowd", "open_at"), [(31, [True] * 6), (32, [True, False, False, False, True, True])])
async def test_a_loop_that_is_late_closes_the_door_to_a_crowd_and_that_is_forgotten_by_half_at_each_look(
    crowd: int, open_at: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, seen = 0.0, list[bool]()
    late = iter([0.7, 0.0, 0.0, 0.0, 0.0])  # 0.7 s late, then 0.35, 0.175, 0.0875
    shedder = LoadShedder(0.1, memory=lambda: 0)

    async def sleep(seconds: float) -> None:
        nonlocal now
        seen.append(shedder.is_open)
        if (more := next(late, None)) is None:
            raise asyncio.CancelledError
        now += seconds + more

    monkeypatch.setattr("service.gateway.load_shedder.asyncio.sleep", sleep)
    monkeypatch.setattr("service.gateway.load_shedder.time.monotonic", lambda: now)
    with ExitStack() as inside:
        for _ in range(crowd):
            inside.enter_context(shedder)
        with pytest.raises(asyncio.CancelledError):
            await shedder.watch()
    assert seen == open_at


class Late:
    """Requests that come out of a queue at some time, having waited for so long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.shedder = LoadShedder(seconds=0.1)
        monkeypatch.setattr("service.gateway.load_shedder.time.monotonic", lambda: self.now)

    def come(
        self, count: int, waited: float, seconds: float = 0.0, *, is_fresh: bool = True, client: str = ""
    ) -> list[bool]:
        """Return who is admitted of so many, who come within these seconds."""
        admitted = []
        for _ in range(count):
            self.now += seconds / count
            admitted.append(self.shedder.admits(waited, is_fresh=is_fresh, client=client))
        return admitted


@pytest.mark.parametrize(
    ("count", "seconds", "refused"),
    # The first 32 have nobody before them. Of the others the 64th is refused once a second has passed since the first.
    [(32 + 63, 4.0, 0), (200, 1.0, 0), (32 + 70, 1.7, 7)],
)
def test_a_queue_stands_where_64_in_a_row_were_late_for_a_second(
    count: int, seconds: float, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late(monkeypatch)
    admitted = late.come(count, 5.0, seconds)
    assert (len(admitted), admitted.count(False)) == (count, refused)
    assert admitted == sorted(admitted, reverse=True), "the first are admitted"
    late.now += 11.0
    late.come(1, 0.1)
    assert all(late.come(63, 5.0, 3.0)), "one in time has ended the row"


def test_after_a_refusal_a_queue_need_not_stand_again_for_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    late = Late(monkeypatch)
    late.come(32, 0.0)
    assert not all(late.come(100, 1.0, 2.0))
    assert late.come(40, 0.05, 0.1) == [True] * 40, "who came in time is welcome"
    late.now += 9.8
    assert late.come(2, 11.0) == [False, False]
    late.now += 10.01
    assert late.come(61, 30.0, 2.0).count(False) == 0, "63 in a row"


@pytest.mark.parametrize(("ahead", "refused"), [(31, 0), (32, 155)])
def test_few_who_ask_a_machine_that_is_always_slow_are_no_crowd(
    ahead: int, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late(monkeypatch)
    late.come(32, 0.0)
    assert late.come(264, 0.3, 264 * 0.3 / (ahead + 0.5)).count(False) == refused


@pytest.mark.parametrize("theirs", [{"is_fresh": False}, {"client": "shopper"}])
def test_a_queue_is_told_though_others_pass_it_in_time(theirs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is connected already is read in every turn of the event loop, and would hide that others are not accepted.

    Clients take turns, too: one that sends little does not wait, and would hide that the flood's queue stands.
    """
    late, admitted = Late(monkeypatch), list[bool]()
    for _ in range(200):
        admitted += late.come(1, 3.0, 0.02, client="flood")
        assert late.come(1, 0.01, **{"client": "flood", **theirs}) == [True]
    assert admitted.count(False) > 100


def test_so_many_clients_queues_are_remembered_and_not_a_flood_s_forgotten_for_who_come_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = Late(monkeypatch)
    for _ in range(200):
        late.come(1, 3.0, 0.02, client="flood")
        late.come(1, 0.01, client="shopper")
    for number in range(2500):
        assert late.come(1, 0.01, 0.001, client=f"once {number}") == [True]
        if number % 1000 == 999:
            assert late.come(1, 3.0, client="flood") == [False]
    assert len(late.shedder._own_queues) == 1024
