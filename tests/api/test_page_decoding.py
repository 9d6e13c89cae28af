"""How the page shows a decoding: trees, the comparison with greedy decoding, and a trace that fails."""

import json
import re

import pytest

from tests.api.page_visit import ANSWERS, Visit, needs_chromium

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

pytestmark = needs_chromium


def test_trees_tell_their_tokens_apart_without_colour(visit: Visit) -> None:
    visit.answer_with()
    visit.ask(ANSWERS["query"])
    tree = visit.decoding.locator(".run-medusa .step").nth(1).locator(".tree")
    expect(tree.locator(":scope > ul > li > .row")).to_have_text(re.compile(r"find\s+sampled"))
    branches = tree.locator(":scope > ul > li > ul > li")
    expect(branches).to_have_text(
        [re.compile(r"^Brand accepted.*nike forced.*Type accepted"), re.compile("Type rejected")]
    )
    wrote = visit.decoding.locator(".run-medusa .step").nth(1).locator(".wrote .token")
    expect(wrote).to_have_text(list(map(re.compile, ("accepted", "forced", "accepted", "sampled", "forced"))))
    looks = set()
    for status in ("accepted", "rejected", "forced", "sampled"):
        token = visit.decoding.locator(f".tree .token-{status}").first
        expect(token.locator("use")).to_have_attribute("href", f"#mark-{status}")
        looks.add(token.evaluate("t => [getComputedStyle(t).borderStyle, getComputedStyle(t).borderRadius].join()"))
    assert len(looks) == 4


def test_both_runs_are_compared(visit: Visit) -> None:
    visit.answer_with()
    visit.ask(ANSWERS["query"])
    expect(visit.decoding.locator(".verdict")).to_have_text(
        "Medusa wrote the plan in 3 forwards, greedy in 9; 40.0 ms against 100 ms, 2.5 times as fast."
    )
    expect(visit.decoding.locator(".same")).to_have_text("Both wrote the same 11 tokens.")
    rows = visit.decoding.get_by_role("table", name="In total").get_by_role("row")
    expect(rows.nth(1)).to_have_text("Forwards of the model39")
    expect(visit.decoding.locator(".lane-medusa .block")).to_have_text(["1", "5", "5"])


def test_different_tokens_are_admitted(visit: Visit) -> None:
    trace = json.loads(json.dumps(ANSWERS["trace"]))
    trace["greedy"]["steps"][1]["emitted"] = [" Type", " nike"]
    visit.answer_with(trace=trace)
    visit.ask(ANSWERS["query"])
    expect(visit.decoding.locator(".same")).to_have_text("They wrote different tokens, from token 2 on.")


def test_failed_trace_leaves_the_plan_and_offers_to_try_again(visit: Visit) -> None:
    problem = {"title": "Service Unavailable", "status": 503, "detail": "Every replica is busy."}
    visit.page.route("**/trace", lambda route: route.fulfill(status=503, json=problem, headers={"retry-after": "2"}))
    visit.ask("garden hose")
    expect(visit.decoding).to_contain_text("Every replica is busy. Try again in 2 seconds.")
    expect(visit.plan).to_be_visible()
    visit.page.unroute("**/trace")
    visit.decoding.get_by_role("button", name="Try again").click()
    expect(visit.decoding).to_contain_text("Both wrote the same")
    assert [path for path, _ in visit.posted] == ["/answer", "/shop/search", "/trace", "/trace"]


def test_decoding_says_where_it_is_not_that_of_the_plan(visit: Visit) -> None:
    other = ANSWERS["plan"]["plan"] | {"intent": "small_talk"}
    visit.answer_with(ANSWERS["plan"] | {"plan": other, "source": "fallback", "degraded": True, "reason": "deadline"})
    visit.ask(ANSWERS["query"])
    expect(visit.decoding.locator(".another-run")).to_contain_text("Rules wrote the plan above")
    expect(visit.decoding.locator(".sentence")).to_contain_text("Find product: running shoes")
