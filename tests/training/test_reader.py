"""Tests of the reader's training, on a few questions and a small network."""

import random
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import pytest

from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import FILE_NAME, Vocabulary
from service.settings.choices import SHIPPED_MODEL
from tests.tiny_model import write_tiny_model
from training import reader as reader_module
from training.data.examples import Example
from training.data.mix import Dialogue
from training.reader import choices_of, read_network, row_of, train_reader, with_choices
from training.reader_network import ReaderNetwork
from training.settings import ReaderSettings, TrainingSettings

COLORS, THINGS = ("red", "blue", "green"), ("shoes", "kettle", "lamp")


class Few:
    """Questions of two words, each with all of its plan."""

    def epoch(self, rng: random.Random) -> list[Dialogue]:
        asked = [
            Example(f"{color} {thing}", self.draft(refused=False), knows_closing=True)
            for color in COLORS
            for thing in THINGS
        ]
        asked += [
            Example(f"no {color}", PlanDraft("keyword", "find_product", ["catalog"], [FacetSpan("color", 1, 1, True)]))
            for color in COLORS
        ]
        asked += [Example("where is my order", PlanDraft("conversational", "order_status", ["orders"]))] * 4
        return [(example,) for example in rng.sample(asked, len(asked))] * 3

    @staticmethod
    def draft(*, refused: bool) -> PlanDraft:
        spans = [FacetSpan("color", 0, 0, refused), FacetSpan("type", 1, 1)]
        return PlanDraft("keyword", "find_product", ["catalog"], spans, sort="relevance")

    def dev(self) -> dict[str, list[Example]]:
        return {}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingSettings:
    monkeypatch.setattr(reader_module, "ProcessPoolExecutor", _Here)
    chosen = ReaderSettings(epochs=16, least_seen=1, buckets=512, batch_words=64, warmup_steps=8, learning_rate=2e-3)
    return TrainingSettings(
        data=tmp_path, cache=tmp_path, work=tmp_path, output=tmp_path, processes=1, reader=chosen, source=Few
    )


class _Here:
    """An executor that does at once, in this process, what it is given."""

    def __init__(self, _: int) -> None:
        """Take the number of processes, and start none."""

    def __enter__(self) -> "_Here":
        return self

    def __exit__(self, *_: object) -> None:
        """Stop nothing."""

    def submit(self, work, *given):  # type: ignore[no-untyped-def]
        return type("Done", (), {"result": staticmethod(lambda: work(*given))})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny", with_heads=False)


def text(folder: Path, words: str) -> str:
    return Reader.load(folder).read(Question.parse(words), Vocabulary.load(folder)).text


def test_it_learns_to_write_what_its_rows_say(settings: TrainingSettings, folder: Path) -> None:
    train_reader(settings, folder)
    assert text(folder, "blue lamp").startswith(" find Color blue Type lamp")
    assert text(folder, "no green").startswith(" find Not Color green")
    assert text(folder, "where is my order") == " Status"


def test_an_interrupted_training_goes_on_after_its_last_whole_epoch(
    settings: TrainingSettings, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = replace(settings.reader, epochs=2)
    train_reader(replace(settings, reader=short), folder)
    capsys.readouterr()
    train_reader(replace(settings, reader=replace(short, epochs=3)), folder)
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["reader: epoch 3/3"]


def test_it_goes_on_from_another_reader_with_other_words_to_choose_from(
    settings: TrainingSettings, folder: Path, tmp_path: Path
) -> None:
    train_reader(settings, folder)
    network, words, before = read_network(folder)
    vocabulary = Vocabulary.load(folder)
    fewer = vocabulary.model_copy(
        update={"facets": {key: facet for key, facet in vocabulary.facets.items() if key != "time"}}
    )
    after = with_choices(network, before, choices_of(fewer, before.sources, before.least_probability))
    kept = before.kinds.index(("type", False)), choices_of(fewer, before.sources, 0.5).kinds.index(("type", False))
    assert kept[0] != kept[1] or len(before.kinds) != len(choices_of(fewer, before.sources, 0.5).kinds)
    assert isinstance(after, ReaderNetwork)
    assert after.tags.weight[2 + kept[1]].equal(network.tags.weight[2 + kept[0]])

    copyfile(SHIPPED_MODEL / FILE_NAME, tmp_path / FILE_NAME)
    gentle = replace(settings.reader, epochs=1, learning_rate=1e-6)
    train_reader(replace(settings, reader=gentle, reader_start=folder, work=tmp_path / "more"), tmp_path)
    assert text(tmp_path, "blue lamp") == text(folder, "blue lamp")
    assert words == read_network(tmp_path)[1]


def test_what_a_row_does_not_say_is_not_learnt() -> None:
    vocabulary = Vocabulary.load(SHIPPED_MODEL)
    choices = Reader.load(SHIPPED_MODEL).choices
    known = Few.draft(refused=True)
    row = row_of(Example("red shoes", known), choices, vocabulary)
    assert row.tags.tolist() == [2 + choices.kinds.index(("color", True)), 2 + choices.kinds.index(("type", False))]
    assert row.offers == (reader_module.IGNORED,) * 4
    silent = row_of(Example("red shoes", known, knows_facets=False, knows_intent=False), choices, vocabulary)
    assert set(silent.tags.tolist()) == {reader_module.IGNORED}
    assert silent.ends[0] == reader_module.IGNORED
