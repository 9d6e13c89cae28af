"""Helpers of the page's tests: Chromium's path, the canned answers, a page opened in it. No tests in here."""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[test]")
from playwright.sync_api import Browser, Locator, Page, Request, expect, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMIUM_OPTIONS = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: apt-get install -y --no-install-recommends chromium"
)
PATIENCE_MS = 60_000  # only a failure takes this long
expect.set_options(timeout=PATIENCE_MS)


def _step(emitted: str, *nodes: str) -> dict[str, Any]:
    """Return a step of a trace, which emits these words; of a node its parent, its status and its word are told."""
    made: list[dict[str, Any]] = []
    for parent, status, word in map(str.split, nodes):
        depth = made[int(parent)]["depth"] + 1 if int(parent) >= 0 else 0
        made.append({"token_text": f" {word}", "parent": int(parent), "status": status, "depth": depth})
    return {"nodes": made, "emitted": [f" {word}" for word in emitted.split()], "milliseconds": 10.0 if made else 20.0}


def _run(milliseconds: float, *steps: dict[str, Any]) -> dict[str, Any]:
    usage = {"prompt_tokens": 9, "plan_tokens": 11, "steps": len(steps)}
    text = " find Brand nike Type running shoes Color red Under 100 Fashion"
    return {"plan_text": text, "tokens_per_step": round(11 / len(steps), 2), "milliseconds": milliseconds,
            "usage": usage, "steps": list(steps)}  # fmt: skip


_QUERY = "nike running shoes in red under $100"
_RUNNER = {"id": "1", "name": "Red Runner", "price": 89.99, "category": "footwear, sneaker", "snippet": "For the road."}
_SHOE = {"id": "2", "name": "Shoe", "price": 12, "category": "footwear, formal", "snippet": "For the office."}
_KIND, _PRICE = {"kind": "kind", "says": "running shoes"}, {"kind": "price", "says": "up to 100 USD"}
_RATING = {"kind": "rating", "says": "rated 4 of 5 or better"}
_PLAN = {
    "mode": "keyword", "intent": "find_product", "vertical": "apparel-accessories",
    "facets": {"brand": ["nike"], "type": ["running shoes"], "color": ["red"]}, "exclude": {"material": ["leather"]},
    "price": {"min": None, "max": 100, "currency": "USD"}, "rating": {"min": 4}, "sort": "price_asc",
    "offers": ["free_shipping"], "queries": ["nike running shoes in red", "nike running shoes"], "parts": [],
    "sources": ["catalog", "reviews"],
}  # fmt: skip
_MEDUSA = _run(
    40.0, _step("find"),
    _step("Brand nike Type running shoes", "-1 sampled find", "0 accepted Brand", "0 rejected Type", "1 forced nike",
          "3 accepted Type", "3 rejected Color"),
    _step("Color red Under 100 Fashion", "-1 sampled running", "0 forced shoes", "1 accepted Color", "2 accepted red",
          "3 accepted Under", "4 accepted 100"),
)  # fmt: skip
_GREEDY = _run(
    100.0, _step("find"), _step("Brand nike", "-1 sampled find"), _step("Type", "-1 sampled Brand", "0 forced nike"),
    _step("running shoes", "-1 sampled Type"), _step("Color", "-1 sampled running", "0 forced shoes"),
    _step("red", "-1 sampled Color"), _step("Under", "-1 sampled red"), _step("100", "-1 sampled Under"),
    _step("Fashion", "-1 sampled 100"),
)  # fmt: skip
ANSWERS: dict[str, Any] = {
    "query": _QUERY,
    "plan": {
        "request_id": "canned", "plan": _PLAN, "source": "model", "degraded": False,
        "model": {"id": "canned-model", "strategy": "medusa"}, "usage": _MEDUSA["usage"],
        "timing_ms": {"total": 41.25, "queue": 0.5, "model": 40.0},
    },
    "shop": {
        "by_plan": [_RUNNER, _SHOE], "by_words": [_SHOE],
        "interleaved": [{**_RUNNER, "team": "plan"}, {**_SHOE, "team": "words"}], "counted": False,
        "notes": ["the mapping has no rating: ratings are not filtered"], "reason": None,
    },
    "trace": {"question": _QUERY, "medusa": _MEDUSA | {"plan": _PLAN}, "greedy": _GREEDY},
    "options": {
        "options": [{**_RUNNER, "met": [_KIND, _PRICE], "unmet": [], "unknown": [_RATING]},
                    {**_SHOE, "met": [_PRICE], "unmet": [_KIND], "unknown": []}],
        "notes": [], "nothing": False, "nearest": [], "reason": None, "milliseconds": 47.9,
    },
}  # fmt: skip


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
