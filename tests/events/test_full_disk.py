"""A disk that is really full: what it takes is whole, the rest goes on to the next folder, and nothing is lost."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from service.events.journal import Journal
from service.events.rotating import RotatingFile
from tests.events.test_shipping import line
from tests.processes import PATIENCE


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
