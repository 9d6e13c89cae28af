"""Events cost plans little: those that come together share a write, and its thread wakes the event loop once."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from service.events.journal import Journal
from service.events.landing import Landing
from service.events.rotating import RotatingFile
from tests.events.test_shipping import line
from tests.processes import PATIENCE, eventually

pytestmark = pytest.mark.anyio


async def test_one_write_wakes_the_event_loop_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, landing, written = asyncio.get_running_loop(), Landing(), Future[bool]()
    woken: list[object] = []
    wake = loop.call_soon_threadsafe

    def counted(*given: Any, **named: Any) -> asyncio.Handle:
        woken.append(given)
        return wake(*given, **named)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    waiting = [asyncio.create_task(landing.kept(written, PATIENCE)) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[7].cancel()
    written.set_result(True)
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [each for each in found if each is not True] == [found[7]]
    assert isinstance(found[7], asyncio.CancelledError)
    assert len(woken) == 1
    assert await landing.kept(written, PATIENCE), "who comes later does not wait"
    assert not landing._waiting


async def test_a_disk_that_hangs_is_waited_for_no_longer_than_it_may_take() -> None:
    landing, written = Landing(), Future[bool]()
    assert not await landing.kept(written, 0.01)
    later = asyncio.create_task(landing.kept(written, PATIENCE))
    await asyncio.sleep(0)
    written.set_result(True)
    assert await later, "of those who come while it hangs each has its own time"
    assert not landing._waiting


def test_a_write_that_ends_after_the_event_loop_disturbs_nobody() -> None:
    landing, written = Landing(), Future[bool]()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(landing.kept(written, PATIENCE), 0.01)

    asyncio.run(leave())
    written.set_result(True)


def test_what_comes_during_a_write_is_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    goes_on, append = Event(), RotatingFile.append

    def slow(file: RotatingFile, text: bytes) -> None:
        writes.append(text.count(b"\n"))
        assert goes_on.wait(PATIENCE)
        append(file, text)

    monkeypatch.setattr(RotatingFile, "append", slow)
    journal = Journal([tmp_path], file_bytes=10**9, files=1)
    first = journal.append(line(0), 1)
    eventually(lambda: bool(writes), "nothing is written")
    futures = {journal.append(line(1 + number), 1) for number in range(1024)}
    assert len(futures) == 1
    assert not journal.append(line(2000), 1).result(PATIENCE), "no more wait for a slow disk"
    assert journal.refused == 1
    goes_on.set()
    assert first.result(PATIENCE)
    assert futures.pop().result(PATIENCE)
    journal.close()
    assert writes == [1, 1024]
