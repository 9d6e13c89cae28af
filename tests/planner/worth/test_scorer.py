"""Tests of the scorer that ships, and of files that are none."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from service.planner.fallback.reading.conversation import Conversation
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.planner.worth.features import NAMES, Reading, numbers
from service.planner.worth.scorer import FILE_NAME, Scorer, WorthError
from service.settings.choices import SHIPPED_MODEL

VOCABULARY = shipped_vocabulary()


@pytest.fixture(scope="module")
def shipped() -> Scorer:
    scorer = Scorer.load(SHIPPED_MODEL)
    assert scorer is not None
    return scorer


def reading(text: str, *history: str) -> Reading:
    return Reading(Conversation(Question.parse(text, history)), VOCABULARY)


def test_what_rules_read_well_is_worth_less_than_what_they_do_not(shipped: Scorer) -> None:
    plain = [
        shipped.score(reading(text)) for text in ("red nike shoes size 10", "laptop under $500", "blue denim jacket")
    ]
    hard = [
        shipped.score(reading(text))
        for text in (
            "my parcel says delivered but there is nothing on the porch",
            "tent, two sleeping bags and a camping stove for the weekend",
            "what's a decent thing to get my dad who is into birdwatching",
        )
    ]
    assert max(plain) < min(hard)


def test_every_question_has_all_numbers_and_a_score(shipped: Scorer) -> None:
    for text in ("", "?", "zapatos rojos", "a" * 512, "1 2 3", "not nike, no adidas"):
        found = numbers(reading(text, "red shoes"))
        assert len(found) == len(NAMES)
        assert all(isinstance(number, int) for number in found)
        assert 0 < shipped.of_numbers(found) < 1


def test_a_score_takes_a_tenth_of_a_millisecond_at_most(shipped: Scorer) -> None:
    questions = [
        reading("quiet blender, not ninja, under $100, cheapest first"),
        reading("what about in red?", "nike running shoes under $100"),
    ]
    fastest = float("inf")
    for _ in range(200):
        for question in questions:
            started = time.thread_time()
            shipped.score(question)
            fastest = min(fastest, time.thread_time() - started)
    assert fastest < 1e-4


def test_the_share_that_differs_grows_with_worth_and_is_read_from_its_group(shipped: Scorer) -> None:
    shares = [share for _, share in shipped.worth.differs]
    assert shares[-1] > shares[0]
    assert shipped.differs(0.0) == shares[0]
    assert shipped.differs(1.0) == shares[-1]


def test_a_folder_without_worth_has_no_scorer(tmp_path: Path) -> None:
    assert Scorer.load(tmp_path) is None


@pytest.mark.parametrize(
    "harm",
    [
        {"numbers": ["words", "luck"]},
        {"numbers": ["words"]},
        {"network": {"deviation": [0.0] * len(NAMES)}},
        {"network": {"hidden": [[1.0]]}},
        {"network": {"output": [1.0]}},
        {"network": {"start": "x"}},
    ],
)
def test_a_file_that_says_nothing_of_worth_is_refused(tmp_path: Path, harm: dict[str, Any]) -> None:
    sound = json.loads((SHIPPED_MODEL / FILE_NAME).read_text(encoding="utf-8"))
    harmed = sound | harm | {"network": sound["network"] | harm.get("network", {})}
    (tmp_path / FILE_NAME).write_text(json.dumps(harmed), encoding="utf-8")
    with pytest.raises(WorthError, match="says nothing of worth"):
        Scorer.load(tmp_path)


def test_numbers_tell_what_is_claimed_and_what_the_word_list_knows() -> None:
    found = dict(zip(NAMES, numbers(reading("a quiet zzyx kettle for my desk")), strict=True))
    assert (found["articles"], found["for"], found["words"]) == (1, 1, 7)
    assert found["type_words"] >= 1
    assert found["type_ends_known"] == 1
    assert 0 < found["claimed_percent"] < 100
    assert found["unknown"] >= found["unknown_unclaimed"]
