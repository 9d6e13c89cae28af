"""Tests that any text under a question's grammar becomes a valid plan that invents nothing."""

import llguidance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rehearsal.bench.operations import operations
from service.planner.completion import plan_from_draft
from service.planner.grammar import plan_grammar
from service.planner.plan import Plan
from service.planner.plan_text import parse, render
from service.planner.question import Question
from service.planner.vocabulary import SHIPPED_MODEL, Vocabulary, shipped_vocabulary
from tests.planner.walks import byte_tokenizer, questions, random_walk

SHIPPED = shipped_vocabulary()
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


SHOES = Question.parse("Nike running shoes under $100", ["size 9 please"])


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
    assert _admits(SHOES, text)


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
    assert not _admits(SHOES, text)


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


def test_a_vocabulary_that_was_read_twice_is_not_compared_at_every_question() -> None:
    """It was: 57 comparisons of its parts at each question that the model was asked."""
    first, again = Vocabulary.load(SHIPPED_MODEL), Vocabulary.load(SHIPPED_MODEL)
    plan_grammar(SHOES, first)

    assert operations(lambda: plan_grammar(SHOES, again)) == operations(lambda: plan_grammar(SHOES, first))
