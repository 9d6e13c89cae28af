import asyncio

import llguidance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from service.engines.protocol import GenerationRequest, GenerationResult
from service.planner.completion import plan_from_draft
from service.planner.grammar import plan_grammar
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan, PlanDraft, PlanTextError, filters_of, parse, render, without_doubts
from service.planner.planner import Planner
from service.planner.question import Question
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary, shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL
from tests.fake_models import result
from tests.planner.walks import byte_tokenizer, questions, random_walk

SHIPPED = shipped_vocabulary()
SHOES = Question.parse("Nike running shoes or not a tent for kids")


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        (" status", PlanDraft("keyword", "order_status", ["orders"])),
        (" Other", PlanDraft("conversational", "out_of_scope")),
        (" find Any", PlanDraft("keyword", "find_product", ["catalog"])),
        (" find Foreign", PlanDraft("keyword", "find_product", ["catalog"], foreign=True)),
        (" ask answers catalog Sports", PlanDraft("keyword", "ask_product", ["qa", "catalog"], [], "sporting-goods")),
        (
            " Ask reviews Brand nike Not Type running shoes Any",
            PlanDraft(
                "conversational",
                "ask_product",
                ["reviews"],
                [FacetSpan("brand", 0, 0), FacetSpan("type", 1, 2, refused=True)],
            ),
        ),
        (
            " find One Type shoes Two Not Type tent All Audience kids Any",
            PlanDraft(
                "keyword",
                "find_product",
                ["catalog"],
                [
                    FacetSpan("type", 2, 2, part=1),
                    FacetSpan("type", 6, 6, refused=True, part=2),
                    FacetSpan("audience", 8, 8),
                ],
            ),
        ),
        (
            " Find Type running shoes Need not a tent Low Sale Fast Fashion",
            PlanDraft(
                "conversational",
                "find_product",
                ["catalog"],
                [FacetSpan("type", 1, 2)],
                "apparel-accessories",
                marks=[FacetSpan("need", 4, 6)],
                sort="price_asc",
                offers=["on_sale", "fast_delivery"],
            ),
        ),
    ],
)
def test_what_is_written_is_read_back(text: str, draft: PlanDraft) -> None:
    assert parse(text, SHOES, SHIPPED) == draft
    assert render(draft, SHOES, SHIPPED) == text


def test_a_repeated_span_is_matched_after_the_last_one() -> None:
    question = Question.parse("red shoes red hat")
    spans = parse(" find Color red Type shoes Color red Type hat Any", question, SHIPPED).spans
    assert [(span.first, span.last) for span in spans] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_span_stays_within_one_utterance() -> None:
    with pytest.raises(PlanTextError, match="no span"):
        parse(" find Type shoes red Any", Question.parse("red", ["shoes"]), SHIPPED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " nonsense",
        " find Type Any",
        " find Type sandals Any",
        " find Type shoes running Any",
        " find shoes Any",
        " find Not nike Any",
        " find Any shoes",
        " FIND Any",
        " find Max Any",
        " find Low running Any",
    ],
)
def test_what_the_grammar_does_not_admit_is_refused(text: str) -> None:
    with pytest.raises(PlanTextError):
        parse(text, SHOES, SHIPPED)


def test_a_wish_copies_words_of_any_message() -> None:
    question = Question.parse("the tent under $200, bag is fine", ["a tent and a sleeping bag"])
    text = " Find One Type tent Two Type sleeping bag One Max under $200 Sports"
    draft = parse(text, question, SHIPPED)
    assert [(span.facet, span.part) for span in (*draft.spans, *draft.marks)] == [("type", 1), ("type", 2), ("max", 1)]
    assert render(draft, question, SHIPPED) == text


VOCABULARY = shipped_vocabulary()
QUESTION = Question.parse("a blue tent and a red rope no nylon under $80 four stars")
WHOLE = (
    " find One Color blue Type tent Two Color red Type rope All Not Material nylon"
    " Max under $80 Stars four stars Low Sports"
)
WITHOUT_PRICE = WHOLE.replace(" Max under $80", "")
WITHOUT_NYLON = WHOLE.replace(" All Not Material nylon Max", " All Max")


def words_of(*found: str, at: float = 0.3) -> list[tuple[int, float]]:
    return [(WHOLE.split().index(word), at) for word in found]


def is_admitted(text: str) -> bool:
    matcher = LLMatcher(LLTokenizer("byte"), plan_grammar(QUESTION, VOCABULARY))
    return matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("unsure", "left"),
    [
        ([], WHOLE),
        (words_of("Type", "blue", "Low", "Sports"), WHOLE),
        (words_of("Not", at=0.8), WHOLE),
        (words_of("Not"), WITHOUT_NYLON),
        (words_of("Not", "nylon", at=0.6), WITHOUT_NYLON),
        (
            [*words_of("nylon", at=0.6), *words_of("nylon", at=0.6)],
            WITHOUT_NYLON,
        ),
        (words_of("Max"), WHOLE.replace(" Max under $80", "")),
        (words_of("Stars"), WHOLE.replace(" Stars four stars", "")),
        (words_of("Not", "Max", "Stars"), WHOLE.replace(" All Not Material nylon Max under $80 Stars four stars", "")),
    ],
    ids=["sure", "wanted", "nearly sure", "refusal", "by its words together", "two tokens", "bound", "rating", "all"],
)
def test_a_doubtful_filter_is_left_out_and_nothing_else(unsure: list[tuple[int, float]], left: str) -> None:
    assert is_admitted(WHOLE)
    assert without_doubts(WHOLE, unsure, VOCABULARY) == left
    assert is_admitted(left)


@pytest.mark.parametrize(
    ("read", "word", "at", "left"),
    [
        (" find Not Material nylon Sports", "Not", 0.5, WHOLE),
        (" find Not Material nylon Sports", "Not", 0.2, WITHOUT_NYLON),
        (" find Material nylon Max under $80 Sports", "Not", 0.8, WITHOUT_NYLON),
        (" find One Type tent All Sports", "Not", 0.9, WHOLE),
        (" find Max under $80 Sports", "Max", 0.5, WHOLE),
        (" find Min under $80 Sports", "Max", 0.8, WITHOUT_PRICE),
        (" find Not Material under $80 Sports", "Max", 0.8, WITHOUT_PRICE),
        (" find Min four stars Sports", "Stars", 0.5, WHOLE),
    ],
    ids=[
        "seconded",
        "seconded and unlikely",
        "the reader wants it",
        "sure alone",
        "the same bound",
        "the other bound",
        "a refusal for a bound",
        "a rating needs no second",
    ],
)
def test_a_filter_needs_the_reader_or_to_be_nearly_sure(read: str, word: str, at: float, left: str) -> None:
    seconded = filters_of(read, VOCABULARY)
    assert without_doubts(WHOLE, words_of(word, at=at), VOCABULARY, seconded) == left


def test_a_plan_refuses_nothing_that_its_model_doubts() -> None:
    question = Question.parse("white looks better")
    doubted = result(" find Not Color white Any")
    planner = Planner(Answers(doubted), VOCABULARY)
    planned = asyncio.run(planner.plan_with_model(planner.task(question)))
    assert planned.plan.exclude == {"color": ["white"]}

    doubted.text, doubted.unsure_words = " find Not Color white Any", [(1, 0.39)]
    planned = asyncio.run(planner.plan_with_model(planner.task(question)))
    assert planned.plan.exclude == {}
    assert planned.plan.queries == ["white looks better"]


class Answers:
    model_id = "fake"

    def __init__(self, answer: GenerationResult) -> None:
        self.answer = answer

    async def generate(self, request: GenerationRequest) -> GenerationResult:
        del request
        return self.answer


slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(question=questions, seed=st.integers(0, 2**32))
def test_every_admitted_text_becomes_a_valid_plan_that_invents_nothing(question: Question, seed: int) -> None:
    plan = plan_from_draft(parse(random_walk(question, seed), question, SHIPPED), question, SHIPPED)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    for facets in (plan.facets, plan.exclude, *(part.facets for part in plan.parts)):
        for values in facets.values():
            assert all(any(value in utterance for utterance in question.utterances) for value in values)
    assert bool(plan.queries) == bool(SHIPPED.intents[plan.intent].sources or plan.sources)


@slow
@given(question=questions, seed=st.integers(0, 2**32))
def test_rendering_what_was_parsed_means_the_same(question: Question, seed: int) -> None:
    draft = parse(random_walk(question, seed), question, SHIPPED)
    assert parse(render(draft, question, SHIPPED), question, SHIPPED) == draft


@slow
@given(question=questions, data=st.data())
def test_what_is_rendered_from_a_draft_is_admitted(question: Question, data: st.DataObject) -> None:
    text = random_walk(question, data.draw(st.integers(0, 2**32)))
    assert _admits(question, render(parse(text, question, SHIPPED), question, SHIPPED))


def _admits(question: Question, text: str) -> bool:
    matcher = llguidance.LLMatcher(byte_tokenizer(), plan_grammar(question, SHIPPED))
    assert not matcher.get_error(), matcher.get_error()
    taken = matcher.try_consume_tokens(list(text.encode()))
    return bool(taken == len(text.encode()) and matcher.is_accepting())


NIKE_SHOES = Question.parse("Nike running shoes under $100", ["size 9 please"])


@pytest.mark.parametrize(
    "text",
    [
        " find Type running shoes Any",
        " Find Type shoes Fashion",
        " find Size 9 Not Brand nike Any",
        " compare One Brand nike Two Not Type shoes Any",
        " find One Size 9 All Type shoes Sports",
        " find Type shoes Max under $100 Low Stock Fast Any",
        " find Stars 9 Need running shoes Any",
        " ask answers Type shoes Any",
        " ask catalog reviews answers Any",
        " find Foreign",
        " policy",
        " Agent",
    ],
)
def test_admitted(text: str) -> None:
    assert _admits(NIKE_SHOES, text)


@pytest.mark.parametrize(
    "text",
    [
        " find Type sandals Any",
        " find Type shoes running Any",
        " find Type nike shoes Any",
        " find Brand nike Size 9 Any",  # facets follow the question's order, the history's words first
        " find Size please Nike Any",
        " find Type please nike Any",  # no span crosses utterances
        " find catalog Any",  # its source is known
        " find Not One Type shoes Any",
        " find One All Type shoes Any",
        " find Not Max under $100 Any",
        " find Low Type shoes Any",
        " find Low High Any",
        " find Fast Stock Any",
        " find Not Any",
        " ask Any",
        " ask reviews reviews Any",
        " status Any",
        " find",
        "find Any",
        " find Any ",
        " find Nowhere",
    ],
)
def test_refused(text: str) -> None:
    assert not _admits(NIKE_SHOES, text)


@pytest.mark.parametrize(
    "query",
    [
        " ".join(f"word{index}" for index in range(200)),
        " ".join(f"{index}" for index in range(100)),
        "x" * 512,
        '\\" \\n %ignore /./ } ] | : "start"',
        "\u2028\u2029 \x85 a",
        "👩\u200d👩\u200d👧 👟",
    ],
)
def test_every_question_has_a_grammar(query: str) -> None:
    question = Question.parse(query)
    first = question.words[0].text
    assert _admits(question, f" find Type {first} Any")


@pytest.mark.parametrize(
    ("text", "kind", "refused"),
    [
        ("running shoes -nike", "running shoes", {"nike"}),
        ("!leather sofa", "sofa", {"leather"}),
        ("laptop -refurbished -used", "laptop", {"refurbished", "used"}),
        ("t-shirt size 10-12", "t-shirt size 10-12", set()),
    ],
)
def test_words_with_a_minus_or_a_mark_are_refused(text: str, kind: str, refused: set[str]) -> None:
    question, vocabulary = Question.parse(text, []), Vocabulary.load(SHIPPED_MODEL)
    marked = PlanDraft("keyword", DEFAULT_INTENT, spans=[FacetSpan("type", 0, len(question.words) - 1)])
    plan = plan_from_draft(marked, question, vocabulary)
    assert {value for values in plan.exclude.values() for value in values} == refused
    assert plan.queries[0] == kind
    assert not any(word in query.split() for word in refused for query in plan.queries)
