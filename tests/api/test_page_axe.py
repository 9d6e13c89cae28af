"""axe-core finds nothing on any page, light and dark, narrow and wide."""

from pathlib import Path

import pytest

from tests.api.page_visit import ANSWERS, Visit, needs_chromium

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

AXE = Path("node_modules/axe-core/axe.min.js")
pytestmark = [
    needs_chromium,
    pytest.mark.slow,
    pytest.mark.skipif(not AXE.is_file(), reason="axe is not there: npm ci"),
]
EVERY = pytest.mark.parametrize(
    "visit",
    [
        {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
        for scheme in ("light", "dark")
        for width in (375, 768, 1920)
    ],
    indirect=True,
)


def objections(visit: Visit) -> list[str]:
    """Return what axe finds, with the elements it is about."""
    visit.page.evaluate(AXE.read_text(encoding="utf-8"))
    found = visit.page.evaluate("axe.run()")["violations"]
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "the page is wider than its window"
    )
    return [f"{each['id']}: {node['target']}" for each in found for node in each["nodes"]]


@EVERY
def test_the_page_before_and_after_an_answer(visit: Visit) -> None:
    assert objections(visit) == []
    visit.answer_with({**ANSWERS["plan"], "degraded": True, "reason": "capacity"})
    visit.ask(ANSWERS["query"])
    expect(visit.decoding).to_be_visible()
    visit.shop.get_by_text("Both searches in one list").click()
    visit.shop.get_by_role("button", name="Red Runner").click()
    assert objections(visit) == []
    visit.ask("a " * 300)
    assert objections(visit) == []


@EVERY
def test_the_reference(visit: Visit, page_url: str) -> None:
    visit.page.goto(f"{page_url}/docs")
    operations = visit.page.locator(".opblock-summary-control")
    expect(operations.first).to_be_visible()
    assert objections(visit) == []
    visit.page.locator("#operations-Plans-plan .opblock-summary-control").click()
    expect(visit.page.locator(".opblock-body").first).to_be_visible()
    assert objections(visit) == []
