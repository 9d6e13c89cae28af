"""The page of a service that speculates with a draft model."""

from collections.abc import Iterator

import pytest

from tests.api.page_visit import ANSWERS, Visit, needs_chromium

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Browser, expect

pytestmark = needs_chromium


@pytest.fixture
def visit(browser: Browser, service_url: str) -> Iterator[Visit]:
    visit = Visit.open(browser, service_url)
    yield visit
    visit.page.close()
    assert visit.complaints == []


def test_a_draft_is_shown_in_the_place_of_medusa(visit: Visit) -> None:
    trace = ANSWERS["trace"]
    drafted = {**trace["medusa"], "draft_forwards": 7}
    visit.answer_with(
        {**ANSWERS["plan"], "model": {"id": "canned-model", "strategy": "draft"}},
        {**trace, "medusa": None, "draft": drafted, "greedy": {**trace["greedy"], "draft_forwards": 0}},
    )
    visit.ask(ANSWERS["query"])
    expect(visit.plan.locator(".origin")).to_contain_text("Model canned-model with a draft model")
    expect(visit.decoding.locator(".verdict")).to_contain_text(
        "The model with its draft wrote the plan in 3 forwards (and 7 of the draft), greedy in 9;"
    )
    rows = visit.decoding.get_by_role("table", name="In total").get_by_role("row")
    expect(rows.nth(2)).to_have_text("Forwards of the draft70")
    expect(visit.decoding.locator(".lane-draft .block")).to_have_text(["1", "5", "5"])
    expect(visit.decoding.locator(".run-draft .tree").first).to_be_visible()
    expect(visit.decoding.locator(".legend")).to_contain_text("the draft guessed it, the model agrees")
