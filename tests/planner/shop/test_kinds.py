"""Categories of a shop in plans: by name, by the words of products, and none where nothing tells."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading import readers
from service.planner.fallback.reading.conversation import Conversation
from service.planner.plan import Kind, Part, Plan
from service.planner.question import Question
from service.planner.shop.folder import ShopFolder, ShopFolderError, seal
from service.planner.shop.kinds import EVIDENCE_FILE, Certainty, Kinds, plain_words, write_kinds
from service.planner.shop.kinds_of_plan import Need, with_kinds
from service.planner.vocabulary import shipped_vocabulary
from tests.planner.shop.test_in_shop import write_folder
from tests.planner.test_caching import Engine, planner, task

CATEGORIES = [("a1", "Hiking Boots"), ("b2", "Rain Boots"), ("c3", "Tents"), ("d4", "Lanterns")]
WORDS = {"campsite": {2: 2.0, 3: 2.5}, "light": {3: 3.0}, "leather": {0: 1.0}, "gift": {0: 0.3, 1: 0.3, 2: 0.3, 3: 0.3}}
NAMES = {"boot": {0: 1.5, 1: 1.4}, "hiking boot": {0: 3.0}, "tent": {2: 3.0}}
CERTAINTY = Certainty(sharpness=1.0, least=0.4, least_unnamed=0.6)


def write(folder: Path, categories: list[tuple[str, str]] = CATEGORIES) -> Path:
    write_kinds(write_folder(folder), categories, WORDS, NAMES, CERTAINTY)
    seal(folder, {"products": 100})
    return folder


@pytest.fixture
def kinds(tmp_path: Path) -> Iterator[Kinds]:
    lexicon = ShopFolder.load(write(tmp_path / "shop")).lexicon
    assert lexicon.kinds is not None
    readers.use_shop(lexicon)
    yield lexicon.kinds
    readers.use_shop(None)


def plan(*queries: str, **fields: object) -> Plan:
    told = Plan.model_validate({"mode": "keyword", "intent": "find_product", "queries": list(queries), **fields})
    need = "" if told.facets or told.parts else queries[0]
    return with_kinds(told, Question.parse(queries[0]), shipped_vocabulary(), Need(need, is_told=bool(need)))


def by_rule(query: str) -> Plan:
    return plan_by_rule(Conversation(Question.parse(query)), shipped_vocabulary())


def ids(found: Sequence[Kind]) -> list[str]:
    return [kind.id for kind in found]


def test_words_are_looked_up_in_their_singular() -> None:
    assert plain_words("The dog's Boxes, 2 BATTERIES & glass") == ["the", "dog", "box", "2", "battery", "glass"]


@pytest.mark.usefixtures("kinds")
def test_the_longest_name_decides_and_other_words_order() -> None:
    assert ids(plan("leather hiking boots", facets={"type": ["hiking boots"]}).kinds) == ["a1"]
    assert ids(plan("leather boots", facets={"type": ["boots"]}).kinds) == ["a1", "b2"]
    assert ids(plan("boots for my campsite", facets={"type": ["boots"]}).kinds) == ["a1", "b2"]


@pytest.mark.usefixtures("kinds")
def test_where_no_thing_is_named_the_words_tell() -> None:
    assert ids(plan("light up my campsite").kinds) == ["d4"]


@pytest.mark.usefixtures("kinds")
def test_what_tells_nothing_is_not_guessed() -> None:
    assert plan("gift").kinds == []
    assert plan("quantum entanglement").kinds == []


@pytest.mark.usefixtures("kinds")
def test_each_of_several_things_has_its_own() -> None:
    parts = [Part(facets={"type": [name]}, queries=[name]) for name in ("tent", "hiking boots", "spoon")]

    assert ids(plan("tent", "hiking boots", "spoon", parts=parts).kinds) == ["c3", "a1"]


@pytest.mark.usefixtures("kinds")
def test_plans_about_products_name_kinds_and_others_do_not() -> None:
    assert by_rule("hiking boots").kinds == [Kind(id="a1", name="Hiking Boots")]
    assert by_rule("where is my order").kinds == []


def test_without_a_shop_folder_the_field_is_absent() -> None:
    told = by_rule("hiking boots")

    assert told.kinds == []
    assert "kinds" not in told.model_dump()


def test_a_folder_that_was_learnt_before_names_none(tmp_path: Path) -> None:
    readers.use_shop(ShopFolder.load(write_folder(tmp_path / "older")).lexicon)
    try:
        assert by_rule("hiking boots").kinds == []
    finally:
        readers.use_shop(None)


def test_a_damaged_file_of_kinds_is_refused_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "shop")
    (folder / EVIDENCE_FILE).write_bytes(b"not what was sealed")

    with pytest.raises(ShopFolderError, match=EVIDENCE_FILE):
        ShopFolder.load(folder)


@pytest.mark.anyio
@pytest.mark.usefixtures("kinds")
async def test_a_plan_names_the_kinds_of_the_folder_that_is_read_now(tmp_path: Path) -> None:
    engine = Engine()
    engine.text = " find Color red Type tent Any"
    caching = planner(engine)

    first = await caching.plan(task("red tent"))
    renamed = [*CATEGORIES[:2], ("e5", "Family Tents"), CATEGORIES[3]]
    readers.use_shop(ShopFolder.load(write(tmp_path / "newer", renamed)).lexicon)
    again = await caching.plan(task("red tent"))

    assert (first.source, again.source, engine.calls) == ("model", "model", 2)
    assert first.plan.kinds == [Kind(id="c3", name="Tents")]
    assert again.plan.kinds == [Kind(id="e5", name="Family Tents")]
