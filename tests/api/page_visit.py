"""Helpers of the page's tests: Chromium's path, the canned answers, a page opened in it. No tests in here."""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[test]")
from playwright.sync_api import Browser, Locator, Page, Request, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMIUM_OPTIONS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install -y --no-install-recommends chromium"
)
PATIENCE_MS = 60_000  # only a failure takes this long
expect.set_options(timeout=PATIENCE_MS)

_HERE = Path(__file__).parent
ANSWERS: dict[str, Any] = json.loads((_HERE / "test_page_answers.json").read_text(encoding="utf-8"))
ANSWERS["trace"]["medusa"]["plan"] = ANSWERS["plan"]["plan"]


def events(plan: Any, options: Any = ANSWERS["options"]) -> str:
    """Return an answer as the service streams it."""
    each = {"plan": plan, "options": options, "done": {"plan_ms": 41.3, "first_ms": 47.9, "total_ms": 48.2}}
    return "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in each.items())


@contextlib.contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run headless Chromium."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """A page opened in the browser, with its requests and errors."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @classmethod
    def open(cls, browser: Browser, url: str, **options: Any) -> "Visit":
        """Load the page in a context of its own, with Playwright's context options."""
        page = browser.new_page(**options)
        page.set_default_timeout(PATIENCE_MS)
        visit = cls(page, url)
        page.on("console", lambda message: visit.complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        page.on("request", lambda sent: visit.requests.append(sent))
        page.goto(url)
        return visit

    @property
    def question(self) -> Locator:
        return self.page.get_by_label("What is the shopper asking?")

    @property
    def error(self) -> Locator:
        return self.page.locator("#question-error")

    @property
    def plan(self) -> Locator:
        return self.page.get_by_role("region", name="The plan")

    @property
    def options(self) -> Locator:
        """What the shop has; its heading says how many, or what was not found."""
        return self.page.get_by_role("region", name=re.compile("option|^Not found|^Nothing of"))

    @property
    def shop(self) -> Locator:
        return self.page.get_by_role("region", name="What the shop finds")

    @property
    def decoding(self) -> Locator:
        return self.page.get_by_role("region", name="How it was decoded")

    @property
    def posted(self) -> list[tuple[str, Any]]:
        """Path and body of every POST, in order."""
        posts = [request for request in self.requests if request.method == "POST"]
        return [(request.url.removeprefix(self.url.rstrip("/")), request.post_data_json) for request in posts]

    def ask(self, query: str) -> None:
        self.question.fill(query)
        self.question.press("Enter")

    def answer_with(
        self,
        plan: Any = ANSWERS["plan"],
        trace: Any = ANSWERS["trace"],
        shop: Any = ANSWERS["shop"],
        options: Any = ANSWERS["options"],
    ) -> None:
        """Answer with these from now on, without the service."""
        body = events(plan, options)
        self.page.route("**/answer", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
        self.page.route("**/shop/search", lambda route: route.fulfill(json=shop))
        self.page.route("**/trace", lambda route: route.fulfill(json=trace))
