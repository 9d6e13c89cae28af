"""A disk that is really full: what it takes is whole, the rest goes on to the next folder, and nothing is lost."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.events.journal import Journal
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
