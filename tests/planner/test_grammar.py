"""Tests that any text under a question's grammar becomes a valid plan that invents nothing."""

import llguidance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.planner.grammar import plan_grammar
from service.planner.numbers import format_number
from service.planner.plan import Plan
from service.planner.plan_text import parse, render
from service.planner.queries import complete_plan
from service.planner.question import Question
from tests.planner.walks import byte_tokenizer, questions, random_walk

slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(question=questions, seed=st.integers(0, 2**32))
def test_every_admitted_text_becomes_a_valid_plan_that_invents_nothing(question: Question, seed: int) -> None:
    draft = parse(random_walk(question, seed), question)
    plan = complete_plan(draft, question)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    for values in plan.facets.values():
        assert all(any(value in utterance for utterance in question.utterances) for value in values)
    bounds = [bound for bound in (plan.price.min, plan.price.max) if bound is not None]
    assert set(bounds) <= set(question.numbers)
    assert bounds == sorted(bounds)
    assert len(plan.queries) <= 3
    assert (plan.queries == []) == (plan.intent == "out_of_scope")
    if plan.queries:
        assert set(plan.queries[0].split()) <= {word.text for word in question.words}


@slow
@given(question=questions, seed=st.integers(0, 2**32))
def test_rendering_what_was_parsed_gives_the_text_back(question: Question, seed: int) -> None:
    text = random_walk(question, seed)
    draft = parse(text, question)
    if draft.price_min is None or draft.price_max is None:  # a backward range is put in order
        assert render(draft, question) == text


@slow
@given(question=questions, data=st.data())
def test_what_is_rendered_from_a_draft_is_admitted(question: Question, data: st.DataObject) -> None:
    text = random_walk(question, data.draw(st.integers(0, 2**32)))
    assert _admits(question, render(parse(text, question), question))


def _admits(question: Question, text: str) -> bool:
    matcher = llguidance.LLMatcher(byte_tokenizer(), plan_grammar(question))
    assert not matcher.get_error(), matcher.get_error()
    taken = matcher.try_consume_tokens(list(text.encode()))
    return bool(taken == len(text.encode()) and matcher.is_accepting())


SHOES = Question.parse("Nike running shoes under $100", ["size 9 please"])


@pytest.mark.parametrize(
    "text",
    [
        " find Type running shoes Any",
        " Find Type shoes Under 100 Fashion",
        " find reviews Type shoes Any",
        " ask answers Type shoes Any",
        " ask catalog reviews answers Any",
        " find Size 9 Brand nike Any",
        " find Over 9 Under 100 Try running jogging Sports",
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
        " find Under 99 Any",
        " find Under 100 Over 9 Any",
        " ask Any",
        " ask reviews reviews Any",
        " status Any",
        " find",
        "find Any",
        " find Any ",
        " find Try Any",
        " find Try jogging running Any",  # only a word of the question is corrected
        " find Try running Any",
        " find Nowhere",
    ],
)
def test_refused(text: str) -> None:
    assert not _admits(SHOES, text)


def test_no_numbers_no_price() -> None:
    assert not _admits(Question.parse("shoes under a lot"), " find Under 1 Any")


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
    for number in question.numbers:
        assert _admits(question, f" find Under {format_number(number)} Any")
