"""Two searches in one list: what clicks say is told by the report, with an interval that holds at every look."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peakplan_client import interleave

from peakplan.value.exports import lines
from peakplan.value.interleaving import needed, preferred
from peakplan.value.page import page
from peakplan.value.reading import sums
from peakplan.value.report import report
from rehearsal.value import simulate_interleaving
from service.settings.groups import OutcomeSettings
from tests.api.client import assert_problem, talking_to
from tests.api.test_outcomes import SHOES
from tests.peakplan.value.test_report import event, plan, written


def click(name: str, shopper: str, team: str | None, place: int, *, again: str = "") -> dict[str, Any]:
    given = {"position": {"ordinal": place}, "experiment": "search"} | ({"team": team} if team else {})
    return event(name, "click", shopper, f"{name} {place}{again}", **given)


def told(folder: Path, events: list[dict[str, Any]], control: str = "words") -> dict[str, Any]:
    plans = [plan(name) for name in dict.fromkeys(each["query_id"] for each in events)]
    found = report(sums(written(folder, plans, events), control=control), control=control)
    assert "Interleaving search" in page(found)
    (one,) = found["interleavings"]
    (document,) = [json.loads(line) for line in lines(found) if "Team" in line]
    assert document["Team"] == one["preference"]["for"]
    assert document["Preference"] == pytest.approx(100 * one["preference"]["mean"], abs=1e-4)
    return dict(one)


def test_a_list_goes_to_the_team_with_more_clicks_and_each_shopper_counts_once(tmp_path: Path) -> None:
    events = [
        click("p1", "s1", "plan", 1), click("p1", "s1", "plan", 2), click("p1", "s1", "words", 3),
        click("p2", "s1", "words", 1), click("p2", "s1", "words", 1, again="!"), click("p2", "s1", "plan", 2),
        click("p3", "s2", "words", 1), click("p4", "s3", "plan", 1), click("p5", "s3", None, 1),
    ]  # fmt: skip
    found = told(tmp_path, events)
    assert found["teams"] == ["words", "plan"]
    assert found["lists"] == {"plan": 2, "words": 1, "neither": 1}, "a product that is clicked again is one product"
    assert found["shoppers"] == 3
    assert found["preference"] == {"for": "plan", "over": "words", "mean": pytest.approx((0.5 - 1 + 1) / 3, abs=1e-6)}
    assert found["verdict"] == "not known yet"
    assert found["more_shoppers_needed"] > 1000
    assert told(tmp_path, events, "plan")["preference"]["for"] == "words"


def test_a_clear_preference_is_a_verdict_and_three_teams_are_none(tmp_path: Path) -> None:
    many = [click(f"p{number}", f"s{number}", "words" if number % 4 else "plan", 1) for number in range(400)]
    found = told(tmp_path / "a", many, control="plan")
    assert found["verdict"] == "words is preferred"
    assert found["preference"]["mean"] == 0.5
    assert 0 < found["interval"][0] < 0.5 < found["interval"][1]
    three = [*many, click("p9", "s9", "third", 2)]
    plans = [plan("p1")]
    (odd,) = report(sums(written(tmp_path / "b", plans, three)))["interleavings"]
    assert "two" in odd["note"]


def test_no_verdict_before_enough_shoppers_preferred_either() -> None:
    *_, verdict = preferred(
        np.array([99, 200]), np.array([99, 200]), np.array([99, 200]), np.array([99, 200]), planned=2e4
    )
    assert list(verdict) == [0, 1]
    assert needed(0.7, 0.1, planned=2e4) < needed(0.7, 0.05, planned=2e4)


def test_looking_all_the_time_at_a_planted_preference_and_at_none() -> None:
    rng = np.random.default_rng(35)
    nothing = simulate_interleaving({1: 0.3, -1: 0.3, 0: 0.4}, 300, 5000, rng)
    assert nothing["a_verdict"] <= 0.05
    assert nothing["covered_at_every_look"] >= 0.93
    planted = simulate_interleaving({1: 0.36, -1: 0.3, 0: 0.34}, 300, 12_000, rng)
    assert planted["preferred"] >= 0.8
    assert planted["covered_at_every_look"] >= 0.93


@pytest.mark.anyio
async def test_the_sample_shop_drafts_both_searches_and_clicks_in_it_are_reported(tmp_path: Path) -> None:
    """A choice of what the plan alone found is the plan's, from the search to the report."""
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path)) as client:
        question = "leather backpack under $100"
        planned = (await client.post("/plan", json={"query": question})).json()
        body = {"query": question, "plan": planned["plan"]}
        assert (await client.post("/shop/search", json=body)).json()["interleaved"] == []
        found = (await client.post("/shop/search", json=body | {"request_id": planned["request_id"]})).json()
        lists = [[hit["id"] for hit in found[name]] for name in ("by_plan", "by_words")]
        drafted = interleave(*lists, length=max(map(len, lists)), seed=planned["request_id"])
        assert [hit["id"] for hit in found["interleaved"]] == drafted.products
        names = {"a": "plan", "b": "words", "": ""}
        assert [hit["team"] for hit in found["interleaved"]] == [names[team] for team in drafted.teams]
        assert found["counted"]
        place = drafted.teams.index("a")
        given = {"object": {"object_id": drafted.products[place]}, "position": {"ordinal": place + 1}, "team": "plan"}
        event = {"action_name": "click", "query_id": planned["request_id"], "event_attributes": given}
        refused = assert_problem(await client.post("/outcomes", json=event), 409)
        assert refused["errors"][0]["field"] == "event_attributes.experiment"
        given["experiment"] = "sample-shop"
        for team in ("plan", "words"):
            kept = await client.post("/outcomes", json={**event, "event_attributes": {**given, "team": team}})
            assert kept.json()["kept"] == 1
    (told,) = report(sums(sorted(tmp_path.iterdir())))["interleavings"]
    assert (told["name"], told["teams"], told["shoppers"]) == ("sample-shop", ["plan", "words"], 1)
