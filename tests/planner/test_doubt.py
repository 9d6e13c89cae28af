"""What the model doubts of a plan is left out; what is left is a plan text that the grammar admits."""

import asyncio

import pytest
from llguidance import LLMatcher, LLTokenizer

from service.engines.protocol import GenerationRequest, GenerationResult
from service.planner.doubt import without_doubts
from service.planner.grammar import plan_grammar
from service.planner.planner import Planner
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from tests.fake_models import result

VOCABULARY = shipped_vocabulary()
QUESTION = Question.parse("a blue tent and a red rope no nylon under $80 four stars")
WHOLE = (
    " find One Color blue Type tent Two Color red Type rope All Not Material nylon"
    " Max under $80 Stars four stars Low Sports"
)
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
