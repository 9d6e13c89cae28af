"""The page in a real browser, against the real service with a tiny random model, or canned answers for texts."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.page_visit import ANSWERS, Visit, events, needs_chromium
from tests.server_process import serving

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import Browser, Locator, Route, expect

pytestmark = needs_chromium

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
INLINE_SCRIPT = "document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))"
KINDS = 7
SSE = "text/event-stream"


# The browser does not keep a stream's body for the test; the same question has the same plan.
PLAN = """async query => {
  const headers = {"content-type": "application/json"};
  const answer = await fetch("/plan", {method: "POST", headers, body: JSON.stringify({query, deadline_ms: 2000})});
  return (await answer.json()).plan;
}"""


def test_question_becomes_plan_and_decoding(visit: Visit) -> None:
    with visit.page.expect_response("**/trace") as traced:
        visit.ask("nike running shoes red size 10 that nobody asked for before")
    trace = traced.value.json()
    plan = visit.page.evaluate(PLAN, "nike running shoes red size 10 that nobody asked for before")
    expect(visit.plan.locator(".asked")).to_have_text("nike running shoes red size 10 that nobody asked for before")
    expect(visit.plan.locator(".queries li")).to_have_text(plan["queries"])
    items = [plan, *plan["parts"]]
    chips = sum(len(values) for item in items for side in ("facets", "exclude") for values in item[side].values())
    chips += sum(item["price"]["min"] is not None or item["price"]["max"] is not None for item in items)
    chips += len(plan["offers"]) + (plan["sort"] != "relevance") + (plan["rating"]["min"] is not None)
    expect(visit.plan.locator(".chip-value")).to_have_count(chips)
    expect(visit.shop).to_contain_text("PEAKPLAN_SAMPLE_SHOP turns it on")
    expect(visit.decoding.locator(".another-run")).to_contain_text("This is another run of the same question")
    for name in ("medusa", "greedy"):
        expect(visit.decoding.locator(f".run-{name} .step")).to_have_count(len(trace[name]["steps"]))
    nodes = sum(len(step["nodes"]) for step in trace["medusa"]["steps"])
    expect(visit.decoding.locator(".tree .token")).to_have_count(nodes)
    expect(visit.decoding).to_contain_text("Both wrote the same")
    expect(visit.page.locator("#status")).to_have_text("The plan and its decoding are below.")
    assert visit.complaints == []


def test_every_example_is_answered(visit: Visit) -> None:
    examples = visit.page.get_by_role("region", name="Or try one of these").get_by_role("button")
    expect(examples).to_have_count(KINDS)
    for example in examples.all():
        with visit.page.expect_response("**/trace") as traced:
            example.click()
        assert traced.value.ok
        expect(visit.plan.locator(".asked")).to_contain_text(visit.question.input_value())
        expect(visit.decoding).to_contain_text("Both wrote the same")
    assert visit.posted[-1][1]["history"] == ["red rain jacket for women"]
    assert visit.complaints == []


def test_follow_up_carries_the_questions_before_it(visit: Visit) -> None:
    follow_up = visit.page.get_by_label("Follow up on the last question")
    expect(follow_up).to_be_disabled()
    visit.ask("red rain jacket")
    expect(visit.decoding).to_be_visible()
    follow_up.check()
    visit.ask("in blue")
    expect(visit.plan.locator(".asked")).to_have_text("red rain jacket → in blue")
    visit.ask("for women")
    expect(visit.plan.locator(".asked")).to_have_text("red rain jacket → in blue → for women")
    follow_up.uncheck()
    visit.ask("garden hose")
    expect(visit.plan.locator(".asked")).to_have_text("garden hose")
    histories = [body["history"] for path, body in visit.posted if path == "/answer"]
    assert histories == [[], ["red rain jacket"], ["red rain jacket", "in blue"], []]


def test_keyboard_alone(visit: Visit) -> None:
    keyboard = visit.page.keyboard
    keyboard.press("Tab")
    expect(visit.question).to_be_focused()
    keyboard.type("garden")
    keyboard.press("Shift+Enter")
    keyboard.type("hose")
    assert visit.posted == []
    keyboard.press("Tab")
    focused = visit.page.get_by_role("button", name="Plan it")
    expect(focused).to_be_focused()
    assert focused.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"
    keyboard.press("Space")
    expect(visit.decoding).to_be_visible()
    assert visit.posted[0] == ("/answer", {"query": "garden\nhose", "history": []})
    keyboard.press("Tab")
    keyboard.press("Space")
    expect(visit.page.get_by_label("Follow up on the last question")).to_be_checked()
    for _ in range(KINDS + 2):  # the deadline before them
        keyboard.press("Tab")
    keyboard.press("Enter")
    expect(visit.plan.get_by_role("region", name="The answer as JSON")).to_contain_text('"request_id"')


@pytest.mark.parametrize(
    ("query", "words"),
    [("", "Type a question first."), ("  ", "Type a question first."), ("a " * 300, "600 characters")],
)
def test_question_that_cannot_be_sent(visit: Visit, query: str, words: str) -> None:
    visit.ask(query)
    expect(visit.error).to_contain_text(words)
    expect(visit.question).to_be_focused()
    expect(visit.question).to_have_attribute("aria-invalid", "true")
    expect(visit.question).to_have_accessible_description(re.compile(re.escape(words)))
    assert visit.posted == []
    visit.question.press_sequentially("b")
    expect(visit.error).to_be_empty()
    expect(visit.question).not_to_have_attribute("aria-invalid", "true")


def test_refusal_of_the_service_is_said_in_its_words(visit: Visit) -> None:
    visit.page.route("**/answer", lambda route: route.continue_(post_data=json.dumps({"query": "a" * 600})))
    with visit.page.expect_response("**/answer") as refused:
        visit.ask("looks fine from here")
    assert refused.value.status == 422
    expect(visit.error).to_have_text("The question must have at most 512 characters.")
    expect(visit.question).to_be_focused()


def test_plan_as_people_read_it(visit: Visit) -> None:
    visit.answer_with()
    visit.ask(ANSWERS["query"])
    expect(visit.plan.locator(".sentence")).to_have_text(
        "Find product: running shoes · brand nike · color red · not leather · price under $100 · "
        "rating 4 of 5 and up · free shipping · cheapest first"
    )
    chips = visit.plan.locator(".chip")
    expect(chips).to_have_text(
        ["brand: nike", "type: running shoes", "color: red", "not material: leather", "price: under $100",
         "rating: 4 of 5 and up", "free shipping", "cheapest first"]
    )  # fmt: skip
    expect(visit.plan.locator(".queries li")).to_have_text(["nike running shoes in red", "nike running shoes"])
    expect(visit.plan.locator(".sources li")).to_have_text(["Catalog", "Reviews"])
    expect(visit.plan.locator(".facts")).to_contain_text("Apparel & Accessories")
    expect(visit.plan.locator(".origin")).to_have_text(
        "Model canned-model with Medusa heads: 41.3 ms in all, 40.0 ms in the model, 0.5 ms waiting; "
        "11 tokens in 3 forwards after 9 of prompt"
    )


def test_what_the_service_says_of_itself_is_shown_and_its_deadline_can_be_changed(visit: Visit) -> None:
    notice = visit.page.locator("#notice")
    expect(notice).to_be_hidden()
    words = "One plan in ten takes the model 517 ms: send deadline_ms."
    ready = {"status": "ready", "model": "m", "notice": words, "deadline_ms": 450}
    visit.page.route("**/readyz", lambda route: route.fulfill(json=ready))
    visit.page.reload()
    expect(notice).to_be_visible()
    expect(notice).to_have_text(words)
    deadline = visit.page.get_by_label("Answer within")
    expect(deadline).to_have_attribute("placeholder", "450")
    visit.answer_with()
    deadline.fill("750")
    visit.ask(ANSWERS["query"])
    expect(visit.decoding).to_be_visible()
    assert visit.posted[0] == ("/answer", {"query": ANSWERS["query"], "history": [], "deadline_ms": 750})


def test_degraded_plan_says_why_and_its_decoding_that_it_is_not_that_of_the_plan(visit: Visit) -> None:
    other = ANSWERS["plan"]["plan"] | {"intent": "small_talk"}
    visit.answer_with({**ANSWERS["plan"], "plan": other, "source": "fallback", "degraded": True, "reason": "deadline"})
    visit.ask("running shoes")
    expect(visit.plan.locator(".degraded")).to_contain_text(
        "The model needs longer than this question may take, so the small reader wrote this plan."
    )
    expect(visit.plan.locator(".badge")).to_have_text("Rules")
    expect(visit.decoding.locator(".another-run")).to_contain_text("The small reader wrote the plan above")
    expect(visit.decoding.locator(".sentence")).to_contain_text("Find product: running shoes")


def test_markup_is_shown_as_text(visit: Visit) -> None:
    visit.ask(MARKUP)
    expect(visit.decoding).to_be_visible()
    answers = json.loads(json.dumps(ANSWERS).replace("nike", MARKUP.replace('"', '\\"')))
    visit.answer_with(answers["plan"], answers["trace"])
    visit.ask(f"again {MARKUP}")
    expect(visit.plan.locator(".asked")).to_have_text(f"again {MARKUP}")
    expect(visit.plan.locator(".chip-value").first).to_have_text(MARKUP)
    expect(visit.decoding.locator(".plan-text").first).to_contain_text(MARKUP)
    assert visit.page.locator("main img, main script").count() == 0
    assert visit.page.title() == "Peakplan"


def test_inline_script_is_not_run(visit: Visit) -> None:
    visit.page.evaluate(INLINE_SCRIPT)
    assert visit.page.title() == "Peakplan"
    assert any("Content Security Policy" in complaint for complaint in visit.complaints)
    visit.complaints.clear()


def test_dead_server_offers_to_try_again(visit: Visit) -> None:
    visit.page.route("**/answer", lambda route: route.abort())
    visit.ask("garden hose")
    expect(visit.error).to_contain_text("The planner cannot be reached.")
    visit.page.unroute("**/answer")
    visit.error.get_by_role("button", name="Try again").click()
    expect(visit.question).to_be_focused()
    expect(visit.decoding).to_be_visible()
    expect(visit.error).to_be_empty()


def test_double_submit_asks_once_and_the_newest_question_wins(visit: Visit) -> None:
    held: list[Route] = []

    def answer_only_the_newest(route: Route) -> None:
        is_newest = "gnome" in (route.request.post_data or "")
        route.fulfill(body=events(ANSWERS["plan"]), content_type=SSE) if is_newest else held.append(route)

    visit.page.route("**/answer", answer_only_the_newest)
    visit.ask("garden hose")
    visit.page.get_by_role("button", name="Plan it").dblclick()
    visit.ask("garden gnome")
    expect(visit.decoding).to_be_visible()
    expect(visit.plan.locator(".asked")).to_have_text("garden gnome")
    assert [body["query"] for path, body in visit.posted if path == "/answer"] == ["garden hose", "garden gnome"]
    assert [route.request.failure for route in held] == ["net::ERR_ABORTED"]


def test_several_things_are_told_apart(visit: Visit) -> None:
    parts = [
        {"facets": {"type": ["tent"]}, "exclude": {}, "price": {"min": None, "max": None, "currency": None},
         "queries": ["tent"]},
        {"facets": {"type": ["lamp"]}, "exclude": {"color": ["red"]},
         "price": {"min": 10, "max": 20.5, "currency": None}, "queries": ["camping lamp"]},
    ]  # fmt: skip
    plan = ANSWERS["plan"]["plan"] | {"parts": parts, "facets": {}, "exclude": {}, "rating": {"min": None}}
    visit.answer_with(ANSWERS["plan"] | {"plan": plan})
    visit.ask("a tent and a lamp")
    expect(visit.plan.locator(".sentence")).to_contain_text("Find product: tent and lamp · price under $100")
    expect(visit.plan.locator(".parts > li")).to_have_text(
        [re.compile("tent.*tent"), re.compile("lamp.*not color: red.*10 to 20.50.*camping lamp")]
    )


def test_three_options_say_what_they_meet_and_how_long_they_took(visit: Visit) -> None:
    visit.answer_with()
    visit.ask(ANSWERS["query"])
    expect(visit.options.locator(".first")).to_have_text("2 products after 47.9 ms, the plan included")
    runner, shoe = visit.options.locator(".options > li").all()
    expect(runner.get_by_role("heading")).to_have_text("Red Runner")
    expect(runner.locator(".wish-accepted")).to_have_text(["✓running shoes: has it", "✓up to 100 USD: has it"])
    expect(runner.locator(".wish-sampled")).to_have_text("?rated 4 of 5 or better: the catalogue does not tell")
    expect(shoe.locator(".wish-rejected")).to_have_text("✗running shoes: has it not")
    expect(visit.page.locator("#announcement")).to_contain_text("First found: Red Runner, Shoe.")
    expect(visit.page.locator("#options-title")).to_have_text("Two options")  # one is not what was asked for


def test_what_the_shop_has_not_got_stands_above_what_comes_near(visit: Visit) -> None:
    lacking = {"nothing": True, "missing": ["running shoes"], "nearest": ["sneaker"]}
    visit.answer_with(options={**ANSWERS["options"], **lacking})
    visit.ask(ANSWERS["query"])
    expect(visit.page.locator("#options-title")).to_have_text("Not found: running shoes")
    expect(visit.options.locator(".nothing")).to_have_text(
        "None of these says that it is what was asked for. The nearest that this shop has: sneaker."
    )
    visit.answer_with(options={**ANSWERS["options"], "missing": ["sleeping bag"]})
    visit.ask("a tent and a sleeping bag")
    expect(visit.options.locator(".nothing")).to_have_text("Not found: sleeping bag")
    visit.answer_with(shop=ANSWERS["shop"] | {"nothing": True, "nearest": ["kitchen", "bowls"]})
    visit.ask("a kettle")
    expect(visit.shop.get_by_role("status")).to_have_text(
        "This shop has nothing of that kind. The nearest that it has: kitchen, bowls."
    )


def test_a_stream_that_breaks_off_leaves_its_plan_and_offers_to_try_again(visit: Visit) -> None:
    body = events(ANSWERS["plan"]).split("event: options")[0] + "event: options\ndata: {"
    visit.page.route("**/answer", lambda route: route.fulfill(body=body + "\n\n", content_type=SSE))
    visit.ask("running shoes")
    expect(visit.error).to_contain_text("broke off in the middle of its answer")
    expect(visit.plan).to_be_visible()
    expect(visit.error.get_by_role("button", name="Try again")).to_be_visible()


def test_an_address_in_the_shops_reason_does_not_widen_the_page(visit: Visit) -> None:
    visit.page.set_viewport_size({"width": 375, "height": 800})
    reason = f"It cannot be downloaded from https://{'very-long-' * 30}.example: there is no connection to it."
    visit.answer_with(
        shop=ANSWERS["shop"] | {"reason": reason}, options={**ANSWERS["options"], "options": [], "reason": reason}
    )
    visit.ask(ANSWERS["query"])
    expect(visit.shop).to_contain_text("no connection")
    expect(visit.options).to_contain_text("no connection")
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_the_shop_finds_with_plan_and_words_is_shown(visit: Visit) -> None:
    visit.answer_with()
    visit.ask(ANSWERS["query"])
    expect(visit.shop.locator(".shelf").nth(0).locator("li")).to_have_text(
        [re.compile(r"Red Runner\s*plan only\s*\$89.99\s*footwear, sneaker"), re.compile(r"Shoe\s*\$12.00")]
    )
    expect(visit.shop.locator(".shelf").nth(1).locator("li")).to_have_count(1)
    expect(visit.shop.locator(".notes")).to_have_text("the mapping has no rating: ratings are not filtered")
    plan = ANSWERS["plan"]
    sent = {"query": ANSWERS["query"], "plan": plan["plan"], "request_id": plan["request_id"]}
    assert dict(visit.posted)["/shop/search"] == sent


@pytest.mark.parametrize("counted", [True, False])
def test_both_searches_come_in_one_list_and_a_choice_is_credited_to_whose_it_is(visit: Visit, counted: bool) -> None:
    teams = {"Red Runner": "plan", "Shoe": "words", "Both": ""}
    one = {**ANSWERS["shop"]["by_plan"][0], "id": "7"}
    drafted = [{**one, "id": name, "name": name, "team": team} for name, team in teams.items()]
    visit.answer_with(shop=ANSWERS["shop"] | {"interleaved": drafted, "counted": counted})
    visit.page.route("**/outcomes", lambda route: route.fulfill(status=202, json={"status": "kept"}))
    visit.ask(ANSWERS["query"])
    visit.shop.get_by_text("Both searches in one list").click()
    expect(visit.shop.locator(".draft")).not_to_contain_text("found with")
    for name in ("Red Runner", "Both", "Red Runner"):  # what is chosen again counts once
        visit.shop.locator(".draft").get_by_role("button", name=name).click()
    expect(visit.shop.locator(".draft").get_by_role("status")).to_have_text(
        "Chosen: found with the plan 1, with the words alone 0."
    )
    expect(visit.shop.locator(".draft li").nth(0)).to_contain_text("found with the plan")
    events = [body for path, body in visit.posted if path == "/outcomes"]
    assert len(events) == (2 if counted else 0)
    if counted:
        first, second = (event["event_attributes"] for event in events)
        assert (first["experiment"], first["team"], first["position"]) == ("sample-shop", "plan", {"ordinal": 1})
        assert "team" not in second
        assert {event["query_id"] for event in events} == {ANSWERS["plan"]["request_id"]}
        assert len({event["client_id"] for event in events}) == 1


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


def test_both_runs_are_compared_and_different_tokens_are_admitted(visit: Visit) -> None:
    visit.answer_with()
    visit.ask(ANSWERS["query"])
    expect(visit.decoding.locator(".verdict")).to_have_text(
        "Medusa wrote the plan in 3 forwards, greedy in 9; 40.0 ms against 100 ms, 2.5 times as fast."
    )
    expect(visit.decoding.locator(".same")).to_have_text("Both wrote the same 11 tokens.")
    rows = visit.decoding.get_by_role("table", name="In total").get_by_role("row")
    expect(rows.nth(1)).to_have_text("Forwards of the model39")
    expect(visit.decoding.locator(".lane-medusa .block")).to_have_text(["1", "5", "5"])
    trace = json.loads(json.dumps(ANSWERS["trace"]))
    trace["greedy"]["steps"][1]["emitted"] = [" Type", " nike"]
    visit.answer_with(trace=trace)
    visit.ask("and in blue")
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


AXE = Path("node_modules/axe-core/axe.min.js")
NEEDS_AXE = pytest.mark.skipif(not AXE.is_file(), reason="axe is not there: npm ci")
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


@pytest.mark.slow
@NEEDS_AXE
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


@pytest.mark.slow
@NEEDS_AXE
@EVERY
def test_the_reference(visit: Visit, page_url: str) -> None:
    visit.page.goto(f"{page_url}/docs")
    operations = visit.page.locator(".opblock-summary-control")
    expect(operations.first).to_be_visible()
    assert objections(visit) == []
    visit.page.locator("#operations-Plans-plan .opblock-summary-control").click()
    expect(visit.page.locator(".opblock-body").first).to_be_visible()
    assert objections(visit) == []


TOKEN = "a-token-for-the-page"
STALE = "a-token-of-yesterday"


@pytest.fixture(scope="module")
def guarded_url(tiny_model_dir: Path) -> Iterator[str]:
    """Run a service that requires tokens: the page asks its visitor once, and sends the token nowhere else."""
    line = f"page {hashlib.sha256(TOKEN.encode()).hexdigest()}"
    settings = {"PEAKPLAN_API_KEYS": line, "PEAKPLAN_REPLICAS": 1, "PEAKPLAN_TRACE_DEADLINE_MS": 30_000}
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, **settings) as server:
        yield server.url


@pytest.fixture
def guarded(browser: Browser, guarded_url: str) -> Iterator[Visit]:
    visit = Visit.open(browser, guarded_url)
    yield visit
    said = [text for text in visit.complaints if "401" not in text]
    seen_elsewhere = [sent.url for sent in visit.requests if TOKEN in sent.url or not sent.url.startswith(guarded_url)]
    visit.page.close()
    assert (said, seen_elsewhere) == ([], [])
    assert not any(TOKEN in text for text in visit.complaints)


def dialog(guarded: Visit) -> Locator:
    return guarded.page.get_by_role("dialog", name="This planner asks for a token")


def field(guarded: Visit) -> Locator:
    return guarded.page.get_by_label("Access token")


def authorizations(guarded: Visit) -> list[tuple[str, str | None]]:
    posts = [request for request in guarded.requests if request.method == "POST"]
    return [(post.url.removeprefix(guarded.url.rstrip("/")), post.headers.get("authorization")) for post in posts]


def test_the_visitor_is_asked_once_and_the_tab_remembers(guarded: Visit) -> None:
    guarded.ask("garden hose")
    expect(field(guarded)).to_be_focused()
    expect(field(guarded)).to_have_attribute("type", "password")
    field(guarded).press_sequentially(TOKEN)
    guarded.page.keyboard.press("Enter")
    expect(guarded.decoding).to_contain_text("Both wrote the same")
    expect(dialog(guarded)).to_be_hidden()
    expect(guarded.question).to_be_focused()

    guarded.ask("garden gnome")
    expect(guarded.plan.locator(".asked")).to_have_text("garden gnome")
    expect(guarded.page.locator("#status")).to_have_text("The plan and its decoding are below.")
    guarded.page.reload()
    guarded.ask("garden fence")
    expect(guarded.page.locator("#status")).to_have_text("The plan and its decoding are below.")

    bearer = f"Bearer {TOKEN}"
    assert authorizations(guarded) == [
        ("/answer", None),
        *[("/answer", bearer), ("/shop/search", bearer), ("/trace", bearer)] * 3,
    ]
    elsewhere = "[localStorage.length, document.cookie, document.body.innerHTML.includes('a-token')]"
    assert guarded.page.evaluate(elsewhere) == [0, "", False]


def test_a_token_that_is_not_known_is_asked_for_again_in_a_dialog_that_fits_a_narrow_window(guarded: Visit) -> None:
    guarded.page.set_viewport_size({"width": 360, "height": 700})
    guarded.ask("garden hose")
    for wrong, words in (("", "Type the token first."), ("no spaces", "no spaces"), (STALE, "does not know")):
        field(guarded).fill(wrong)
        field(guarded).press("Enter")
        expect(guarded.page.get_by_role("alert").filter(has_text=words)).to_be_visible()
        expect(field(guarded)).to_be_focused()
        expect(field(guarded)).to_have_attribute("aria-invalid", "true")
        assert guarded.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(field(guarded)).to_have_value("")
    field(guarded).fill(TOKEN)
    dialog(guarded).get_by_role("button", name="Use it").click()
    expect(guarded.decoding).to_be_visible()


@pytest.mark.parametrize("how", ["Escape", "Cancel"])
def test_who_has_no_token_is_told_so_and_may_try_again(guarded: Visit, how: str) -> None:
    guarded.ask("garden hose")
    expect(dialog(guarded)).to_be_visible()
    if how == "Escape":
        guarded.page.keyboard.press("Escape")
    else:
        dialog(guarded).get_by_role("button", name="Cancel").click()
    expect(dialog(guarded)).to_be_hidden()
    expect(guarded.error).to_contain_text("This planner answers only with an access token.")
    expect(guarded.page.locator("#status")).to_be_empty()
    guarded.error.get_by_role("button", name="Try again").click()
    field(guarded).fill(TOKEN)
    field(guarded).press("Enter")
    expect(guarded.decoding).to_be_visible()
