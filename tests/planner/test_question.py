import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.bench.machine import operations
from rehearsal.bench.question_cost import OPERATIONS as BUDGET
from rehearsal.bench.question_cost import OPERATIONS_OF_WEIGHT, PIECES, Asked, completing, misspelt, reading
from service.planner.prompt import PlanTask
from service.planner.question import (
    MAX_HISTORY_TOKENS,
    MAX_HISTORY_WORDS,
    MAX_QUESTION_TOKENS,
    MAX_QUESTION_WORDS,
    MAX_WORD_CHARACTERS,
    TOKEN,
    Question,
    clean,
)
from service.planner.reader.reading import Reader
from service.planner.spelling import use_shop
from service.planner.vocabulary import shipped_vocabulary
from service.settings.choices import SHIPPED_MODEL
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
    return sum(len(TOKEN.findall(utterance)) for utterance in question.utterances)


@pytest.mark.parametrize("token", ["$1", "1-", "a'", "é", "½", "İ", "_"])
def test_tokens_are_bounded_whatever_the_words_are(token: str) -> None:
    """One word without a space may be 512 tokens, eight of them in a history 4,096."""
    hostile = token * (512 // len(token))
    question = Question.parse(hostile, [hostile] * 8)
    assert len(TOKEN.findall(question.text)) <= MAX_QUESTION_TOKENS
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


VOCABULARY = shipped_vocabulary()
READER = Reader.load(SHIPPED_MODEL)
WORDS = ("red ", "5 ", "nike ", "size ", "not ", "blu ", "the ")  # "5 5 5 ..." once cost the square of its length
CHARACTERS = 512  # of an utterance: service.api.models.MAX_TEXT_CHARACTERS


def task(piece: str, characters: int, history: int = 0) -> PlanTask:
    text = (piece * CHARACTERS)[:characters]
    return PlanTask(Question.parse(text, [(piece * CHARACTERS)[:44]] * history), VOCABULARY)


def cost(piece: str, characters: int, history: int = 0) -> int:
    """Return the operations that the reader's plan of a question takes."""
    question = task(piece, characters, history).question
    work = reading(Asked(question.text, question.utterances[:-1]))
    work()  # the first time it may read a list, or look up how a word is spelt
    return operations(work)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    for piece in PIECES:
        cost(piece, CHARACTERS, 8)


@pytest.mark.parametrize("piece", [*WORDS, *PIECES])
def test_twice_the_words_take_twice_to_read(piece: str) -> None:
    def cost_of(characters: int) -> int:
        question = task(piece, characters).question
        READER.read(question, VOCABULARY)
        return operations(lambda: READER.read(question, VOCABULARY))

    half, whole = cost_of(CHARACTERS // 4), cost_of(CHARACTERS // 2)
    assert whole < 2.5 * half + 10_000


@pytest.mark.parametrize("piece", [*WORDS, *PIECES[::4]])
def test_the_grammar_of_the_largest_question_is_within_the_budget(piece: str) -> None:
    assert operations(lambda: task(piece, CHARACTERS, 8).grammar) < BUDGET


def test_an_ordinary_question_weighs_one_and_the_largest_its_work() -> None:
    ordinary = Question.parse("quiet blender, not ninja, under $100, cheapest first", ["hello", "kitchen things"])
    assert ordinary.weight == 1
    assert task("$1", CHARACTERS, 8).question.weight == 4
    assert task("a ", 200).question.weight == 2


@pytest.mark.parametrize("piece", [*WORDS, *PIECES])
@pytest.mark.parametrize(("characters", "history"), [(40, 0), (CHARACTERS, 0), (CHARACTERS, 8)])
def test_the_work_of_a_question_is_within_what_it_weighs(piece: str, characters: int, history: int) -> None:
    """So a caller's rate, which counts weights, bounds the reader's work for it."""
    fresh = task(piece, characters, history)
    asked = Asked(fresh.question.text, fresh.question.utterances[:-1])
    most = fresh.question.weight * OPERATIONS_OF_WEIGHT
    assert cost(piece, characters, history) < most
    work = completing(asked)
    work()
    assert operations(work) < most


@pytest.mark.parametrize("piece", [*WORDS, *PIECES[::2]])
def test_as_much_of_a_long_question_as_of_an_ordinary_one_costs_as_much(piece: str) -> None:
    brief = task(piece, CHARACTERS, 8).question.brief
    assert brief.weight == 1
    assert len(brief.utterances) == 1
    assert operations(reading(Asked(brief.text))) < OPERATIONS_OF_WEIGHT


def test_an_ordinary_question_is_brief() -> None:
    question = Question.parse("red shoes under $40", locale="en-GB")
    assert question.brief == question


@pytest.mark.parametrize("seed", range(4))
def test_words_that_nobody_has_misspelt_before_are_within_the_budget(seed: int) -> None:
    """What is remembered of spellings hid that eighty new ones took 2.4 million operations."""
    asked = Asked(misspelt(seed)[:CHARACTERS])
    for work in (reading(asked), completing(asked)):
        work()
        use_shop(None)
        assert operations(work) < BUDGET
