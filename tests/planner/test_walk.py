"""Tests of how far a reader of the code walks: how often a plan passes from one file of the planner to another."""

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import FrameType

from service.planner.fallback.making.plans import plan_by_rule, plan_from_text
from service.planner.fallback.reading.conversation import Conversation
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary

PLANNER = Path(__file__).parents[2] / "service" / "planner"
QUESTION = Question.parse("what about in red?", ["nike running shoes under $100"])
TEXT = " find Brand nike Type running shoes Color red Sports"
_VALUES = ("question.py", "plan.py")  # what all files speak of


def calls(make: Callable[[Conversation], object]) -> list[tuple[str, str]]:
    """Return file and name of each function of the planner that is called, in order, when nothing is read anew."""
    make(Conversation(QUESTION))
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PLANNER):
            found.append((str(path.relative_to(PLANNER)), frame.f_code.co_name))

    conversation = Conversation(QUESTION)
    assert conversation.is_english  # which language it is in has been asked before
    sys.setprofile(note)
    try:
        make(conversation)
    finally:
        sys.setprofile(None)
    return found


def stays(files: list[str]) -> int:
    return len(list(groupby(files)))


def test_a_plan_of_the_models_text_makes_few_stays() -> None:
    """Count each function where it is first called; reading is one place, as nobody need know how a word is read."""
    called = calls(lambda conversation: plan_from_text(TEXT, conversation, shipped_vocabulary()))
    places = dict.fromkeys((file, name) for file, name in called if file not in _VALUES and not name.startswith("<"))
    assert 10 < stays(["reading" if file.startswith("reading") else file for file, _ in places]) <= 20


def test_a_follow_up_by_rule_seldom_switches_files() -> None:
    called = calls(lambda conversation: plan_by_rule(conversation, shipped_vocabulary()))
    assert len(called) > 100
    assert stays([file for file, _ in called]) <= 100
