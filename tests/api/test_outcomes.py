"""Outcomes are kept beside their plans, and a shopper's words only where the operator turned that on."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from service.api.outcome_log import MOST_OUTCOMES, OutcomeLog, OutcomeLogError
from service.api.request_ids import LATELY_SECONDS, RequestIds
from service.planner.plan import Plan
from service.planner.planner import Planned
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.settings.groups import AuthSettings, OutcomeSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine
from training.data.outcomes import convert

pytestmark = pytest.mark.anyio

SHOES = FakeEngine(text=" find Brand nike Type running shoes Sports")
WORDS = ("nike", "running", "shoes", "secret")
PRODUCT = {"id": "B07", "vertical": "sporting-goods", "facets": {"brand": ["Nike"]}}


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return what was kept, plans first, and of each the oldest files first."""
    files = [
        path
        for name in ("plans", "outcomes")
        for path in (*sorted(folder.glob(f"{name}-*.jsonl")), folder / f"{name}.jsonl")
    ]
    return [json.loads(line) for path in files if path.is_file() for line in path.read_text("utf-8").splitlines()]


def happened(log: OutcomeLog, request_id: str, **more: str) -> bool:
    return log.happened({"request_id": request_id, "outcome": "nothing", **more}, "")


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
        assert happened(log, str(number), filling="x" * 100)
        log.close()

    assert len(list(tmp_path.glob("outcomes-*.jsonl"))) == 2
    assert [line["request_id"] for line in lines(tmp_path)] == ["4", "5"]


def test_what_a_full_disk_does_not_take_is_counted_and_harms_nobody(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "folder", keeps_text=False, file_bytes=10_000, files=2)
    (tmp_path / "folder" / "outcomes.jsonl").unlink()
    (tmp_path / "folder" / "outcomes.jsonl").mkdir()  # as good as a full disk: it cannot be opened for writing
    happened(log, "a")
    log.close()

    assert log.dropped == 1


def test_text_that_is_no_unicode_ends_no_writer(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path, keeps_text=False, file_bytes=10_000, files=2)
    happened(log, "\ud800")
    happened(log, "b")
    log.close()

    assert [line["request_id"] for line in lines(tmp_path)] == ["?", "b"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutcomeLogError, match=r"PEAKPLAN_OUTCOMES_DIR=.*file"):
        OutcomeLog(tmp_path / "file", keeps_text=False, file_bytes=1, files=1)


def test_keeping_words_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="PEAKPLAN_OUTCOMES_DIR"):
        Settings(outcomes=OutcomeSettings(text=True))


TOKENS = {
    name: f"{name} {hashlib.sha256(name.encode()).hexdigest()}" for name in ("honest", "hostile")
}  # each caller's token is its name


async def test_nobody_decides_what_another_s_plan_is_learnt_as(tmp_path: Path) -> None:
    """Whoever saw or set a request id once decided what the plan was learnt as."""
    auth = AuthSettings(api_keys=SecretStr("\n".join(TOKENS.values())))
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path, text=True), auth=auth) as client:

        def post(path: str, who: str, body: dict[str, Any]) -> Any:
            headers = {"authorization": f"Bearer {who}", "x-request-id": "chosen"}
            return client.post(path, json=body, headers=headers)

        planned = (await post("/plan", "honest", {"query": "nike running shoes"})).json()
        named = {"request_id": planned["request_id"], "outcome": "purchase", "product": PRODUCT}
        poison = PRODUCT | {"vertical": "toys-games"}
        assert (await post("/outcomes", "hostile", named | {"product": poison})).status_code == 202
        assert (await post("/outcomes", "honest", named)).status_code == 202
        guessed = await post("/outcomes", "hostile", named | {"request_id": "chosen"})
        made_up = await post("/outcomes", "hostile", named | {"request_id": "0" * 32})
    for refused in (guessed, made_up):
        assert "of no plan that was served here lately" in assert_problem(refused, 404)["detail"]

    (row,) = convert(lines(tmp_path), shipped_vocabulary()).rows
    assert row["vertical"] == "sporting-goods"


async def test_a_plan_has_few_outcomes(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        planned = (await client.post("/plan", json={"query": "nike"})).json()
        report = {"request_id": planned["request_id"], "outcome": "click", "product": PRODUCT}
        answers = [await client.post("/outcomes", json=report) for _ in range(MOST_OUTCOMES + 1)]
    assert [answer.status_code for answer in answers] == [202] * MOST_OUTCOMES + [409]
    assert len(lines(tmp_path)) == 1 + MOST_OUTCOMES


def test_many_outcomes_rotate_no_plan_away(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path, keeps_text=False, file_bytes=1000, files=1)
    plan = Plan(mode="keyword", intent="find_product", sources=["catalog"], queries=["shoes"])
    log.served("honest", "", Question.parse("shoes"), Planned(plan=plan, source="model", model_id="m", strategy="x"))
    for number in range(500):
        happened(log, str(number), filling="x" * 100)
    log.close()
    assert lines(tmp_path)[0]["request_id"] == "honest"
    assert len(list(tmp_path.glob("outcomes-*.jsonl"))) == 1


def test_ids_are_known_again_for_a_day_by_whoever_has_the_key() -> None:
    now = 1_800_000_000.0
    ours, same_key, other = (RequestIds(key, lambda: now) for key in ("k", "k", "another"))
    made = ours.new()
    assert ours.is_of_late(made)
    assert same_key.is_of_late(made)
    assert not other.is_of_late(made)
    assert not RequestIds("", lambda: now).is_of_late(RequestIds("", lambda: now).new()), "each process has its own key"
    assert not ours.is_of_late(made[:-1] + ("0" if made[-1] != "0" else "1"))
    assert not any(ours.is_of_late(odd) for odd in ("", "x" * 32, made[:-2], made + "00"))
    now -= LATELY_SECONDS
    assert ours.is_of_late(made), "the clock may have been set back, or another host's be ahead"
    now -= 1
    assert not ours.is_of_late(made), "but not by more"
    now += 2 * LATELY_SECONDS + 1
    assert ours.is_of_late(made)
    now += 1
    assert not ours.is_of_late(made)
    assert len({ours.new() for _ in range(1000)}) == 1000


def test_an_id_tells_which_cell_made_the_plan_and_those_of_the_release_before_are_known() -> None:
    ours, reporting, other = RequestIds("k", cell="cell-200"), RequestIds("k", cell="cell-3"), RequestIds("x")
    assert (reporting.planned_in(ours.new()), other.planned_in(ours.new())) == ("cell-200", "")
    for odd in ("", "blue", "cell-256"):
        assert reporting.planned_in(RequestIds("k", cell=odd).new()) == ""
    body = int(time.time()).to_bytes(4, "big") + bytes(6)
    seal = hashlib.blake2b(body, key=hashlib.blake2b(b"k").digest(), digest_size=6).digest()
    before = (body + seal).hex()
    assert (ours.is_of_late(before), ours.planned_in(before)) == (True, "")


async def test_a_product_in_other_terms_than_the_vocabulary_is_refused_by_name(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        planned = (await client.post("/plan", json={"query": "nike running shoes"})).json()
        product = {"id": "B07", "vertical": "sporting", "facets": {"brands": ["Nike"], "type": ["shoes"]}}
        report = {"request_id": planned["request_id"], "outcome": "click", "product": product}
        problem = assert_problem(await client.post("/outcomes", json=report), 409)
    assert [error["field"] for error in problem["errors"]] == ["product.vertical", "product.facets.brands"]
    assert "'brands' is no facet of GET /vocabulary, but 'brand' is." in problem["detail"]
    assert not [line for line in lines(tmp_path) if line["record"] == "outcome"]
