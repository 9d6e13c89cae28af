"""Events in files: told when they are kept, spilled where a disk is full, whole after a kill."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from peakplan_client import EventSender
from peakplan_client.events import MOST_OF_A_REQUEST

from service.events.journal import Journal, Landing, RotatingFile
from tests.events.test_shipping import line
from tests.faults.under_load import MODULE, fake_server
from tests.postgresql_server import postgresql
from tests.processes import PATIENCE, eventually
from tests.server_process import ServerProcess

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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_what_a_full_disk_does_not_take_is_spilled_whole(small_disk: Path, tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    journal = Journal([small_disk, spill], file_bytes=10**9, files=1)
    lines = [line(number, user_query="x" * (number % 700)) for number in range(400)]
    written = [journal.append(each, 1) for each in lines]
    assert all(future.result(PATIENCE) for future in written)
    journal.close()
    texts = [(folder / "events.jsonl").read_text("utf-8") for folder in (small_disk, spill)]
    kept = [json.loads(each) for text in texts for each in text.splitlines()]
    assert sorted(each["event_id"] for each in kept) == [f"event-{number:06}" for number in range(400)]
    assert texts[1].count("\n") == journal.spilled > 0
    assert journal.refused == 0


def test_a_disk_that_hangs_until_nobody_waits_takes_later_events_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, append = Event(), RotatingFile.append

    def hanging(file: RotatingFile, text: bytes) -> None:
        assert goes_on.wait(PATIENCE)
        append(file, text)

    monkeypatch.setattr(RotatingFile, "append", hanging)
    journal = Journal([tmp_path], file_bytes=10**9, files=1)
    journal.append(line(1), 1).cancel()  # as asyncio does where the sender's time is up
    goes_on.set()
    assert journal.append(line(2), 1).result(PATIENCE)
    journal.close()
    assert (tmp_path / "events.jsonl").read_text("utf-8").count("\n") == 2


@pytest.mark.slow
def test_events_that_were_answered_for_survive_a_kill_and_reach_the_database(tmp_path: Path) -> None:
    import psycopg

    settings = {"PEAKPLAN_OUTCOMES_DIR": tmp_path, "PEAKPLAN_OUTCOMES_KEY": "shared", "FAKE_SECONDS": 0}
    kept = {"PEAKPLAN_REPLICAS": 1, "PEAKPLAN_OVERSUBSCRIBE": 1} | settings
    server = ServerProcess(MODULE, **kept, PEAKPLAN_OUTCOMES_POSTGRES="host=/nowhere dbname=x").wait_until_ready()
    answered: list[str] = []
    try:
        with httpx.Client(base_url=server.url) as client:
            query_id = client.post("/plan", json={"query": "nike running shoes"}).json()["request_id"]
            for first in range(0, 80, 8):
                events = [
                    {"action_name": "click", "query_id": query_id, "event_id": f"event-{number:02}"}
                    for number in range(first, first + 8)
                ]
                for sent in (*events[:3], events[3:]):  # alone, and in a list
                    assert client.post("/outcomes", json=sent).status_code == 202
                answered += [event["event_id"] for event in events]
            server.process.kill()
    finally:
        server.process.kill()
        server.wait()
    lines = (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["event_id"] for line in lines] == answered
    with (
        postgresql() as url,
        fake_server(**settings, PEAKPLAN_OUTCOMES_POSTGRES=url) as again,
        psycopg.connect(url, autocommit=True) as database,
    ):

        def found() -> list[str]:
            exists = database.execute("SELECT to_regclass('peakplan_events')").fetchone()
            if not exists or exists[0] is None:
                return []
            return [row[0] for row in database.execute("SELECT event_id FROM peakplan_events ORDER BY event_id")]

        eventually(lambda: found() == answered, f"the database never got what was kept: {again.lines}")


def test_a_shop_s_sender_loses_nothing_through_a_kill_and_sends_at_most_one_list_twice(tmp_path: Path) -> None:
    hosts = [tmp_path / "first", tmp_path / "second"]
    common = {"PEAKPLAN_OUTCOMES_KEY": "shared", "PEAKPLAN_CACHE_ENTRIES": 0, "FAKE_SECONDS": 0}
    with (
        fake_server(**common, PEAKPLAN_OUTCOMES_DIR=hosts[0]) as first,
        fake_server(**common, PEAKPLAN_OUTCOMES_DIR=hosts[1]) as second,
    ):
        ids = [first.post("/plan", {"query": f"shoes {number}"}).json()["request_id"] for number in range(8)]
        sender = EventSender([first.url, second.url], linger_ms=5)
        put: list[str] = []

        def put_more(count: int) -> None:
            for _ in range(count):
                put.append(f"event-{len(put):03}")
                assert sender.put({"action_name": "view", "query_id": ids[len(put) % 8], "event_id": put[-1]})

        put_more(3 * MOST_OF_A_REQUEST)
        eventually(lambda: sender.sent > 0, "nothing arrives at the first host")
        put_more(MOST_OF_A_REQUEST)
        first.process.kill()
        put_more(2 * MOST_OF_A_REQUEST)
        sender.close(timeout=PATIENCE)
        first.wait()
    kept = [
        json.loads(line)["event_id"]
        for host in hosts
        for line in (host / "events.jsonl").read_text("utf-8").splitlines()
    ]
    assert sorted(set(kept)) == put
    assert list(dict.fromkeys(kept)) == put, "in their order"
    assert len(kept) - len(put) <= MOST_OF_A_REQUEST
    assert (sender.sent, sender.dropped, sender.refused) == (len(put), 0, 0)
