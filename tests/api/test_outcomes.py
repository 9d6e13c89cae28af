"""Outcomes are kept beside their plans, and a shopper's words only where the operator turned that on."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.outcome_log import MOST_OUTCOMES, OutcomeLog, OutcomeLogError
from service.api.request_ids import LATELY_SECONDS, RequestIds
from service.events.keeper import MOST_OF_A_PLAN
from service.events.model import MOST_EVENTS
from service.planner.plan import Plan
from service.planner.planner import Planned
from service.planner.question import Question
from service.planner.vocabulary import shipped_vocabulary
from service.settings import Settings
from service.settings.groups import OutcomeSettings
from tests.api.client import assert_problem, bearer, callers, talking_to
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
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path, text=True)) as client:
        await client.post("/outcomes", json=click(await planned(client), user_query="nike"))
    (event,) = kept(tmp_path)
    assert (event["user_query"], event["event_attributes"]["object"]["name"]) == ("nike", "secret words")


async def test_without_a_folder_nothing_is_kept_and_the_answer_says_how_to(tmp_path: Path) -> None:
    async with talking_to(SHOES) as client:
        await client.post("/plan", json={"query": "nike"})
        response = await client.post("/outcomes", json={"request_id": "a", "outcome": "nothing"})
    assert "PEAKPLAN_OUTCOMES_DIR" in assert_problem(response, 404)["detail"]
    assert not list(tmp_path.iterdir())


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


async def test_nobody_decides_what_another_s_plan_is_learnt_as(tmp_path: Path) -> None:
    """A caller that saw or set a request id could once decide what the plan was learnt as."""
    both = callers("honest", "hostile")
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path, text=True), auth=both) as client:

        def post(path: str, who: str, body: dict[str, Any]) -> Any:
            return client.post(path, json=body, headers={**bearer(who), "x-request-id": "chosen"})

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


SHOPPER = "5e3b2a1c-8b7d-4f2e-a3d4-c9b2e1f3a4b5"


def kept(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]


async def planned(client: httpx.AsyncClient) -> str:
    answer = (await client.post("/plan", json={"query": "nike running shoes"})).json()
    return str(answer["request_id"])


def click(query_id: str, **more: Any) -> dict[str, Any]:
    given = {"object": {"object_id": "B07", "name": "secret words"}, "position": {"ordinal": 2}}
    return {"action_name": "click", "query_id": query_id, "client_id": SHOPPER, "event_attributes": given, **more}


async def test_an_event_as_a_shop_with_ubi_has_it_is_kept_without_words_and_without_the_shopper(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        ubi = {
            "application": "amazon-shop", "action_name": "click", "query_id": await planned(client),
            "session_id": "84266fdbd31d4c2c6d0665f7e8380fa3", "client_id": SHOPPER, "user_id": None,
            "timestamp": "2026-11-23T20:20:39.123Z", "message_type": "INTEREST", "message": "clicked secret words",
            "user_query": "nike secret shoes",
            "event_attributes": {
                "object": {
                    "object_id": 123, "object_id_field": "sku", "name": "secret", "object_detail": {"a": [1]},
                    "title": "secret", "price": 5, "search_config": "baseline",  # as UBI's own collector has it
                },
                "position": {"ordinal": 3.0, "xy": {"x": 10, "y": 20.5}},
            },
        }  # fmt: skip
        response = await client.post("/outcomes", json=ubi)
    assert (response.status_code, response.json()) == (202, {"status": "kept", "kept": 1, "repeated": 0, "refused": []})
    (line,) = kept(tmp_path)
    text = json.dumps(line)
    assert not any(word in text for word in ("secret", SHOPPER, "84266fdb", "object_detail"))
    assert (line["action_name"], line["query_id"], line["timestamp"]) == ("click", ubi["query_id"], ubi["timestamp"])
    assert line["event_attributes"]["object"] == {"object_id": 123, "object_id_field": "sku"}
    assert line["event_attributes"]["position"]["ordinal"] == 3
    assert len(line["client_id"]) == len(line["session_id"]) == 24


async def test_an_event_is_kept_once_however_often_it_is_sent(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        query_id = await planned(client)
        named = click(query_id, event_id="a") | {"action_name": "purchase"}
        first = (await client.post("/outcomes", json=[click(query_id), named, named])).json()
        again = (await client.post("/outcomes", json=[named, click(query_id), click(query_id, event_id="b")])).json()
    assert (first["kept"], first["repeated"], again["kept"], again["repeated"]) == (2, 1, 1, 2)
    assert len({line["event_id"] for line in kept(tmp_path)}) == len(kept(tmp_path)) == 3


async def test_a_stranger_who_guesses_event_ids_suppresses_no_purchase(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        strangers, honest = await planned(client), await planned(client)
        guessed = [click(strangers, event_id=f"order-{number}") | {"action_name": "purchase"} for number in range(64)]
        assert (await client.post("/outcomes", json=guessed)).json()["kept"] == 64
        bought = click(honest, event_id="order-7") | {"action_name": "purchase"}
        assert (await client.post("/outcomes", json=bought)).json()["kept"] == 1
    (line,) = [line for line in kept(tmp_path) if line["query_id"] == honest]
    assert line["event_id"] == "order-7"


async def test_an_event_id_with_other_contents_is_told_and_not_taken_for_a_repetition(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        query_id = await planned(client)
        first, other = (click(query_id, event_id="a", timestamp=f"2026-11-23T15:00:0{second}Z") for second in range(2))
        listed = (await client.post("/outcomes", json=[first, other, first])).json()
        alone = assert_problem(await client.post("/outcomes", json=other), 409)
    assert (listed["kept"], listed["repeated"]) == (1, 1)
    assert [refused["field"] for refused in listed["refused"]] == ["[1].event_id"]
    assert "another event" in alone["detail"]


OUTCOME = {"request_id": "a", "outcome": "click", "product": PRODUCT}


@pytest.mark.parametrize(
    ("report", "change", "field"),
    [
        (OUTCOME, {"outcome": "stare"}, "outcome"),
        (OUTCOME, {"request_id": "a b"}, "request_id"),
        (OUTCOME, {"product": None}, "body"),
        (OUTCOME, {"product": {"vertical": "x"}}, "product.id"),
        (OUTCOME, {"words": "nike"}, "words"),
        (click("a"), {"action_name": "stare"}, "action_name"),
        (click("a"), {"queryid": "x"}, "queryid"),
        (click("a"), {"timestamp": "yesterday"}, "timestamp"),
        (click("a"), {"event_attributes": {"ordinal": 3}}, "event_attributes.ordinal"),
        (click("a"), {"event_attributes": {"value": -1}}, "event_attributes.value"),
        (click("a"), {"event_attributes": {"currency": "euro"}}, "event_attributes.currency"),
    ],
)
async def test_a_wrong_field_is_refused_by_its_name(
    tmp_path: Path, report: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        alone = assert_problem(await client.post("/outcomes", json=report | change), 422)
        assert [error["field"] for error in alone["errors"]] == [field]
        if report != OUTCOME:
            good = report | {"query_id": await planned(client)}
            listed = assert_problem(await client.post("/outcomes", json=[good, good | change]), 422)
            assert [error["field"] for error in listed["errors"]] == [f"[1].{field}"]
    assert [line for line in lines(tmp_path) if line["record"] != "plan"] == kept(tmp_path) == []


async def test_what_cannot_be_joined_is_refused_and_the_rest_of_the_list_is_kept(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        query_id = await planned(client)
        events = [click("0" * 32), click(query_id), {"action_name": "first_shown", "query_id": query_id},
                  {"action_name": "exposure", "query_id": query_id}]  # fmt: skip
        answer = (await client.post("/outcomes", json=events)).json()
        assert_problem(await client.post("/outcomes", json=click("0" * 32)), 404)
        assert_problem(await client.post("/outcomes", json=events[2]), 409)
        many = assert_problem(await client.post("/outcomes", json=[click(query_id)] * (MOST_EVENTS + 1)), 422)
    assert [refused["field"] for refused in answer["refused"]] == [
        "[0].query_id", "[2].event_attributes.milliseconds", "[3].event_attributes.arm",
    ]  # fmt: skip
    assert answer["kept"] == len(kept(tmp_path)) == 1
    assert "64" in many["detail"]


async def test_a_plan_has_so_many_events_and_no_more(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        query_id = await planned(client)
        for start in range(0, MOST_OF_A_PLAN, 32):
            events = [click(query_id, event_id=str(start + number)) for number in range(32)]
            assert (await client.post("/outcomes", json=events)).json()["kept"] == 32
        assert_problem(await client.post("/outcomes", json=click(query_id, event_id="one more")), 409)
        known = await client.post("/outcomes", json=click(query_id, event_id="0"))
    assert known.json()["repeated"] == 1
    assert len(kept(tmp_path)) == MOST_OF_A_PLAN


async def test_a_full_disk_spills_and_where_nothing_takes_events_their_sender_keeps_them(tmp_path: Path) -> None:
    first, spill = tmp_path / "first", tmp_path / "spill"
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=first, spill_dir=spill)) as client:
        query_id = await planned(client)
        (first / "events.jsonl").unlink()
        (first / "events.jsonl").mkdir()  # as good as a full disk: it cannot be opened for writing
        assert (await client.post("/outcomes", json=click(query_id))).status_code == 202
        (spill / "events.jsonl").rename(spill / "before")
        (spill / "events.jsonl").mkdir()
        late = click(query_id, event_id="late")
        assert "send the same ones again" in assert_problem(await client.post("/outcomes", json=late), 503)["detail"]
        (first / "events.jsonl").rmdir()
        again = await client.post("/outcomes", json=late)
        metrics = (await client.get("/metrics")).text
    assert (again.json()["kept"], again.json()["repeated"]) == (1, 0)
    assert len((spill / "before").read_text().splitlines()) == len(kept(first)) == 1
    assert "peakplan_events_refused_total 1.0" in metrics
    assert "peakplan_events_spilled_total 1.0" in metrics


async def test_what_shoppers_do_is_counted_once_a_plan_under_the_cell_that_made_it(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path), cell="cell-7") as client:
        query_id = await planned(client)
        shown = {"milliseconds": 250, "results": 0}
        events = [click(query_id, event_id="1"), click(query_id, event_id="2"),
                  {"action_name": "first_shown", "query_id": query_id, "event_attributes": shown}]  # fmt: skip
        assert (await client.post("/outcomes", json=events)).json()["kept"] == 3
        metrics = (await client.get("/metrics")).text
    assert 'peakplan_answers_clicked_total{plannedin="cell-7"} 1.0' in metrics
    assert 'peakplan_answers_shown_total{plannedin="cell-7"} 1.0' in metrics
    assert 'peakplan_answers_empty_total{plannedin="cell-7"} 1.0' in metrics
    assert "peakplan_first_answer_time_seconds_sum 0.25" in metrics
    assert "peakplan_events_kept_total 3.0" in metrics


OWN_ACTIONS = "page_exit, buy_now=purchase"


def ubi_page_exit(query_id: str) -> dict[str, Any]:
    """Return an event as the plugin's README has one: no object that anybody could look up, and names of its own."""
    return {
        "action_name": "page_exit", "user_id": SHOPPER, "query_id": query_id, "page_id": "/docs/latest/",
        "session_id": "c3d22be7", "timestamp": "2024-05-16T12:34:56.789Z", "message_type": "INFO",
        "message": "On a secret page for 3.35 seconds",
        "event_attributes": {"position": {}, "object": {"idleTimeoutMs": 5000, "currentPageName": "secret"}},
    }  # fmt: skip


async def test_actions_of_the_shop_s_own_that_the_operator_named_are_kept_too(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path, actions=OWN_ACTIONS)) as client:
        query_id = await planned(client)
        bought = click(query_id, action_name="buy_now")
        bought["event_attributes"] |= {"value": 5.0, "currency": "EUR", "rank_feature": 3}
        alone = await client.post("/outcomes", json=ubi_page_exit(query_id))
        listed = await client.post("/outcomes", json=[bought, click(query_id)])
        refused = assert_problem(
            await client.post("/outcomes", json=[click(query_id), bought | {"action_name": "bye"}]), 422
        )
    assert (alone.json()["kept"], listed.json()["kept"]) == (1, 2)
    assert [error["field"] for error in refused["errors"]] == ["[1].action_name"]
    assert "PEAKPLAN_OUTCOMES_ACTIONS" in refused["errors"][0]["detail"]
    left, paid, _ = kept(tmp_path)
    assert (left["action_name"], left["event_attributes"]) == ("page_exit", {"position": {}})
    assert (paid["action_name"], paid["event_attributes"]["value"]) == ("purchase", 5.0)
    assert "secret" not in json.dumps(kept(tmp_path)) + json.dumps(left)


@pytest.mark.parametrize(
    ("actions", "said"), [("a b", "visible ASCII"), ("buy=BUY!", "visible ASCII"), ("buy=stare", "stare")]
)
async def test_actions_that_cannot_be_are_refused_at_the_start(tmp_path: Path, actions: str, said: str) -> None:
    with pytest.raises((ValueError, OutcomeLogError), match=said):
        async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path, actions=actions)):
            pass


async def test_an_event_that_is_kept_is_no_line_of_the_log_and_one_that_is_refused_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "service.api")
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        query_id = await planned(client)
        for event, status in ((click(query_id), 202), ([click(query_id)], 202), (click("0" * 32), 404)):
            assert (await client.post("/outcomes", json=event)).status_code == status
    logged = [(record.getMessage(), record.__dict__["status"]) for record in caplog.records if "status" in vars(record)]
    assert logged == [("POST /plan", 200), ("POST /outcomes", 404)]


@pytest.mark.parametrize("wrong", [None, "buy_later"])
async def test_actions_of_the_shop_s_own_have_the_fast_lane_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str | None
) -> None:
    async def slow(*_: object) -> None:
        raise AssertionError("the framework was asked")

    monkeypatch.setattr("service.api.app.Api.__call__", slow)
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path, actions="buy_now=purchase")) as client:
        event = click(await planned(client)) | {"action_name": wrong or "buy_now"}
        answer = await client.post("/outcomes", json=event)
    if wrong:
        assert "'buy_later' is no action" in assert_problem(answer, 422)["detail"]
    else:
        assert kept(tmp_path)[0]["action_name"] == "purchase"
