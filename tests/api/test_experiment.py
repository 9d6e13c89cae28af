"""An experiment's arm follows from the shopper, changes who plans, and is kept with the plan."""

import json
from pathlib import Path

import pytest
from peakplan_client import assigned

from service.settings import Settings
from service.settings.experiments import ExperimentSettings
from service.settings.groups import OutcomeSettings
from tests.api.client import talking_to
from tests.fake_engines import FakeEngine

SHOES = FakeEngine(text=" find Brand nike Type running shoes Sports")
TRIAL = ExperimentSettings(name="autumn", arms="control=50, rules=50")


@pytest.mark.anyio
async def test_half_of_the_shoppers_are_planned_by_rule_and_each_stays_where_it_is(tmp_path: Path) -> None:
    shoppers = [f"browser-{number}" for number in range(12)]
    async with talking_to(SHOES, outcomes=OutcomeSettings(dir=tmp_path), experiment=TRIAL, release="ami-1") as client:
        for shopper in shoppers * 2:
            body, headers = {"query": "nike running shoes"}, {"x-experiment-unit": shopper}
            answer = await client.post("/plan", json=body, headers=headers)
            arm = assigned("autumn", TRIAL.shares, shopper)
            assert answer.headers["x-experiment"] == f"autumn={arm}"
            assert (answer.json()["source"] == "rules") == (arm == "rules")
            assert not answer.json()["degraded"]
        unnamed = await client.post("/plan", json={"query": "nike running shoes"})
    assert "x-experiment" not in unnamed.headers
    assert unnamed.json()["source"] == "cache"
    *kept, last = [json.loads(line) for line in (tmp_path / "plans.jsonl").read_text("utf-8").splitlines()]
    assert {line["arm"] for line in kept} == {"control", "rules"}
    assert {(line["experiment"], line["release"]) for line in kept} == {("autumn", "ami-1")}
    assert len({line["client_id"] for line in kept}) == len(shoppers)
    assert "browser" not in json.dumps(kept), "a shopper's id was kept"
    assert "arm" not in last


@pytest.mark.parametrize(
    "arms", ["control", "a=1,a=2", "a=0", "a=-1", "a b=1", "=1", ",".join(f"a{n}=1" for n in range(9))]
)
def test_arms_that_cannot_be_read_are_refused(arms: str) -> None:
    with pytest.raises(ValueError, match=r"name=share|at most 8"):
        ExperimentSettings(name="x", arms=arms)
    assert len(ExperimentSettings(name="x", arms=",".join(f"a{n}=1" for n in range(8))).shares) == 8


def test_an_experiment_that_nobody_records_is_refused() -> None:
    with pytest.raises(ValueError, match="PEAKPLAN_OUTCOMES_DIR"):
        Settings(experiment=TRIAL)
    with pytest.raises(ValueError, match="go together"):
        ExperimentSettings(name="x")


def test_a_host_that_serves_an_arm_which_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="PEAKPLAN_EXPERIMENT_SERVES names newer"):
        ExperimentSettings(name="x", arms="control=1,rules=1", serves="control, newer")
    assert ExperimentSettings(name="x", arms="control=1,rules=1", serves="control, rules").served == {
        "control",
        "rules",
    }
