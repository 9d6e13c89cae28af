"""Events after a plan: UBI's names, kept once each, few of a plan, without who the shopper is or what they wrote."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api.outcome_log import OutcomeLogError
from service.events.keeper import MOST_OF_A_PLAN
from service.events.model import MOST_EVENTS
from service.settings.groups import OutcomeSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine

pytestmark = pytest.mark.anyio

SHOES = FakeEngine(text=" find Brand nike Type running shoes Sports")
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
                "object": {"object_id": 123, "object_id_field": "sku", "name": "secret", "object_detail": {"a": [1]}},
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


async def test_words_are_kept_where_the_operator_turned_that_on(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path, text=True)) as client:
        await client.post("/outcomes", json=click(await planned(client), user_query="nike"))
    assert (kept(tmp_path)[0]["user_query"], kept(tmp_path)[0]["event_attributes"]["object"]["name"]) == (
        "nike", "secret words",
    )  # fmt: skip


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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"action_name": "stare"}, "action_name"),
        ({"queryid": "x"}, "queryid"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"event_attributes": {"ordinal": 3}}, "event_attributes.ordinal"),
        ({"event_attributes": {"value": -1}}, "event_attributes.value"),
        ({"event_attributes": {"currency": "euro"}}, "event_attributes.currency"),
    ],
)
async def test_a_wrong_name_is_refused_by_name(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        good = click(await planned(client))
        alone = assert_problem(await client.post("/outcomes", json=good | change), 422)
        listed = assert_problem(await client.post("/outcomes", json=[good, good | change]), 422)
    assert [error["field"] for error in alone["errors"]] == [field]
    assert [error["field"] for error in listed["errors"]] == [f"[1].{field}"]
    assert kept(tmp_path) == []


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


async def test_what_ubis_own_collector_says_of_a_product_is_accepted_and_not_kept(tmp_path: Path) -> None:
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        event = click(await planned(client), user_id="", message="", message_type="INFO")
        event["event_attributes"]["object"] |= {"title": "secret", "price": 5, "search_config": "baseline"}
        assert (await client.post("/outcomes", json=event)).json()["kept"] == 1
    assert kept(tmp_path)[0]["event_attributes"]["object"] == {"object_id": "B07"}


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
