"""What a reader writes is a plan text of the question, whatever its weights say; and it is read from a folder."""

import json
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from service.planner.caching import CachedPlanText, check_foreign
from service.planner.plan_text import FILTERS, parse, render
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader import reading as reading_module
from service.planner.reader.network import (
    FIRST,
    GRAM_SIZES,
    LAST,
    MARKS,
    MOST_GRAMS,
    MOST_MARKS,
    MOST_TURNS,
    NO_MARK,
    OPENED,
    OTHER_MARK,
    UNKNOWN,
    Network,
    Scores,
    dequantised,
    grams,
    log_softmax,
    numbers,
    seen,
)
from service.planner.reader.reading import BEGINS, CARD, FILES, GOES_ON, WEIGHTS, Choices, Reader, ReaderError
from service.planner.vocabulary import Vocabulary, shipped_vocabulary
from tests.planner.test_plan_text import GROCER
from tests.planner.walks import questions
from training.reader import SOURCES, Row, batch_of, choices_of, shape_of, write_reader
from training.reader_network import ReaderNetwork, Shape

SHIPPED = shipped_vocabulary()
OTHER = Vocabulary.model_validate(GROCER)
# Enough for a table that is written in int8.
WORDS = ("red", "shoes", "nike", "under", "not", "$00", "size", *(f"other{number}" for number in range(200)))
DECIDED = 30.0  # times the weights that a network begins with, whose scores hardly differ


def choices(least_probability: float = 0.0) -> Choices:
    return choices_of(SHIPPED, SOURCES, least_probability)


def random_network(seed: int, decided: float = DECIDED) -> ReaderNetwork:
    """Return a network that marks anything, and decides at random."""
    torch.manual_seed(seed)
    of = shape_of(choices(), len(WORDS), buckets=256)
    shape = Shape(of.words, of.buckets, of.tags, of.parts, of.ends, width=48, word_width=24, blocks=2)
    network = ReaderNetwork(shape).eval()
    with torch.no_grad():
        for layer in (network.tags, network.parts, network.ends):
            layer.weight.mul_(decided)
    return network


def write_random(folder: Path, seed: int = 0) -> Path:
    """Write the three files of a random reader, as training writes them."""
    folder.mkdir(exist_ok=True)
    write_reader(random_network(seed), WORDS, choices(), folder)
    return folder


@cache
def reader(seed: int) -> Reader:
    """Return a random reader that doubts nothing."""
    with TemporaryDirectory() as folder:
        return Reader.load(write_random(Path(folder), seed))


def is_plan_text(text: str, question: Question, vocabulary: Vocabulary) -> bool:
    """Tell whether the question's grammar admits a text and it is read as what it was written of."""
    check_foreign(CachedPlanText(text, "", "medusa"), PlanTask(question, vocabulary))
    return render(parse(text, question, vocabulary), question, vocabulary) == text


@settings(deadline=None)
@given(questions, st.integers(0, 5), st.sampled_from([SHIPPED, OTHER]))
def test_the_words_of_any_reader_are_a_plan_text_of_any_question(
    question: Question, seed: int, vocabulary: Vocabulary
) -> None:
    """So are those of a reader that learnt another vocabulary: what this one lacks is never chosen."""
    reading = reader(seed).read(question, vocabulary)
    assert is_plan_text(reading.text, question, vocabulary)
    assert reading.text == render(reading.draft, question, vocabulary)
    assert all(0 <= probability <= 1 + 1e-6 for _, probability in reading.words)
    assert reading.worth == pytest.approx(1 - reading.probability)
    for span in (*reading.draft.spans, *reading.draft.marks):
        assert question.words[span.first].utterance == question.words[span.last].utterance


class _Told:
    """A network that says what a test wants: each word's tag, and the first of every end."""

    def __init__(self, tags: list[int], sure: float = 1.0) -> None:
        self._tags, self._sure = tags, sure

    def scores(self, *_: object) -> Scores:
        chosen = choices()
        tags = np.full((len(self._tags), BEGINS + len(chosen.kinds)), -50.0, np.float32)
        tags[np.arange(len(self._tags)), self._tags] = np.log(self._sure)
        parts = np.tile(np.array([0.0, *[-50.0] * 4], np.float32), (len(self._tags), 1))
        ends = tuple(np.array([9.0, *[-9.0] * (size - 1)], np.float32) for size in chosen.ends)
        return Scores(tags, parts, ends)


def told(tags: list[int], sure: float = 1.0, least: float = 0.0) -> Reader:
    return replace(reader(0), network=_Told(tags, sure), choices=choices(least))  # type: ignore[arg-type]


def tag(facet: str, *, refused: bool = False) -> int:
    return BEGINS + choices().kinds.index((facet, refused))


def test_no_value_runs_over_the_end_of_a_message() -> None:
    question = Question.parse("shoes red", ["running"])
    draft = told([tag("type"), GOES_ON, GOES_ON]).read(question, SHIPPED).draft
    assert [(span.first, span.last) for span in draft.spans] in ([(0, 0)], [(0, 0), (1, 2)])


def test_what_the_reader_marks_and_what_it_leaves_out_make_the_probability() -> None:
    question = Question.parse("red running shoes please")
    tags = [tag("color"), tag("type"), GOES_ON, 0]
    reading, sure = told(tags, 0.8).read(question, SHIPPED), told(tags).read(question, SHIPPED)
    assert reading.text.split()[1:6] == ["Color", "red", "Type", "running", "shoes"]
    assert reading.probability == pytest.approx(sure.probability * 0.8**4, rel=1e-3)


def test_a_doubtful_filter_leaves_the_draft_and_not_the_words() -> None:
    question = Question.parse("shoes not leather under $40")
    tags = [tag("type"), 0, tag("material", refused=True), tag("max"), GOES_ON]
    for least, filters in ((0.3, ["material", "max"]), (0.7, ["material"]), (0.9, [])):
        reading = told(tags, 0.8, least).read(question, SHIPPED)
        assert " Type shoes Not Material leather Max under $40 " in reading.text
        spans = (*reading.draft.spans, *reading.draft.marks)
        assert [span.facet for span in spans if span.refused or span.facet in FILTERS] == filters
        assert spans[0].facet == "type", "what filters nothing stays"


def test_an_empty_question_is_searched_for_without_certainty() -> None:
    question = Question.parse("")
    reading = reader(0).read(question, SHIPPED)
    assert (reading.draft.intent, reading.draft.spans, reading.worth) == ("find_product", [], 1.0)
    assert is_plan_text(reading.text, question, SHIPPED)


def test_a_bound_says_what_the_reader_takes_and_how_often_it_differs() -> None:
    bound = {"worth": 0.2, "lost": 0.01, "risk": 0.05, "questions": 100, "by_reader": 0.5}
    chosen = Choices.model_validate(choices().model_dump() | {"bound": bound, "differs": [(0.1, 0.05), (1.0, 0.4)]})
    bounded = replace(reader(0), choices=chosen)
    assert [bounded.takes(worth) for worth in (0.1, 0.2, 0.9)] == [True, False, False]
    assert [bounded.differs(worth) for worth in (0.1, 0.2)] == [0.05, 0.4]
    assert (reader(0).takes(0.0), reader(0).differs(0.0)) == (False, 1.0)


def test_a_folder_without_a_reader_has_the_shipped_one_where_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped, bare = write_random(tmp_path / "shipped"), tmp_path / "bare"
    bare.mkdir()
    monkeypatch.setattr(reading_module, "SHIPPED_MODEL", shipped)
    of_shipped = Reader.of_model(bare)
    assert of_shipped is not None
    assert of_shipped.choices == choices()
    (shipped / CARD).unlink()
    assert Reader.of_model(bare) is None


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe\x00"])
def test_a_damaged_reader_is_refused_in_words(tmp_path: Path, file: str, content: bytes | None) -> None:
    path = write_random(tmp_path) / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ReaderError, match=f"{tmp_path.name}.*(python -m training.reader|{FILES[1]} lists)"):
        Reader.load(tmp_path)


def test_files_that_do_not_belong_together_are_refused_in_words(tmp_path: Path) -> None:
    card = json.loads((write_random(tmp_path) / CARD).read_text())
    for change, told_of in (
        ({"kinds": card["kinds"][1:]}, f"{WEIGHTS} marks other kinds of values than {CARD}"),
        ({"intents": card["intents"][1:]}, "python -m training.reader"),
        ({"least_probability": 2}, "python -m training.reader"),
    ):
        (tmp_path / CARD).write_text(json.dumps(card | change))
        with pytest.raises(ReaderError, match=told_of):
            Reader.load(tmp_path)


QUESTIONS = (
    Question.parse("shoes"),
    Question.parse('red "nike" shoes, not leather, under $40?'),
    Question.parse("in blue", ["running shoes size 10", "for women"]),
    Question.parse("a pair of red or blue trail running shoes that keep my feet dry when it rains for hours and hours"),
)


def row(question: Question) -> Row:
    found = seen(question)
    nothing = np.zeros(len(found.texts), np.int64)
    return Row(tuple(found.texts), np.array(found.marks), np.array(found.turns), nothing, nothing, (), ())


@pytest.mark.parametrize("seed", range(3))
def test_numpy_scores_what_torch_scores(tmp_path: Path, seed: int) -> None:
    listed, trained = {word: at for at, word in enumerate(WORDS, 1)}, random_network(seed, decided=0.5)
    write_reader(trained, WORDS, choices(), tmp_path)
    weights = load_file(tmp_path / WEIGHTS)
    network = Network(weights, choices().ends)
    rounded = deepcopy(trained)
    rounded.load_state_dict({name: torch.from_numpy(value) for name, value in dequantised(weights).items()})
    assert weights["letters.weight"].dtype == weights["blocks.0.near.weight"].dtype == np.int8
    assert (network.tags, network.listed) == (trained.shape.tags, len(WORDS))
    batch = batch_of([row(question) for question in QUESTIONS], listed, trained.shape.buckets)
    for of_torch, tolerance in ((trained, 1e-2), (rounded, 1e-4)):
        with torch.no_grad():
            tags, parts, ends = of_torch(batch)
        for at, question in enumerate(QUESTIONS):
            found, length = seen(question), len(question.words)
            scores = network.scores(found, numbers(found.texts, listed))
            assert scores.tags == pytest.approx(log_softmax(tags[at, :length].numpy()), abs=tolerance)
            assert scores.parts == pytest.approx(log_softmax(parts[at, :length].numpy()), abs=tolerance)
            for ours, theirs in zip(scores.ends, ends, strict=True):
                assert ours == pytest.approx(theirs[at].numpy(), abs=tolerance)


def test_weights_of_other_choices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ends"):
        Network(load_file(write_random(tmp_path) / WEIGHTS), (*choices().ends, 2))


COMMA, QUESTION_MARK = 1, 3


@pytest.mark.parametrize(
    ("messages", "texts", "expected"),
    [
        (["red running shoes"], ["red", "running", "shoes"], [{FIRST}, set(), {LAST}]),
        (['a "red" hat'], ["a", "red", "hat"], [{FIRST}, {OPENED, OTHER_MARK}, {LAST}]),
        (
            ["is $1,299.99 for Men’s?"],
            ["is", "$0,000.00", "for", "men's"],
            [{FIRST}, set(), set(), {LAST, QUESTION_MARK}],
        ),
        (["shoes, red or 42"], ["shoes", "red", "or", "00"], [{FIRST, COMMA}, set(), set(), {LAST}]),
        (["(new),"], ["new"], [{FIRST, LAST, OPENED, OTHER_MARK}]),
        (["shoes", "in blue"], ["shoes", "in", "blue"], [{FIRST, LAST}, {FIRST}, {LAST}]),
    ],
)
def test_a_word_has_the_marks_around_it_and_its_place_and_its_digits_are_alike(
    messages: list[str], texts: list[str], expected: list[set[int]]
) -> None:
    found = seen(Question.parse(messages[-1], messages[:-1]))
    assert list(found.texts) == texts
    assert {len(each) for each in found.marks} == {MOST_MARKS}
    assert [set(each) - {NO_MARK} for each in found.marks] == expected
    assert all(mark < MARKS for each in expected for mark in each)
    assert numbers(texts, {texts[0]: 1}) == [1] + [UNKNOWN] * (len(texts) - 1)


def test_turns_count_back_from_the_newest_message_and_distant_ones_are_alike() -> None:
    turns = seen(Question.parse("newest one", [f"message{number}" for number in range(MOST_TURNS + 2)])).turns
    assert turns == [MOST_TURNS - 1] * 3 + list(range(MOST_TURNS - 1, 0, -1)) + [0, 0]


def test_letters_are_runs_in_a_table_of_fixed_size() -> None:
    assert len(grams("shoe", 2**20)) == sum(len("<shoe>") - size + 1 for size in GRAM_SIZES)
    assert set(grams("shoes", 2**20)) & set(grams("shoe", 2**20))
    assert grams("?", 7)
    assert len(grams("abcdefghijklmnopqrstuvwxyz0123456789", 2**20)) == MOST_GRAMS
    assert all(0 <= place < 7 for place in grams("waterproof", 7))
