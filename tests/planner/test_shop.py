"""Questions planned with a shop folder: its names are what they are, its words stay, and its categories are found."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.engines.protocol import QuestionMeaning
from service.planner.completion import Need, plan_from_draft, with_kinds
from service.planner.plan import Kind, Part, Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.shop.folder import Lexicon, ShopFolder, ShopFolderError, read_files, seal
from service.planner.shop.kinds import EVIDENCE_FILE, Certainty, Kinds, Thing, plain_words, write_kinds
from service.planner.shop.meanings import (
    GENERAL_FILE,
    KINDS_FILE,
    NEARNESS_FILE,
    VECTORS_FILE,
    Meanings,
    space_of,
    write_meanings,
)
from service.planner.spelling import correct, use_shop
from service.planner.vocabulary import shipped_vocabulary
from tests.faults.under_load import fake_server
from tests.planner.test_caching import Engine, planner, task
from tests.processes import eventually
from tests.readers import write_folder
from tests.server_process import ServerProcess


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Lexicon]:
    lexicon = ShopFolder.load(write_folder(tmp_path / "shop")).lexicon
    use_shop(lexicon)
    yield lexicon
    use_shop(None)


def plan(query: str, intent: str, *spans: FacetSpan) -> Plan:
    draft = PlanDraft("keyword", intent, spans=list(spans))
    return plan_from_draft(draft, Question.parse(query), shipped_vocabulary())


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("brand", ["google", "vans", "thanks"])
@pytest.mark.parametrize("intent", ["small_talk", "out_of_scope"])
def test_one_word_that_is_a_brand_is_searched(brand: str, intent: str) -> None:
    told = plan(brand, intent)
    assert (told.intent, told.queries, told.facets) == ("find_product", [brand], {"brand": [brand]})


def test_without_the_shop_it_is_what_it_was() -> None:
    assert plan("thanks", "small_talk").intent == "small_talk"
    assert correct("muga crianza").startswith("mug ")
    assert correct("quorlim") == "quorlim"


@pytest.mark.usefixtures("shop")
def test_words_of_the_shop_stay_and_typos_become_them() -> None:
    assert correct("muga cune") == "muga cune"
    assert plan("muga red wine", "find_product", FacetSpan("type", 0, 2)).queries == ["muga red wine"]
    assert correct("goggle") != "google"  # a word of its own
    assert correct("googel") == "google"
    assert correct("niinja") == "ninja"
    assert correct("quorlim") == "quorlin"  # which no list has


@pytest.mark.usefixtures("shop")
def test_names_of_several_words_are_one_value() -> None:
    shoes = [FacetSpan("type", 0, 0), FacetSpan("type", 1, 2), FacetSpan("color", 3, 3)]
    told = plan("vans old skool black", "find_product", *shoes)
    assert told.facets == {"brand": ["vans"], "line": ["old skool"], "color": ["black"]}
    refused = FacetSpan("type", 2, 3, refused=True)
    assert plan("sneakers not old skool", "find_product", shoes[0], refused).exclude == {"line": ["old skool"]}


@pytest.mark.usefixtures("shop")
def test_what_a_model_takes_a_name_for_is_put_right() -> None:
    told = plan("vans sneakers", "find_product", FacetSpan("type", 0, 0), FacetSpan("type", 1, 1))
    assert told.facets == {"brand": ["vans"], "type": ["sneakers"]}


@pytest.mark.usefixtures("shop")
def test_an_unsure_name_is_read_as_ever() -> None:
    told = plan("orange dress", "find_product", FacetSpan("color", 0, 0), FacetSpan("type", 1, 1))
    assert told.facets == {"color": ["orange"], "type": ["dress"]}


CATEGORIES = [("a1", "Hiking Boots"), ("b2", "Rain Boots"), ("c3", "Tents"), ("d4", "Lanterns")]
WORDS = {"campsite": {2: 2.0, 3: 2.5}, "light": {3: 3.0}, "leather": {0: 1.0}, "gift": {0: 0.3, 1: 0.3, 2: 0.3, 3: 0.3}}
NAMES = {"boot": {0: 1.5, 1: 1.4}, "hiking boot": {0: 3.0}, "tent": {2: 3.0}}
CERTAINTY = Certainty(sharpness=1.0, least=0.4, least_unnamed=0.6)


def write_kinds_folder(folder: Path, categories: list[tuple[str, str]] = CATEGORIES) -> Path:
    write_kinds(write_folder(folder), categories, WORDS, NAMES, CERTAINTY)
    seal(folder, {"products": 100})
    return folder


NESTED = b"[" * 100_000
NO_SEALS = (b"{", b"[]", b"{}", b'{"version": 1, "files": 7, "summary": {}}', NESTED)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("names.marisa", b"other", r"names\.marisa is missing or not what was sealed"),
        ("names.marisa", None, r"names\.marisa is not sealed"),
        (EVIDENCE_FILE, b"other", EVIDENCE_FILE),
        *(("shop.json", content, r"shop\.json is damaged") for content in NO_SEALS),
    ],
)
def test_a_damaged_folder_is_refused_by_name(tmp_path: Path, file: str, content: bytes | None, words: str) -> None:
    folder = write_kinds_folder(tmp_path / "shop")
    sealed = json.loads((folder / "shop.json").read_bytes())
    if content is None:  # the seal does not name it
        del sealed["files"][file]
        file, content = "shop.json", json.dumps(sealed).encode()
    (folder / file).write_bytes(content)
    with pytest.raises(ShopFolderError, match=words):
        ShopFolder.load(folder)
    with pytest.raises(ShopFolderError, match="no whole shop folder"):
        ShopFolder.load(tmp_path / "nowhere")


def test_the_service_keeps_what_it_read_whatever_becomes_of_the_folder_and_reloads_a_whole_one(tmp_path: Path) -> None:
    names = {f"zorvex{number}": "brand" for number in range(2000)}
    folder = write_folder(tmp_path / "shop", names | {"quorlin": "brand"})
    with fake_server(PEAKPLAN_SHOP_DIR=folder, PEAKPLAN_REPLICAS=1, FAKE_SECONDS=0) as server:

        def plan(query: str) -> Any:
            return server.post("/plan", {"query": query, "deadline_ms": 2000}).json()["plan"]

        def is_read(number: int) -> None:
            assert plan(f"zorvex{number} shoes")["facets"] == {"brand": [f"zorvex{number}"]}

        def is_refused(words: str) -> None:
            assert server.control("/reload").status_code == 503
            eventually(lambda: any(words in line for line in server.lines), f"the log does not say {words!r}")

        is_read(1)
        assert "quorlin" in plan("quorlim")["queries"]
        (folder / "words.marisa").unlink()
        is_refused("words.marisa")
        for path in folder.iterdir():  # in place: a process that had mapped the files would die
            os.truncate(path, 0)
        is_read(1999)
        is_refused("shop.json is damaged")
        (folder / "shop.json").write_bytes(NESTED)
        is_refused("shop.json is damaged")
        is_read(2)
        shutil.rmtree(folder)
        write_folder(folder, {"tandry": "brand"})
        assert server.control("/reload").status_code == 200
        assert "tandry" in plan("tandryy")["queries"]
        assert "quorlin" not in plan("quorlim")["queries"]


def test_the_service_does_not_start_with_a_damaged_one(tmp_path: Path, tiny_model_dir: Path) -> None:
    folder = write_folder(tmp_path / "shop")
    (folder / "sounds.marisa").write_bytes(b"")
    server = ServerProcess(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1, PEAKPLAN_SHOP_DIR=folder)
    assert server.wait() == 1
    assert "sounds.marisa" in json.loads(server.lines[-1])["reason"]


@pytest.fixture
def kinds(tmp_path: Path) -> Iterator[Kinds]:
    lexicon = ShopFolder.load(write_kinds_folder(tmp_path / "shop")).lexicon
    assert lexicon.kinds is not None
    use_shop(lexicon)
    yield lexicon.kinds
    use_shop(None)


def plan_of(*queries: str, **fields: object) -> Plan:
    told = Plan.model_validate({"mode": "keyword", "intent": "find_product", "queries": list(queries), **fields})
    need = "" if told.facets or told.parts else queries[0]
    return with_kinds(told, Question.parse(queries[0]), shipped_vocabulary(), Need(need, is_told=bool(need)))


def hiking_boots(intent: str = "find_product") -> Plan:
    draft = PlanDraft("keyword", intent, spans=[FacetSpan("type", 0, 1)])
    return plan_from_draft(draft, Question.parse("hiking boots"), shipped_vocabulary())


def ids(found: Sequence[Kind]) -> list[str]:
    return [kind.id for kind in found]


def test_words_are_looked_up_in_their_singular() -> None:
    assert plain_words("The dog's Boxes, 2 BATTERIES & glass") == ["the", "dog", "box", "2", "battery", "glass"]


@pytest.mark.parametrize(
    ("query", "named", "found"),
    [
        ("leather hiking boots", "hiking boots", ["a1"]),  # the longest name decides
        ("leather boots", "boots", ["a1", "b2"]),  # and other words order
        ("boots for my campsite", "boots", ["a1", "b2"]),
        ("light up my campsite", "", ["d4"]),  # where no thing is named the words tell
        ("gift", "", []),  # what tells nothing is not guessed
        ("quantum entanglement", "", []),
    ],
)
@pytest.mark.usefixtures("kinds")
def test_the_thing_that_is_named_tells_its_kinds_or_the_words_do(query: str, named: str, found: list[str]) -> None:
    assert ids(plan_of(query, facets={"type": [named]} if named else {}).kinds) == found


@pytest.mark.usefixtures("kinds")
def test_each_of_several_things_has_its_own() -> None:
    parts = [Part(facets={"type": [name]}, queries=[name]) for name in ("tent", "hiking boots", "spoon")]

    assert ids(plan_of("tent", "hiking boots", "spoon", parts=parts).kinds) == ["c3", "a1"]


@pytest.mark.usefixtures("kinds")
def test_plans_about_products_name_kinds_and_others_do_not() -> None:
    assert hiking_boots().kinds == [Kind(id="a1", name="Hiking Boots")]
    assert hiking_boots("order_status").kinds == []


def test_without_a_shop_folder_the_field_is_absent() -> None:
    assert "kinds" not in hiking_boots().model_dump()


@pytest.mark.usefixtures("shop")
def test_a_folder_that_was_learnt_before_names_none() -> None:
    assert hiking_boots().kinds == []


@pytest.mark.anyio
@pytest.mark.usefixtures("kinds")
async def test_a_plan_names_the_kinds_of_the_folder_that_is_read_now(tmp_path: Path) -> None:
    engine = Engine()
    engine.text = " find Color red Type tent Any"
    caching = planner(engine)

    first = await caching.plan(task("red tent"))
    renamed = [*CATEGORIES[:2], ("e5", "Family Tents"), CATEGORIES[3]]
    use_shop(ShopFolder.load(write_kinds_folder(tmp_path / "newer", renamed)).lexicon)
    again = await caching.plan(task("red tent"))

    assert (first.source, again.source, engine.calls) == ("model", "model", 2)
    assert first.plan.kinds == [Kind(id="c3", name="Tents")]
    assert again.plan.kinds == [Kind(id="e5", name="Family Tents")]


VECTORS = {
    "puddle": (0, 100, 0),
    "mud": (0, 90, 10),
    "trudge": (40, 40, 0),
    "sleep": (0, 0, 90),
    "my": (1, 1, 1),
    "dusk": (0, 9, 0),
}
GENERAL = np.array([[0, 127, 0], [0, 0, 127]], np.int8)  # rain boots and tents, of which shops have some
OF_KINDS = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, -1]], np.float32)  # hiking boots, rain boots, tents, ...


def written_with_meanings(folder: Path) -> Path:
    write_kinds(write_folder(folder), CATEGORIES, WORDS, NAMES, CERTAINTY)
    write_meanings(folder, list(VECTORS), np.array(list(VECTORS.values()), np.int8), OF_KINDS)
    seal(folder, {"products": 100})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = written_with_meanings(tmp_path / "shop")
    use_shop(ShopFolder.load(path).lexicon)
    yield path
    use_shop(None)


def named(kinds: Kinds, need: str, *told: Any) -> list[str]:
    return [kind.name for kind in kinds.of([Thing(need, (), need, *told)], 3)]


def test_a_need_leads_to_what_is_close_in_meaning(folder: Path) -> None:
    kinds = Kinds(read_files(folder))

    assert named(kinds, "trudge through the puddles") == ["Rain Boots"]
    assert named(kinds, "sleep outside") == ["Tents"]
    assert named(kinds, "my") == []  # as close to one as to another
    assert named(kinds, "quantum entanglement") == []


def write_without_rain_boots(folder: Path, general: NDArray[np.int8] | None) -> Kinds:
    far = np.array([[1, 0, 0], [0.9, 0.3, 0.3], [0, 0, 1], [0, 0, -1]], np.float32)  # the second is the nearest of them
    write_meanings(folder, list(VECTORS), np.array(list(VECTORS.values()), np.int8), far, general)
    return Kinds(read_files(folder))


def test_a_need_that_nothing_in_the_shop_meets_leads_nowhere(folder: Path) -> None:
    without, with_general = write_without_rain_boots(folder, None), write_without_rain_boots(folder, GENERAL)

    assert named(without, "puddle mud", True) == ["Rain Boots"]  # the closest there is
    assert named(with_general, "puddle mud", True) == []
    assert named(with_general, "sleep", True) == ["Tents"]
    assert named(with_general, "puddle mud", True, (0.0, 0.0, 9.0)) == ["Tents"]  # where the model points elsewhere
    assert named(with_general, "sleep", True, (0.0, 9.0, 0.0)) == []


def test_how_near_a_shop_comes_is_the_same_however_many_categories_it_has(folder: Path) -> None:
    write_without_rain_boots(folder, GENERAL)
    few = np.load(folder / NEARNESS_FILE)
    many = np.tile(np.array([[0.9, 0.3, 0.3], [0, 0, 1]], np.float32), (5000, 1))
    vectors = np.array(list(VECTORS.values()), np.int8)
    write_meanings(folder, list(VECTORS), vectors, many, GENERAL)
    assert np.load(folder / NEARNESS_FILE) == pytest.approx(few)
    assert few == pytest.approx([0.3, 1.0])


def by_model(text: str, meaning: QuestionMeaning | None) -> Plan:
    question = Question.parse(text)
    need = FacetSpan("need", 0, len(question.words) - 1)
    return plan_from_draft(PlanDraft("keyword", "find_product", marks=[need]), question, shipped_vocabulary(), meaning)


def kinds_of(plan: Plan) -> list[str]:
    return [kind.name for kind in plan.kinds]


@pytest.mark.usefixtures("folder")
def test_a_need_names_kinds_and_a_thing_that_the_shop_lacks_names_none() -> None:
    assert kinds_of(by_model("keep me dry in the mud", None)) == ["Rain Boots"]
    thing = PlanDraft("keyword", "find_product", spans=[FacetSpan("type", 0, 1)])
    assert kinds_of(plan_from_draft(thing, Question.parse("baby stroller"), shipped_vocabulary())) == []


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

    write_meanings(folder, list(VECTORS), np.array(list(VECTORS.values()), np.int8), OF_KINDS, GENERAL)
    np.save(folder / GENERAL_FILE, np.zeros((3, 3), np.float16))
    seal(folder, {"products": 100})
    with pytest.raises(ShopFolderError, match=GENERAL_FILE):
        ShopFolder.load(folder)

    (folder / KINDS_FILE).unlink()
    with pytest.raises(ShopFolderError, match=KINDS_FILE):
        ShopFolder.load(folder)
