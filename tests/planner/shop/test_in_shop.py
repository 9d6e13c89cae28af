"""Questions planned with a shop folder: its brands, lines and values are what they are, and its words stay."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.planner.completion import plan_from_draft
from service.planner.fallback.making.plans import plan_by_rule
from service.planner.fallback.reading import readers
from service.planner.fallback.reading.conversation import Conversation
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.shop.folder import ShopFolder, ShopFolderError, seal
from service.planner.shop.lexicon import Lexicon, write_lexicon
from service.planner.spelling import correct, sounds
from service.planner.vocabulary import shipped_vocabulary
from tests.processes import eventually
from tests.server_process import serving

NAMES = {
    "google": "brand", "vans": "brand", "thanks": "brand", "muga": "brand", "cune": "brand", "ninja": "brand",
    "quorlin": "brand",
    "old skool": "line", "rioja": "origin", "mug": "type", "cork boots": "material",
}  # fmt: skip


def write_folder(folder: Path, names: dict[str, str] = NAMES) -> Path:
    folder.mkdir()
    entries: list[dict[str, Any]] = [
        {"facet": facet, "sure": True, "count": 40, "spellings": [name]} for name, facet in names.items()
    ]
    entries.append({"facet": "brand", "sure": False, "count": 9, "spellings": ["orange"]})
    words = {word: 40 for name in names for word in name.split()}
    write_lexicon(folder, entries, words, sounds(words))
    seal(folder, {"products": 100})
    return folder


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Lexicon]:
    lexicon = ShopFolder.load(write_folder(tmp_path / "shop")).lexicon
    readers.use_shop(lexicon)
    yield lexicon
    readers.use_shop(None)


def by_rule(query: str) -> Plan:
    return plan_by_rule(Conversation(Question.parse(query)), shipped_vocabulary())


def by_model(query: str, intent: str, *spans: FacetSpan) -> Plan:
    draft = PlanDraft("keyword", intent, spans=list(spans))
    return plan_from_draft(draft, Question.parse(query), shipped_vocabulary())


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("brand", ["google", "vans", "thanks"])
@pytest.mark.parametrize("intent", ["small_talk", "out_of_scope"])
def test_one_word_that_is_a_brand_is_searched(brand: str, intent: str) -> None:
    for plan in (by_rule(brand), by_model(brand, intent)):
        assert (plan.intent, plan.queries) == ("find_product", [brand])
    assert by_rule(brand).facets == {"brand": [brand]}


def test_without_the_shop_it_is_what_it_was() -> None:
    assert by_rule("thanks").intent == "small_talk"
    assert correct("muga crianza").startswith("mug ")
    assert correct("quorlim") == "quorlim"


@pytest.mark.usefixtures("shop")
def test_words_of_the_shop_stay_and_typos_become_them() -> None:
    assert correct("muga cune") == "muga cune"
    assert by_rule("muga red wine").queries[0] == "muga red wine"
    assert not any("mug " in query for query in by_rule("muga red wine").queries)
    assert correct("goggle") != "google"  # a word of its own
    assert correct("googel") == "google"
    assert correct("niinja") == "ninja"
    assert correct("quorlim") == "quorlin"  # which no list has


@pytest.mark.usefixtures("shop")
def test_names_of_several_words_are_one_value() -> None:
    plan = by_rule("vans old skool black")
    assert plan.facets["brand"] == ["vans"]
    assert plan.facets["line"] == ["old skool"]
    assert by_rule("sneakers not old skool").exclude == {"line": ["old skool"]}
    assert by_rule("red wine, no rioja").exclude == {"origin": ["rioja"]}


@pytest.mark.usefixtures("shop")
def test_what_a_model_takes_a_name_for_is_put_right() -> None:
    plan = by_model("vans sneakers", "find_product", FacetSpan("type", 0, 0), FacetSpan("type", 1, 1))
    assert plan.facets == {"brand": ["vans"], "type": ["sneakers"]}


@pytest.mark.usefixtures("shop")
def test_an_unsure_name_is_read_as_ever() -> None:
    assert by_rule("orange dress").facets.get("brand") is None


def test_a_damaged_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shop")
    names = folder / "names.marisa"
    names.write_bytes(names.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(ShopFolderError, match=r"names\.marisa is missing or not what was sealed"):
        ShopFolder.load(folder)
    (folder / "shop.json").write_text("{", encoding="utf-8")
    with pytest.raises(ShopFolderError, match=r"shop\.json is damaged"):
        ShopFolder.load(folder)
    with pytest.raises(ShopFolderError, match="no whole shop folder"):
        ShopFolder.load(tmp_path / "nowhere")


def test_the_service_reads_it_reloads_it_and_refuses_a_damaged_one(tmp_path: Path, tiny_model_dir: Path) -> None:
    folder = write_folder(tmp_path / "shop", {"zorvex": "brand"})
    with serving(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1, PEAKPLAN_SHOP_DIR=folder) as server:

        def plan(query: str) -> dict[str, Any]:
            body = server.post("/plan", {"query": query, "deadline_ms": 2000}).json()
            return dict(body["plan"])

        assert plan("zorvex")["queries"] == ["zorvex"]
        assert "zorvex" in plan("zorveks")["queries"]
        damaged = tmp_path / "shop" / "words.marisa"
        whole = damaged.read_bytes()
        damaged.unlink()
        answer = server.control("/reload")
        assert answer.status_code == 503
        eventually(lambda: any("words.marisa" in line for line in server.lines), "the log does not name the file")
        assert "zorvex" in plan("zorvexx")["queries"]  # what was read stays
        damaged.write_bytes(whole)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        write_folder(folder, {"tandry": "brand"})
        assert server.control("/reload").status_code == 200
        assert "tandry" in plan("tandryy")["queries"]
        assert "zorvex" not in plan("zorveks")["queries"]


def test_the_service_does_not_start_with_a_damaged_one(tmp_path: Path, tiny_model_dir: Path) -> None:
    from tests.server_process import ServerProcess

    folder = write_folder(tmp_path / "shop")
    (folder / "sounds.marisa").write_bytes(b"")
    server = ServerProcess(PEAKPLAN_MODEL_DIR=tiny_model_dir, PEAKPLAN_REPLICAS=1, PEAKPLAN_SHOP_DIR=folder)
    assert server.wait() == 1
    assert "sounds.marisa" in json.loads(server.lines[-1])["reason"]
