import pytest

from service.planner.plan_text import Correction, FacetSpan, PlanDraft, PlanTextError, parse, render
from service.planner.question import Question

SHOES = Question.parse("Nike running shoes under $100 or over 50")
EVERYTHING = PlanDraft(
    mode="conversational",
    intent="ask_product",
    sources=["reviews", "qa"],
    spans=[FacetSpan("brand", 0, 0), FacetSpan("type", 1, 2)],
    price_min=50.0,
    price_max=100.0,
    correction=Correction("running", "jogging"),
    vertical="sg",
)


def test_every_field_is_written_and_read_back() -> None:
    text = render(EVERYTHING, SHOES)
    assert text == " Ask reviews answers Brand nike Type running shoes Over 50 Under 100 Try running jogging Sports"
    assert parse(text, SHOES) == EVERYTHING


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        (" status", PlanDraft("keyword", "order_status")),
        (" Other", PlanDraft("conversational", "out_of_scope")),
        (" find Any", PlanDraft("keyword", "find_product")),
        (" find reviews Any", PlanDraft("keyword", "find_product", sources=["reviews"])),
    ],
)
def test_short_texts(text: str, draft: PlanDraft) -> None:
    assert parse(text, SHOES) == draft
    assert render(draft, SHOES) == text


def test_a_backward_range_means_the_same_range() -> None:
    draft = parse(" find Over 100 Under 50 Any", SHOES)
    assert (draft.price_min, draft.price_max) == (50.0, 100.0)


def test_a_repeated_span_is_matched_after_the_last_one() -> None:
    question = Question.parse("red shoes red hat")
    spans = parse(" find Color red Type shoes Color red Type hat Any", question).spans
    assert [(span.first, span.last) for span in spans] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_span_stays_within_one_utterance() -> None:
    with pytest.raises(PlanTextError, match="no span"):
        parse(" find Type shoes red Any", Question.parse("red", ["shoes"]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        " nonsense",
        " find Type Any",
        " find Type sandals Any",
        " find Type shoes running Any",
        " find shoes Any",
        " find Under cheap Any",
        " find Any shoes",
        " FIND Any",
    ],
)
def test_what_the_grammar_does_not_admit_is_refused(text: str) -> None:
    with pytest.raises(PlanTextError):
        parse(text, SHOES)
