"""The page at a service that requires tokens: it asks its visitor once, and sends the token nowhere else."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.page_visit import Visit, needs_chromium
from tests.server_process import serving

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Browser, Locator, expect

pytestmark = needs_chromium

TOKEN = "a-token-for-the-page"
STALE = "a-token-of-yesterday"


@pytest.fixture(scope="module")
def guarded_url(tiny_model_dir: Path) -> Iterator[str]:
    line = f"page {hashlib.sha256(TOKEN.encode()).hexdigest()}"
    settings = {"PEAKPLAN_API_KEYS": line, "PEAKPLAN_REPLICAS": 1, "PEAKPLAN_TRACE_DEADLINE_MS": 30_000}
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, **settings) as server:
        yield server.url


@pytest.fixture
def visit(browser: Browser, guarded_url: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    visit = Visit.open(browser, guarded_url, **getattr(request, "param", {}))
    yield visit
    said = [text for text in visit.complaints if "401" not in text]
    seen_elsewhere = [sent.url for sent in visit.requests if TOKEN in sent.url or not sent.url.startswith(guarded_url)]
    visit.page.close()
    assert (said, seen_elsewhere) == ([], [])
    assert not any(TOKEN in text for text in visit.complaints)


def dialog(visit: Visit) -> Locator:
    return visit.page.get_by_role("dialog", name="This planner asks for a token")


def field(visit: Visit) -> Locator:
    return visit.page.get_by_label("Access token")


def authorizations(visit: Visit) -> list[tuple[str, str | None]]:
    posts = [request for request in visit.requests if request.method == "POST"]
    return [(post.url.removeprefix(visit.url.rstrip("/")), post.headers.get("authorization")) for post in posts]


def test_the_visitor_is_asked_once_and_the_tab_remembers(visit: Visit) -> None:
    visit.ask("garden hose")
    expect(field(visit)).to_be_focused()
    expect(field(visit)).to_have_attribute("type", "password")
    field(visit).press_sequentially(TOKEN)
    visit.page.keyboard.press("Enter")
    expect(visit.decoding).to_contain_text("Both wrote the same")
    expect(dialog(visit)).to_be_hidden()
    expect(visit.question).to_be_focused()

    visit.ask("garden gnome")
    expect(visit.plan.locator(".asked")).to_have_text("garden gnome")
    expect(visit.page.locator("#status")).to_have_text("The plan and its decoding are below.")
    visit.page.reload()
    visit.ask("garden fence")
    expect(visit.page.locator("#status")).to_have_text("The plan and its decoding are below.")

    bearer = f"Bearer {TOKEN}"
    assert authorizations(visit) == [
        ("/answer", None),
        *[("/answer", bearer), ("/shop/search", bearer), ("/trace", bearer)] * 3,
    ]
    elsewhere = "[localStorage.length, document.cookie, document.body.innerHTML.includes('a-token')]"
    assert visit.page.evaluate(elsewhere) == [0, "", False]


def test_a_token_that_is_not_known_is_asked_for_again(visit: Visit) -> None:
    visit.ask("garden hose")
    for wrong, words in (("", "Type the token first."), ("no spaces", "no spaces"), (STALE, "does not know")):
        field(visit).fill(wrong)
        field(visit).press("Enter")
        expect(visit.page.get_by_role("alert").filter(has_text=words)).to_be_visible()
        expect(field(visit)).to_be_focused()
        expect(field(visit)).to_have_attribute("aria-invalid", "true")
    expect(field(visit)).to_have_value("")
    field(visit).fill(TOKEN)
    dialog(visit).get_by_role("button", name="Use it").click()
    expect(visit.decoding).to_be_visible()


@pytest.mark.parametrize("how", ["Escape", "Cancel"])
def test_who_has_no_token_is_told_so_and_may_try_again(visit: Visit, how: str) -> None:
    visit.ask("garden hose")
    expect(dialog(visit)).to_be_visible()
    if how == "Escape":
        visit.page.keyboard.press("Escape")
    else:
        dialog(visit).get_by_role("button", name="Cancel").click()
    expect(dialog(visit)).to_be_hidden()
    expect(visit.error).to_contain_text("This planner answers only with an access token.")
    expect(visit.page.locator("#status")).to_be_empty()
    visit.error.get_by_role("button", name="Try again").click()
    field(visit).fill(TOKEN)
    field(visit).press("Enter")
    expect(visit.decoding).to_be_visible()


def test_the_dialog_fits_a_narrow_window(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 360, "height": 700})
    visit.ask("garden hose")
    expect(field(visit)).to_be_visible()  # a key that is pressed before the dialog shows is lost
    field(visit).press("Enter")
    expect(visit.page.get_by_text("Type the token first.")).to_be_visible()
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
