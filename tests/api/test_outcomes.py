"""Outcomes are kept beside their plans, and a shopper's words only where the operator turned that on."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.api.outcome_log import FILE_NAME, OutcomeLog, OutcomeLogError
from service.settings import Settings
from service.settings_groups import OutcomeSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine

pytestmark = pytest.mark.anyio

SHOES = FakeEngine(text=" find Brand nike Type running shoes Sports")
WORDS = ("nike", "running", "shoes", "secret")
PRODUCT = {"id": "B07", "vertical": "sporting-goods", "facets": {"brand": ["Nike"]}}


def lines(folder: Path) -> list[dict[str, Any]]:
    files = [*sorted(folder.glob("outcomes-*.jsonl")), folder / FILE_NAME]
    return [json.loads(line) for path in files if path.is_file() for line in path.read_text("utf-8").splitlines()]


async def plan_and_report(folder: Path, **outcomes: Any) -> list[dict[str, Any]]:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=folder, **outcomes)) as client:
        body = {"query": "nike running shoes", "history": ["a secret gift"]}
        planned = (await client.post("/plan", json=body)).json()
        report = {"request_id": planned["request_id"], "outcome": "click", "product": PRODUCT}
        response = await client.post("/outcomes", json=report)
        assert (response.status_code, response.json()) == (202, {"status": "kept"})
    return lines(folder)


async def test_a_plan_and_its_outcome_are_kept_without_words_by_default(tmp_path: Path) -> None:
    plan, outcome = await plan_and_report(tmp_path)

    assert (plan["record"], outcome["record"]) == ("plan", "outcome")
    assert plan["request_id"] == outcome["request_id"]
    assert (plan["intent"], plan["vertical"], plan["facets"]) == ("find_product", "sporting-goods", ["brand", "type"])
    assert not any(word in json.dumps(plan) for word in WORDS), "a shopper's words were kept"
    assert outcome["product"] == PRODUCT


async def test_words_are_kept_where_the_operator_turned_that_on(tmp_path: Path) -> None:
    plan, _ = await plan_and_report(tmp_path, text=True)

    assert (plan["question"], plan["history"]) == ("nike running shoes", ["a secret gift"])
    assert plan["facets"] == {"brand": ["nike"], "type": ["running shoes"]}


async def test_without_a_folder_nothing_is_kept_and_the_answer_says_how_to(tmp_path: Path) -> None:
    async with talking_to(SHOES) as client:
        await client.post("/plan", json={"query": "nike"})
        response = await client.post("/outcomes", json={"request_id": "a", "outcome": "nothing"})
    assert "PEAKPLAN_OUTCOMES_DIR" in assert_problem(response, 404)["detail"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"outcome": "stare"}, "outcome"),
        ({"request_id": "a b"}, "request_id"),
        ({"product": None}, "body"),
        ({"product": {"vertical": "x"}}, "product.id"),
        ({"words": "nike"}, "words"),
    ],
)
async def test_a_bad_outcome_names_its_field(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        body = {"request_id": "a", "outcome": "click", "product": PRODUCT} | change
        problem = assert_problem(await client.post("/outcomes", json=body), 422)
    assert [error["field"] for error in problem["errors"]] == [field]
    assert lines(tmp_path) == []


def test_full_files_are_set_aside_and_the_oldest_go(tmp_path: Path) -> None:
    for number in range(6):
        log = OutcomeLog(tmp_path, keeps_text=False, file_bytes=100, files=2)
        assert log.happened({"request_id": str(number), "outcome": "nothing", "filling": "x" * 100})
        log.close()

    assert len(list(tmp_path.glob("outcomes-*.jsonl"))) == 2
    assert [line["request_id"] for line in lines(tmp_path)] == ["4", "5"]


def test_what_a_full_disk_does_not_take_is_counted_and_harms_nobody(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "folder", keeps_text=False, file_bytes=10_000, files=2)
    (tmp_path / "folder" / FILE_NAME).unlink()
    (tmp_path / "folder" / FILE_NAME).mkdir()  # as good as a full disk: it cannot be opened for writing
    log.happened({"request_id": "a", "outcome": "nothing"})
    log.close()

    assert log.dropped == 1


def test_text_that_is_no_unicode_ends_no_writer(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path, keeps_text=False, file_bytes=10_000, files=2)
    log.happened({"request_id": "\ud800"})
    log.happened({"request_id": "b"})
    log.close()

    assert [line["request_id"] for line in lines(tmp_path)] == ["?", "b"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutcomeLogError, match=r"PEAKPLAN_OUTCOMES_DIR=.*file"):
        OutcomeLog(tmp_path / "file", keeps_text=False, file_bytes=1, files=1)


def test_keeping_words_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="PEAKPLAN_OUTCOMES_DIR"):
        Settings(outcomes=OutcomeSettings(text=True))
