"""The tutorials, followed to the letter in a fresh folder, end with what they promise."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import client_types
from tests.server_process import REPOSITORY
from tests.website.following import Reader

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


def test_a_widget_in_a_page(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.api.page_visit import CHROMIUM, Visit, running_chromium

    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install -y --no-install-recommends chromium")
    if not (client_types.FOLDER / "node_modules").exists():
        pytest.skip("the compiler is not installed: make client-types")
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
