"""Shop folders as arms of one process: a real server with two and none, asked at once, reloaded, refused by name."""

import asyncio
import gc
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import httpx
import pytest
from peakplan_client import assigned

from peakplan.value.reading import sums
from peakplan.value.report import report
from service.planner.shop import current
from service.planner.shop.folder import Lexicon, ShopFolder
from service.planner.spelling import correct_word, use_shop
from service.settings.groups import ExperimentSettings
from tests.faults.under_load import fake_server
from tests.processes import eventually
from tests.readers import write_folder
from tests.server_process import ServerProcess

SHARES = dict.fromkeys(("control", "newer", "without"), 1)
WHO = {arm: [f"b{n}" for n in range(99) if assigned("autumn", SHARES, f"b{n}") == arm][:8] for arm in SHARES}
QUESTION = "mugaa zorveks"
ADDED = {"control": "muga zorveks", "newer": "mug zorvex", "without": "mug zorveks"}  # a mug is a thing in any shop


def test_each_arm_is_read_in_its_folder_and_each_folder_is_reloaded_and_refused_by_name(tmp_path: Path) -> None:
    usual, newer = write_folder(tmp_path / "usual", {"muga": "brand"}), tmp_path / "newer"
    settings = {
        "PEAKPLAN_REPLICAS": 1, "FAKE_SECONDS": 0, "FAKE_ANSWER": "fixed", "PEAKPLAN_OUTCOMES_DIR": tmp_path / "kept",
        "PEAKPLAN_EXPERIMENT_NAME": "autumn", "PEAKPLAN_EXPERIMENT_ARMS": ",".join(f"{arm}=1" for arm in SHARES),
        "PEAKPLAN_SHOP_DIR": usual, "PEAKPLAN_BACKLOG_MS": 2000,
        "PEAKPLAN_EXPERIMENT_SHOPS": f"newer={write_folder(newer, {'zorvex': 'brand'})},without=none",
    }  # fmt: skip
    digests = {"control": ShopFolder.load(usual).digest, "newer": ShopFolder.load(newer).digest, "without": None}
    with fake_server(**settings) as server:
        answers = asyncio.run(_at_once(server))
        for arm, found in answers.items():
            for answer in found:
                assert answer["plan"]["queries"] == [QUESTION, ADDED[arm]], arm
            sources = [answer["source"] for answer in found]
            assert sources.count("model") == 1, "one of each arm asks the model, whatever other arms have asked"
            assert sources.count("cache") == len(sources) - 1
        _is_reloaded_and_refused(server, newer)
    kept = [json.loads(line) for line in (tmp_path / "kept" / "plans.jsonl").read_text("utf-8").splitlines()]
    first = {answer["request_id"]: digests[arm] for arm, found in answers.items() for answer in found}
    assert {line["request_id"]: line.get("shop") for line in kept if line["request_id"] in first} == first
    told = [json.loads(line) for line in server.lines if '"megabytes"' in line]
    assert [each["version"] for each in told[:2]] == [digests["control"], digests["newer"]]
    assert all(each["megabytes"] >= 0 for each in told)
    (made,) = report(sums([tmp_path / "kept" / "plans.jsonl"]))["experiments"] or [None]
    assert {maker["shop"] for maker in made["made_by"]["newer"]["makers"]} >= {digests["newer"]}


async def _at_once(server: ServerProcess) -> dict[str, list[dict[str, Any]]]:
    """Ask for every shopper at the same time, arms in turn, so that requests of all arms are open at once."""
    async with httpx.AsyncClient(timeout=60) as client:

        async def ask(shopper: str) -> dict[str, Any]:
            body = {"query": QUESTION, "deadline_ms": 2000}
            answer = await client.post(f"{server.url}/plan", json=body, headers={"x-experiment-unit": shopper})
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        order = [(arm, who) for each in zip(*WHO.values(), strict=True) for arm, who in zip(WHO, each, strict=True)]
        made = await asyncio.gather(*(ask(who) for _, who in order))
    return {arm: [answer for (of, _), answer in zip(order, made, strict=True) if of == arm] for arm in WHO}


def _is_reloaded_and_refused(server: ServerProcess, newer: Path) -> None:
    def queries(arm: str, query: str) -> list[str]:
        answer = httpx.post(f"{server.url}/plan", json={"query": query, "deadline_ms": 2000}, timeout=60,
                            headers={"x-experiment-unit": WHO[arm][0]})  # fmt: skip
        return list(answer.json()["plan"]["queries"])

    shutil.move(newer / "words.marisa", newer.parent / "words.marisa")
    assert server.control("/reload").status_code == 503
    eventually(
        lambda: any("PEAKPLAN_EXPERIMENT_SHOPS, arm newer" in line and "words.marisa" in line for line in server.lines),
        "the log does not name the arm and its file",
    )
    assert "zorvex" in queries("newer", "zorvexx"), "what was read stays"
    shutil.rmtree(newer)
    write_folder(newer, {"tandry": "brand"})
    assert server.control("/reload").status_code == 200
    assert "tandry" in queries("newer", "tandryy")
    assert "zorvex" not in queries("newer", "zorveks")
    assert "tandry" not in queries("control", "tandryy")
    assert "muga" in queries("control", "mugaa")


def test_a_request_that_outlasts_a_reload_keeps_its_shop_and_nothing_keeps_the_shop_afterwards(tmp_path: Path) -> None:
    usual, old, new = (
        _lexicon(tmp_path / name, {name: "brand"}) for name in ("mugatto", "zorvexis", "tandrylo")
    )  # each is a word of one shop
    forgotten = weakref.ref(old)
    try:
        use_shop(usual, [old, None])
        assert correct_word("zorvexiss") == "zorvexiss"
        with current.reading(old):
            assert correct_word("zorvexiss") == "zorvexis"
            use_shop(usual, [new, None])
            assert correct_word("zorvexiss") == "zorvexis", "the request is still of the shop with which it began"
            assert correct_word("tandryloo") == "tandryloo"
        with current.reading(new):
            assert correct_word("tandryloo") == "tandrylo"
            assert correct_word("zorvexiss") == "zorvexiss"
        with current.reading(None):
            assert correct_word("mugattoo") == "mugattoo"
        assert correct_word("mugattoo") == "mugatto"
        del old
        gc.collect()
        assert forgotten() is None, "a shop from before the reload is still in memory"
    finally:
        use_shop(None)


def _lexicon(folder: Path, names: dict[str, str]) -> Lexicon:
    return ShopFolder.load(write_folder(folder, names)).lexicon


@pytest.mark.parametrize("shops", ["newer", "newer=", "other=shops/other", "newer=a,newer=b"])
def test_folders_of_no_arm_are_refused(shops: str) -> None:
    with pytest.raises(ValueError, match="PEAKPLAN_EXPERIMENT_SHOPS"):
        ExperimentSettings(name="autumn", arms="control=1,newer=1", shops=shops)


def test_a_host_reads_only_the_folders_of_the_arms_that_it_serves() -> None:
    settings = ExperimentSettings(
        name="autumn", arms="control=1,newer=1,without=1", serves="control,without", shops="newer=a,without=none"
    )
    assert settings.shop_dirs == {"without": None}
