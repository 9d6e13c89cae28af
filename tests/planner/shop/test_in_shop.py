"""Questions planned with a shop folder: its brands, lines and values are what they are, and its words stay."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.planner.completion import plan_from_draft
from service.planner.plan import Plan
from service.planner.plan_text import FacetSpan, PlanDraft
from service.planner.question import Question
from service.planner.shop.folder import Lexicon, ShopFolder, ShopFolderError, seal, write_lexicon
from service.planner.spelling import correct, sounds, use_shop
from service.planner.vocabulary import shipped_vocabulary
from tests.faults.under_load import fake_server
from tests.processes import eventually
from tests.server_process import ServerProcess, serving

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


def test_a_damaged_folder_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shop")
    names = folder / "names.marisa"
    names.write_bytes(names.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(ShopFolderError, match=r"names\.marisa is missing or not what was sealed"):
        ShopFolder.load(folder)


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


NESTED = "[" * 100_000


@pytest.mark.parametrize("seal", ["{", "[]", "{}", '{"version": 1, "files": 7, "summary": {}}', NESTED])
def test_a_seal_that_is_none_is_refused_by_name(tmp_path: Path, seal: str) -> None:
    folder = write_folder(tmp_path / "shop")
    (folder / "shop.json").write_text(seal, encoding="utf-8")
    with pytest.raises(ShopFolderError, match=r"shop\.json is damaged"):
        ShopFolder.load(folder)
    with pytest.raises(ShopFolderError, match="no whole shop folder"):
        ShopFolder.load(tmp_path / "nowhere")


def test_a_file_that_the_seal_does_not_name_is_not_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shop")
    content = json.loads((folder / "shop.json").read_text(encoding="utf-8"))
    del content["files"]["names.marisa"]
    (folder / "shop.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ShopFolderError, match=r"names\.marisa is not sealed"):
        ShopFolder.load(folder)


def test_a_folder_that_is_replaced_in_place_kills_no_service(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shop", {f"zorvex{number}": "brand" for number in range(2000)})
    with fake_server(PEAKPLAN_SHOP_DIR=folder, PEAKPLAN_REPLICAS=1, FAKE_SECONDS=0) as server:

        def is_read(number: int) -> None:
            answer = server.post("/plan", {"query": f"zorvex{number} shoes", "deadline_ms": 2000}).json()
            assert answer["plan"]["facets"] == {"brand": [f"zorvex{number}"]}

        is_read(1)
        for path in folder.iterdir():
            os.truncate(path, 0)
        is_read(1999)
        assert server.control("/reload").status_code == 503
        _is_told(server, "shop.json is damaged")
        (folder / "shop.json").write_text(NESTED, encoding="utf-8")
        assert server.control("/reload").status_code == 503
        is_read(2)
        assert server.process.poll() is None


def _is_told(server: ServerProcess, words: str) -> None:
    eventually(lambda: any(words in line for line in server.lines), f"the log does not say {words!r}")
