import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.planner.fallback.reading.tokens import Words
from service.planner.question import (
    MAX_HISTORY_TOKENS,
    MAX_HISTORY_WORDS,
    MAX_QUESTION_TOKENS,
    MAX_QUESTION_WORDS,
    MAX_WORD_CHARACTERS,
    Question,
    clean,
)
from tests.planner.walks import questions


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  red \t\n shoes ", "red shoes"),
        ("red\x00shoes\x1b", "redshoes"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("private \ue000 use", "private use"),
        ("\x00\u200b\u2028", ""),
        ("日本 👟 é", "日本 👟 é"),
    ],
)
def test_clean(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("Red Shoes, please!", ["red", "shoes", "please"]),
        ('a 10" tv', ["a", '10"', "tv"]),
        ("5'6 tall and 6' wide", ["5'6", "tall", "and", "6'", "wide"]),
        ('"quoted words"', ["quoted", "words"]),
        ("(like new)", ["like", "new"]),
        ("12 oz. bottle of milk.", ["12", "oz.", "bottle", "of", "milk"]),
        ("wait... what ?", ["wait", "what", "?"]),
        ("men's $40 a/b", ["men's", "$40", "a/b"]),
    ],
)
def test_words_leave_their_punctuation_outside(query: str, words: list[str]) -> None:
    assert [word.text for word in Question.parse(query).words] == words


def test_surface_is_what_the_shopper_wrote() -> None:
    question = Question.parse('I want "Red, Blue" Shoes!')
    assert question.surface(2, 3) == "Red, Blue"
    assert question.surface(4, 4) == "Shoes"


def test_history_keeps_its_newest_words_and_comes_first() -> None:
    long = " ".join(["old"] * (MAX_HISTORY_WORDS - 2))
    question = Question.parse("newest", ["oldest of all", long, "two words"])
    assert question.utterances == (long, "two words", "newest")
    assert [word.utterance for word in question.words][-3:] == [1, 1, 2]
    assert [word.text for word in question.own_words] == ["newest"]


def test_blank_history_is_no_utterance() -> None:
    assert Question.parse("shoes", ["", " \x00 "]).utterances == ("shoes",)


@given(questions)
def test_every_question_is_bounded_and_stands_where_it_says(question: Question) -> None:
    assert question.own_words
    for word in question.words:
        utterance = question.utterances[word.utterance]
        assert utterance[word.start : word.end].lower() == word.text
        assert 0 < len(utterance[word.start : word.end]) <= MAX_WORD_CHARACTERS
        assert not any(character.isspace() for character in word.text)
    per_utterance = [sum(word.utterance == index for word in question.words) for index in range(9)]
    assert max(per_utterance) <= MAX_QUESTION_WORDS


@given(st.text(max_size=80))
def test_clean_leaves_visible_text_only_and_does_so_once(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert cleaned == cleaned.strip()
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in cleaned)


def _tokens(question: Question) -> int:
    return sum(len(Words(utterance).texts) for utterance in question.utterances)


@pytest.mark.parametrize("token", ["$1", "1-", "a'", "é", "½", "İ", "_"])
def test_tokens_are_bounded_whatever_the_words_are(token: str) -> None:
    """One word without a space may be 512 tokens, eight of them in a history 4,096."""
    hostile = token * (512 // len(token))
    question = Question.parse(hostile, [hostile] * 8)
    assert len(Words(question.text).texts) <= MAX_QUESTION_TOKENS
    assert _tokens(question) <= MAX_QUESTION_TOKENS + MAX_HISTORY_TOKENS
    assert hostile.startswith(question.text)
    assert question.text


def test_what_people_write_is_kept_to_the_last_token() -> None:
    longest = "blue-green shoes, size 10.5, under $1,200! " * 8
    assert Question.parse(longest).text == clean(longest)
    history = ["running shoes, size 10", "not nike's, under $100"]
    assert Question.parse("in blue", history).utterances == (*history, "in blue")


@given(st.lists(st.text(max_size=120), max_size=8), st.text(min_size=1, max_size=512))
def test_no_conversation_has_more_tokens_than_its_readers_expect(history: list[str], query: str) -> None:
    assert _tokens(Question.parse(query, history)) <= MAX_QUESTION_TOKENS + MAX_HISTORY_TOKENS
