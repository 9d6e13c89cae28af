"""The site as its readers have it: in a browser, from a disk and from a server, without a network."""

import functools
import http.server
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[test]")
from playwright.sync_api import Browser, Page

from tests.api.page_visit import PATIENCE_MS, Visit, needs_chromium, running_chromium
from tests.api.test_page import AXE, objections
from tests.server_process import REPOSITORY

MKDOCS = REPOSITORY / ".venv/bin/mkdocs"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MKDOCS.is_file(), reason="MkDocs is not there: make site"),
]


EVERY_PAGE = "PEAKPLAN_EVERY_PAGE" in os.environ  # some 650 looks, minutes: PEAKPLAN_EVERY_PAGE=1
SOME_PAGES = (
    *("index.html", "gallery.html", "tutorials/widget.html", "settings.html"),
    *("decisions/index.html", "value.html", "404.html"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a link or an anchor that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [MKDOCS, "build", "--strict", "--quiet", "--config-file", "docs/website/mkdocs.yml", "--site-dir", folder]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


def test_every_page_is_whole_and_asks_nobody_else(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe|source)[^>]*\bsrc="?(http[^" >]+)', text)
        fetched += re.findall(r'<link[^>]*\brel="?(?:stylesheet|icon|preconnect)[^>]*\bhref="?(http[^" >]+)', text)
        assert fetched == [], page
        assert "<p>```" not in text, f"{page}: a block of code is read as text"
        assert not re.search(r"<p>\|[^<]*\|", text), f"{page}: a table is read as text"


def search(page: Page, words: str) -> list[str]:
    """Type words into the site's search; return the addresses of what it found."""
    page.set_default_timeout(PATIENCE_MS)
    if not page.get_by_role("textbox", name="Search").is_visible():
        page.locator("label[for=__search]").first.click()
    page.get_by_role("textbox", name="Search").press_sequentially(words)
    found = page.locator("a.md-search-result__link")
    found.first.wait_for()
    return [str(each.get_attribute("href")) for each in found.all()]


@needs_chromium
@pytest.mark.parametrize("way", ["disk", "server"])
def test_the_search_finds_and_nothing_comes_from_elsewhere(
    chromium: Browser, site: Path, served: str, way: str
) -> None:
    root = site.as_uri() if way == "disk" else served
    visit = Visit.open(chromium, f"{root}/index.html")
    found = search(visit.page, "PEAKPLAN_CORS_ORIGINS")
    assert any("settings.html" in each for each in found)
    visit.page.locator("a.md-search-result__link[href*='settings.html']").first.click()
    visit.page.wait_for_url(re.compile(r"settings\.html"))
    assert visit.complaints == []
    assert {request.url for request in visit.requests if not request.url.startswith((root, "data:", "blob:"))} == set()
    visit.page.close()


@needs_chromium
def test_diagrams_are_drawn(chromium: Browser, site: Path) -> None:
    visit = Visit.open(chromium, f"{site.as_uri()}/index.html")
    drawn = visit.page.locator("div.mermaid")
    drawn.nth(1).wait_for()
    assert drawn.count() == (REPOSITORY / "README.md").read_text(encoding="utf-8").count("```mermaid")
    assert all((each.bounding_box() or {"height": 0})["height"] > 50 for each in drawn.all())
    assert visit.complaints == []
    assert {request.url for request in visit.requests if not request.url.startswith((site.as_uri(), "data:"))} == set()
    visit.page.close()


@needs_chromium
@pytest.mark.skipif(not AXE.is_file(), reason="axe is not there: npm ci")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 768, 1920] if EVERY_PAGE else [375, 1920])
def test_axe_finds_nothing(chromium: Browser, site: Path, served: str, scheme: str, width: int) -> None:
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    visit = Visit.open(chromium, f"{served}/index.html", **options)
    for page in sorted(str(path.relative_to(site)) for path in site.rglob("*.html")) if EVERY_PAGE else SOME_PAGES:
        visit.page.goto(f"{served}/{page}")
        visit.page.locator("main").wait_for()
        assert objections(visit) == [], page
    visit.page.close()
