import pytest
from hypothesis import example, given

from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading.conversation import Conversation
from service.planner.fallback.rules.draft import draft_by_rule
from service.planner.plan import Plan
from service.planner.plan_text import parse, render
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from tests.planner.walks import questions

VOCABULARY = shipped_vocabulary()


def assert_valid_plan_in_own_words(question: Question) -> None:
    plan = plan_by_rule(Conversation(question), VOCABULARY)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    for item in (plan, *plan.parts):
        for values in (*item.facets.values(), *item.exclude.values()):
            assert all(any(value in utterance for utterance in question.utterances) for value in values)


@given(questions)
def test_every_question_gets_a_valid_plan_in_its_own_words(question: Question) -> None:
    assert_valid_plan_in_own_words(question)


@given(questions)
@example(Question.parse("red red red red", ["red red \\ over Over"]))
def test_the_rules_say_nothing_that_plan_text_could_not(question: Question) -> None:
    conversation = Conversation(question)
    wish = conversation.question  # without what is said beside it
    draft = draft_by_rule(conversation, VOCABULARY)
    spans = [wish.surface(span.first, span.last) for span in draft.spans]
    read = parse(render(draft, wish, VOCABULARY), wish, VOCABULARY)
    assert [wish.surface(span.first, span.last).lower() for span in read.spans] == [span.lower() for span in spans]


@pytest.mark.parametrize(
    ("query", "intent", "sources"),
    [
        ("nike running shoes mens under 100", "find_product", ["catalog"]),
        ("do you have vegan leather bags?", "find_product", ["catalog"]),
        ("how do these work on cookware?", "ask_product", ["qa", "catalog"]),
        ("is this jacket warm?", "ask_product", ["reviews", "qa"]),
        ("where is my package", "order_status", ["orders"]),
        ("track order 12345", "order_status", ["orders"]),
        ("please cancel my order", "order_change", ["orders", "help"]),
        ("return policy", "returns_refunds", ["help", "orders"]),
        ("returns", "returns_refunds", ["help", "orders"]),
        ("exchange, please", "returns_refunds", ["help", "orders"]),
        ("cancel the premium subscription", "order_change", ["orders", "help"]),
        ("I want my money back", "returns_refunds", ["help", "orders"]),
        ("where is my invoice", "payment_billing", ["orders", "help"]),
        ("shipping options", "policy_help", ["help"]),
        ("I forgot my password", "account", ["help"]),
        ("can I talk to a human", "contact_agent", ["help"]),
        ("I want to file a complaint", "feedback", ["help"]),
        ("what's the weather like tomorrow?", "out_of_scope", []),
        ("my boyfriend snores, do i leave him", "out_of_scope", []),
        ("backpack for my boyfriend, 3 stars and up", "find_product", ["catalog"]),
    ],
)
def test_intents(query: str, intent: str, sources: list[str]) -> None:
    plan = plan_by_rule(Conversation(Question.parse(query)), VOCABULARY)
    assert (plan.intent, plan.sources) == (intent, sources)


@pytest.mark.parametrize(
    ("query", "facets"),
    [
        ("white duvet cover queen", {"color": ["white"], "type": ["duvet cover"], "size": ["queen"]}),
        ("men's boots size 10", {"audience": ["men's"], "type": ["boots"], "size": ["size 10"]}),
        ("looking for navy blue socks, pack of 6", {"color": ["navy blue"], "type": ["socks"], "count": ["pack of 6"]}),
        ("stainless steel bottle 32oz", {"material": ["stainless steel"], "type": ["bottle"], "size": ["32oz"]}),
        ("couch not leather", {"type": ["couch"]}),
        ("toys for kids", {"type": ["toys"], "audience": ["kids"]}),
        ("shirt with pockets", {"type": ["shirt"], "feature": ["pockets"]}),
        ("dyson cordless vacuum", {"brand": ["dyson"], "feature": ["cordless"], "type": ["vacuum"]}),
    ],
)
def test_facets(query: str, facets: dict[str, list[str]]) -> None:
    assert plan_by_rule(Conversation(Question.parse(query)), VOCABULARY).facets == facets


def test_a_follow_up_changes_what_it_names_and_keeps_the_rest() -> None:
    question = Question.parse("what about in red, under $50?", ["blue running shoes size 10 under $80"])
    plan = plan_by_rule(Conversation(question), VOCABULARY)
    assert plan.facets == {"type": ["running shoes"], "size": ["size 10"], "color": ["red"]}
    assert plan.price.max == 50.0
    assert plan.intent == "find_product"


@pytest.mark.parametrize(
    ("query", "things"),
    [
        ("whats the diff btwn gas grills and charcoal grills", ["gas grills", "charcoal grills"]),
        ("clay litter against tofu litter, whats better if ive two cats", ["clay litter", "tofu litter"]),
        ("pros and cons of a steam mop compared to a spin mop", ["steam mop", "spin mop"]),
        ("we have cats and can't decide between a cordless vacuum and a robot vacuum", None),
        ("how a weber kettle stacks up against a kamado", None),
    ],
)
def test_what_is_compared_by_rule(query: str, things: list[str] | None) -> None:
    plan = plan_by_rule(Conversation(Question.parse(query)), VOCABULARY)
    assert plan.intent == "compare_products"
    assert len(plan.parts) == 2
    assert things is None or [part.queries[0] for part in plan.parts] == things


@pytest.mark.parametrize("query", ["hiya", "lol ok bye then", "hope ur well"])
def test_talk_of_other_words_is_talk(query: str) -> None:
    assert plan_by_rule(Conversation(Question.parse(query)), VOCABULARY).intent == "small_talk"


def test_several_things_follow_ups_and_corrections_by_rule() -> None:
    plan = plan_by_rule(Conversation(Question.parse("hiking boots, a tent and two sleeping bags")), VOCABULARY)
    assert [part.queries[0] for part in plan.parts] == ["hiking boots", "tent", "two sleeping bags"]
    plan = plan_by_rule(Conversation(Question.parse("anything but nike", ["nike running shoes"])), VOCABULARY)
    assert (plan.exclude, plan.queries[0]) == ({"brand": ["nike"]}, "running shoes")
    plan = plan_by_rule(Conversation(Question.parse("wirless keybord")), VOCABULARY)
    assert "wireless keyboard" in plan.queries


@pytest.mark.parametrize(
    ("query", "low", "high"),
    [
        ("shoes under $50", None, 50),
        ("shoes under 50 dollars", None, 50),
        ("lamp between 15 and 37", 15, 37),
        ("between 37 and 15 bucks", 15, 37),
        ("lamp $20-$40", 20, 40),
        ("20 to 40 dollar lamp", 20, 40),
        ("tv 200 bucks or less", None, 200),
        ("over a hundred dollars but under two hundred dollars", 100, 200),
        ("max 1.5k laptop", None, 1500),
        ("not over 30", None, 30),
        ("$50 and up", 50, None),
        ("from $30", 30, None),
        ("$10 candles", None, 10),
        ("knife under 5 inches", None, None),
        ("weights over 50 pounds", None, None),
        ("toys for 3-5 years", None, None),
        ("shoes from 1990", None, None),
        ("iphone 11 max case", None, None),
        ("size 10 shoes", None, None),
        ("no numbers under anything", None, None),
    ],
)
def test_price_bounds(query: str, low: float | None, high: float | None) -> None:
    price = plan_by_rule(Conversation(Question.parse(query)), VOCABULARY).price
    assert (price.min, price.max) == (low, high)


@pytest.mark.parametrize(
    "piece", ["1", "1,", "a ", "one ", "$", "1-", "under ", "1.1.", "$1 ", "from 1 ", ",1", "not ", "for "]
)
def test_repetition_does_not_make_it_slow(piece: str) -> None:
    """Check that no search backtracks quadratically, which would take minutes here: the plan comes, and is valid."""
    assert_valid_plan_in_own_words(Question.parse((piece * 20_000)[:20_000]))


def test_a_refusal_past_the_last_word_that_is_read_has_no_values() -> None:
    question = Question.parse("which boots should i buy " + "x " * 100 + "without leather")
    assert plan_by_rule(Conversation(question), VOCABULARY).intent == "advise"
