"""Tests of our own sentences with an intent alone."""

from pathlib import Path

import pytest

from service.planner.vocabulary import shipped_vocabulary
from tests.training.judged import CASES, has_the_same_words, is_near
from training.data import asked
from training.data.rows import held_out

TEXTS = [text for _, text in asked.sentences()]


def test_every_intent_has_sentences_and_none_stands_twice() -> None:
    assert {intent for intent, _ in asked.sentences()} == set(shipped_vocabulary().intents)
    assert len({text.lower() for text in TEXTS}) == len(TEXTS) > 2500


def test_a_tenth_is_dev_and_no_run_sees_it() -> None:
    train, dev = (asked.examples(split) for split in ("train", "dev"))

    assert len(train) + len(dev) == len(TEXTS)
    assert 0.08 < len(dev) / len(TEXTS) < 0.12
    assert all(held_out(example.query.lower()) for example in dev)
    assert not any(held_out(example.query.lower()) for example in train)


def test_only_the_intent_and_what_follows_from_it_is_known() -> None:
    by_intent = {example.draft.intent: example for example in asked.examples("train")}

    assert not any(example.knows_facets or example.knows_vertical for example in by_intent.values())
    assert by_intent["find_product"].knows_sources
    assert by_intent["find_product"].draft.sources == ["catalog"]
    assert not by_intent["ask_product"].knows_sources


def test_a_sentence_under_no_intent_is_named(tmp_path: Path) -> None:
    path = tmp_path / "asked.txt"
    path.write_text("[order_status]\nwhere is it\n[chat]\nhello\n", encoding="utf-8")

    with pytest.raises(ValueError, match=r"asked\.txt:4: 'chat' is no intent"):
        asked.sentences(path)


def test_no_sentence_has_the_words_of_a_judged_case() -> None:
    assert not [text for text in TEXTS if has_the_same_words(text)]


@pytest.mark.skipif(not CASES.is_file(), reason="the behaviour cases are not beside this checkout")
def test_no_sentence_is_near_identical_to_a_judged_case() -> None:
    assert not [text for text in TEXTS if is_near(text)]
