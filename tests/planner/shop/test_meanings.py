"""Needs, which name no thing, lead to a shop's categories by what their words mean, and to none where none is close."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from service.engines.meaning import QuestionMeaning
from service.planner.completion import plan_from_draft
from service.planner.fallback.making.needs import need_of
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading import readers
from service.planner.fallback.reading.conversation import Conversation
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.shop.folder import ShopFolder, ShopFolderError, read_files, seal
from service.planner.shop.kinds import Kinds, Thing, write_kinds
from service.planner.shop.kinds_of_plan import Need, with_kinds
from service.planner.shop.meanings import (
    GENERAL_FILE,
    KINDS_FILE,
    NEARNESS_FILE,
    TELLING_FILE,
    VECTORS_FILE,
    Meanings,
    space_of,
    write_meanings,
)
from service.planner.vocabulary import shipped_vocabulary
from tests.planner.shop.test_in_shop import write_folder
from tests.planner.shop.test_kinds import CATEGORIES, CERTAINTY, NAMES, WORDS

VECTORS = {
    "puddle": (0, 100, 0),
    "mud": (0, 90, 10),
    "trudge": (40, 40, 0),
    "sleep": (0, 0, 90),
    "my": (1, 1, 1),
    "dusk": (0, 9, 0),
}
TELLING = np.array(
    [[2, 0, 0], [1, 0, 0], [0.5, 3, 0], [0, 0, 0], [0, 0, 4], [-2, 0, 0], [-1, 0, 0]], np.float16
)  # last: of any text
GENERAL = np.array([[0, 127, 0], [0, 0, 127]], np.int8)  # rain boots and tents, of which shops have some
OF_KINDS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1]], np.float32)  # hiking boots, rain boots, tents, ...


def write(folder: Path) -> Path:
    write_kinds(write_folder(folder), CATEGORIES, WORDS, NAMES, CERTAINTY)
    write_meanings(folder, list(VECTORS), np.array(list(VECTORS.values()), np.int8), OF_KINDS, TELLING)
    seal(folder, {"products": 100})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = write(tmp_path / "shop")
    readers.use_shop(ShopFolder.load(path).lexicon)
    yield path
    readers.use_shop(None)


def named(kinds: Kinds, need: str) -> list[str]:
    return [kind.name for kind in kinds.of([Thing(need, (), need)], 3)]


def test_each_word_keeps_its_own_vector(folder: Path) -> None:
    meanings = Meanings(read_files(folder))
    for word, vector in VECTORS.items():
        expected = OF_KINDS @ (np.array(vector) / np.linalg.norm(vector))
        assert meanings.closeness([word]) == pytest.approx(expected, abs=1e-6), word
    assert meanings.closeness(["unheard"]) is None


def test_words_tell_of_a_need_wherever_they_stand_and_the_first_two_once_more(folder: Path) -> None:
    meanings = Meanings(read_files(folder))
    for text, odds in (
        ("unheard", -1),
        ("puddle puddle", 2 - 1),
        ("trudge mud", 0.5 + 3 + 1 - 1),
        ("mud trudge", 0.5 + 1 - 1),
        ("keep my sleep", 4 - 1),
        ("my", -1),
    ):
        assert meanings.tells_need(text.split()) == pytest.approx(odds), text


def test_a_folder_learnt_before_words_told_of_needs_tells_none(folder: Path) -> None:
    (folder / TELLING_FILE).unlink()
    assert Kinds(read_files(folder)).tells_need("trudge through the mud") is None


def test_a_need_leads_to_what_is_close_in_meaning(folder: Path) -> None:
    kinds = Kinds(read_files(folder))

    assert named(kinds, "trudge through the puddles") == ["Rain Boots"]
    assert named(kinds, "sleep outside") == ["Tents"]
    assert named(kinds, "my") == []  # as close to one as to another
    assert named(kinds, "quantum entanglement") == []


def test_what_is_said_is_a_need_only_where_it_names_no_thing(folder: Path) -> None:
    kinds = Kinds(read_files(folder))
    for question, need in (
        ("trudge to the tree", True),  # its words say so, though trees are things
        ("something nice for dusk", False),  # nor is a need one whose words are never those of needs
        ("something nice for day", True),
        ("keep my boots dry in the mud", True),
        ("my boots give me blisters", True),
        ("trudge through puddles", True),
        ("waterproof boots for the mud", False),
        ("i am looking for a baby stroller", False),
        ("baby stroller", False),
        ("trudge through puddles with boots", True),
        ("boots for my trudge through puddles", True),
    ):
        plan = plan_by_rule(Conversation(Question.parse(question)), shipped_vocabulary())
        assert bool(need_of(plan, Question.parse(question), kinds.tells_need).text) == need, question


def test_the_plan_of_a_need_names_kinds_and_that_of_an_absent_thing_does_not(folder: Path) -> None:
    del folder

    def kinds_of(question: str) -> list[str]:
        plan = plan_by_rule(Conversation(Question.parse(question)), shipped_vocabulary())
        assert isinstance(plan, Plan)
        return [kind.name for kind in plan.kinds]

    assert kinds_of("keep me dry in the mud") == ["Rain Boots"]
    assert kinds_of("baby stroller") == []
    assert kinds_of("where is my order") == []


def write_without_rain_boots(folder: Path, general: NDArray[np.int8] | None) -> Kinds:
    far = np.array([[1, 0, 0], [0.9, 0.3, 0.3], [0, 0, 1], [0, 0, -1]], np.float32)  # the second is the nearest of them
    write_meanings(folder, list(VECTORS), np.array(list(VECTORS.values()), np.int8), far, TELLING, general)
    return Kinds(read_files(folder))


def told_kinds(kinds: Kinds, need: str, pointed: tuple[float, ...] = ()) -> list[str]:
    return [kind.name for kind in kinds.of([Thing(need, (), need, True, pointed)], 3)]


def test_a_need_that_nothing_in_the_shop_meets_leads_nowhere(folder: Path) -> None:
    without, with_general = write_without_rain_boots(folder, None), write_without_rain_boots(folder, GENERAL)

    assert told_kinds(without, "puddle mud") == ["Rain Boots"]  # the closest there is
    assert told_kinds(with_general, "puddle mud") == []
    assert told_kinds(with_general, "sleep") == ["Tents"]
    assert told_kinds(with_general, "puddle mud", (0.0, 0.0, 9.0)) == ["Tents"]  # where the model points elsewhere
    assert told_kinds(with_general, "sleep", (0.0, 9.0, 0.0)) == []


def test_how_near_a_shop_comes_is_the_same_however_many_categories_it_has(folder: Path) -> None:
    write_without_rain_boots(folder, GENERAL)
    few = np.load(folder / NEARNESS_FILE)
    many = np.tile(np.array([[0.9, 0.3, 0.3], [0, 0, 1]], np.float32), (5000, 1))
    vectors = np.array(list(VECTORS.values()), np.int8)
    write_meanings(folder, list(VECTORS), vectors, many, TELLING, GENERAL)
    assert np.load(folder / NEARNESS_FILE) == pytest.approx(few)
    assert few == pytest.approx([0.3, 1.0])


def by_model(text: str, meaning: QuestionMeaning | None) -> Plan:
    question = Question.parse(text)
    need = FacetSpan("need", 0, len(question.words) - 1)
    return plan_from_draft(PlanDraft("keyword", "find_product", marks=[need]), question, shipped_vocabulary(), meaning)


def kinds_of(plan: Plan) -> list[str]:
    return [kind.name for kind in plan.kinds]


def test_where_the_model_points_adds_to_what_words_mean(folder: Path) -> None:
    meanings = Meanings(read_files(folder))
    word, pointed = np.array([0, 1, 0]), np.array([0, 0, 3])

    expected = OF_KINDS @ ((word + pointed) / np.linalg.norm(word + pointed))
    assert meanings.closeness(["puddle"], pointed.tolist()) == pytest.approx(expected, abs=1e-6)
    assert meanings.closeness(["unheard"], pointed.tolist()) == pytest.approx(OF_KINDS @ [0, 0, 1], abs=1e-6)
    assert meanings.closeness(["puddle"], [1.0]) == pytest.approx(OF_KINDS @ word, abs=1e-6)  # another width


def test_the_model_counts_where_it_points_among_the_vectors_of_this_shop(folder: Path) -> None:
    space = Kinds(read_files(folder)).space
    assert space == space_of(list(VECTORS), np.array(list(VECTORS.values()), np.int8))
    tents = QuestionMeaning(space, (0.0, 0.0, 5.0), 0.0)
    need = "trudge through the puddles"
    assert kinds_of(by_model(need, None)) == ["Rain Boots"]
    assert kinds_of(by_model(need, tents)) == ["Tents"]
    assert kinds_of(by_model(need, replace(tents, space="0" * 16))) == ["Rain Boots"]
    told = Plan(mode="keyword", intent="find_product", queries=[need])
    follow_up = Question.parse(need, ["hello"])  # a head has learnt from questions of one utterance
    assert kinds_of(with_kinds(told, follow_up, shipped_vocabulary(), Need(need, is_told=True), tents)) == [
        "Rain Boots"
    ]


def test_damaged_vectors_are_refused_by_name(folder: Path) -> None:
    np.save(folder / VECTORS_FILE, np.zeros((1, 3), np.int8))
    seal(folder, {"products": 100})
    with pytest.raises(ShopFolderError, match=VECTORS_FILE):
        ShopFolder.load(folder)

    write_meanings(folder, list(VECTORS), np.array(list(VECTORS.values()), np.int8), OF_KINDS, TELLING)
    np.save(folder / TELLING_FILE, np.zeros((len(VECTORS), 3), np.float16))
    seal(folder, {"products": 100})
    with pytest.raises(ShopFolderError, match=TELLING_FILE):
        ShopFolder.load(folder)

    write_meanings(folder, list(VECTORS), np.array(list(VECTORS.values()), np.int8), OF_KINDS, TELLING, GENERAL)
    np.save(folder / GENERAL_FILE, np.zeros((3, 3), np.float16))
    seal(folder, {"products": 100})
    with pytest.raises(ShopFolderError, match=GENERAL_FILE):
        ShopFolder.load(folder)

    (folder / KINDS_FILE).unlink()
    with pytest.raises(ShopFolderError, match=KINDS_FILE):
        ShopFolder.load(folder)
