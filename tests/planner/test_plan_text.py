import pytest

from service.planner.plan_text import FacetSpan, PlanDraft, PlanTextError, parse, render
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary

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
