"""Tests of what a model is asked to read of a conversation."""

import pytest

from service.planner.fallback.reading.conversation import Conversation
from service.planner.question import Question


@pytest.mark.parametrize(
    ("query", "history", "asked"),
    [
        ("kettle under $50", (), ("kettle",)),
        ("is this kettle under $50", (), ("is this kettle under $50",)),
        ("kettles under $50?", (), ("kettles under $50?",)),
        ("jacket, not red, under $50", (), ("jacket, not red",)),
        ("under $50", ("kettle",), ("kettle", "under $50")),
        ("wasserkocher unter 50 euro", (), ("wasserkocher unter 50 euro",)),
    ],
)
def test_a_wish_alone_is_read_without_what_closed_phrases_say_of_it(
    query: str, history: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    """Questions, conversations and other languages are read whole: the model was trained on those so."""
    assert Conversation(Question.parse(query, history)).asked == asked
