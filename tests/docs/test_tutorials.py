"""The tutorials, followed to the letter in a fresh folder, end with what they promise."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.tools import client_types
from service.planner.vocabulary import shipped_vocabulary
from tests.docs.following import Reader, blocks
from tests.server_process import REPOSITORY
from training.data.own_rows import read_own_rows

pytestmark = pytest.mark.slow
TUTORIALS = REPOSITORY / "docs/tutorials"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    somebody = Reader(tmp_path, {"8080": free_port(), "8000": free_port()})
    yield somebody
    somebody.close()


def test_a_shop_is_searched(reader: Reader) -> None:
    reader.follow(TUTORIALS / "search-a-shop.md")
    assert "Orlo Post daypack red canvas" in reader.said[-1]


def test_rows_of_one_s_own_are_made_and_pass_the_check(tmp_path: Path) -> None:
    """What of the third tutorial takes seconds."""
    (rows,) = (block for block in blocks(TUTORIALS / "own-model.md") if block.file == "rows.py")
    done = subprocess.run([sys.executable, "-c", rows.text], cwd=tmp_path, capture_output=True, text=True, check=True)
    found = read_own_rows(tmp_path / "mine.jsonl", shipped_vocabulary())
    assert done.stdout == f"{len(found.train) + len(found.dev)} rows\n"
    assert len(found.dev) >= 20, "enough to tell whether the model got better"
    assert found.repeated == []


@pytest.mark.skipif("PEAKPLAN_TUTORIALS" not in os.environ, reason="trains for minutes: peakplan tools tutorials")
@pytest.mark.timeout(4 * 3600)  # a machine with other work takes longer, and nothing hangs
def test_a_model_of_one_s_own(reader: Reader) -> None:
    reader.follow(TUTORIALS / "own-model.md")
    checked, trained = reader.said[2:4]
    assert "time: some " in checked
    before, after = re.findall(r"^\| all of a row \| ([\d.]+)% \| ([\d.]+)% \|$", trained, re.MULTILINE)[0]
    assert float(after) > float(before)
    assert (reader.folder / "models/mine/training.json").is_file()


def test_a_widget_in_a_page(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.api.page_visit import CHROMIUM, Visit, running_chromium

    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install -y --no-install-recommends chromium")
    if not (client_types.FOLDER / "node_modules").exists():
        pytest.skip("the compiler is not installed: peakplan tools client-types")
    monkeypatch.setenv("PATH", client_types.PATH)
    reader.follow(TUTORIALS / "widget.md")
    with running_chromium() as browser:
        visit = Visit.open(browser, f"http://127.0.0.1:{reader.ports['8000']}")
        box, understood = visit.page.get_by_role("textbox"), visit.page.get_by_role("listitem")
        box.fill("leather boots under 80 dollars, not brown")
        box.press("Enter")
        understood.filter(has_text="up to 80").wait_for()
        said = understood.all_text_contents()
        assert "type: boots" in said
        assert "not brown" in said
        box.fill("what about in black?")
        box.press("Enter")
        understood.filter(has_text="color: black").wait_for()
        assert "type: boots" in understood.all_text_contents()
        assert [each for each in visit.complaints if "favicon" not in each and "404" not in each] == []
