"""What shoppers write as to a search engine is refused in the plan, whoever drafts it."""

import pytest

from service.planner.completion import plan_from_draft
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading.conversation import Conversation
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.vocabulary import DEFAULT_INTENT, Vocabulary
from service.settings.choices import SHIPPED_MODEL


@pytest.mark.parametrize(
    ("text", "kind", "refused"),
    [
        ("running shoes -nike", "running shoes", {"nike"}),
        ("!leather sofa", "sofa", {"leather"}),
        ("laptop -refurbished -used", "laptop", {"refurbished", "used"}),
        ("t-shirt size 10-12", "t-shirt", set()),
    ],
)
def test_words_with_a_minus_or_a_mark_are_refused(text: str, kind: str, refused: set[str]) -> None:
    question, vocabulary = Question.parse(text, []), Vocabulary.load(SHIPPED_MODEL)
    marked = PlanDraft("keyword", DEFAULT_INTENT, spans=[FacetSpan("type", 0, len(question.words) - 1)])
    by_rule, by_mark = plan_by_rule(Conversation(question), vocabulary), plan_from_draft(marked, question, vocabulary)
    assert by_rule.facets["type"] == [kind]
    for plan in (by_rule, by_mark):
        assert {value for values in plan.exclude.values() for value in values} == refused
        assert not any(word in query.split() for word in refused for query in plan.queries)
