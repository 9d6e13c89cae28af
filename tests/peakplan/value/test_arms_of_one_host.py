"""Arms that one process serves: who plans, and a name of the shop's own; a real server, the client, the report."""

import json
from pathlib import Path

import httpx
from peakplan_client import Client, Trial

from peakplan.value.reading import sums
from peakplan.value.report import report
from tests.faults.under_load import fake_server
from tests.processes import eventually
from tests.readers import bounded_model

SHARES = dict.fromkeys(("control", "rules", "routing-off", "routing-overload", "routing-always", "ours"), 1)
ARMS = ",".join(f"{arm}={share}" for arm, share in SHARES.items())
TRIAL = Trial("autumn", SHARES, {})
QUESTION = "nike running shoes"
WHO = {arm: next(f"b{n}" for n in range(1000) if TRIAL.arm(f"b{n}") == arm) for arm in SHARES}
# Of three plans of one question in a row; in this order, so that a cache of all would answer every later arm.
SOURCES = {
    "routing-off": ["model", "cache", "cache"],
    "routing-always": ["rules", "rules", "rules"],
    "routing-overload": ["model", "cache", "cache"],
    "rules": ["rules", "rules", "rules"],
    "control": ["model", "cache", "cache"],
    "ours": ["model", "cache", "cache"],
}


def test_each_arm_gets_its_own_plans_and_no_cached_one_of_another(tmp_path: Path) -> None:
    settings = {
        "PEAKPLAN_REPLICAS": 1, "FAKE_SECONDS": 0, "FAKE_ANSWER": "fixed", "PEAKPLAN_OUTCOMES_DIR": tmp_path,
        "PEAKPLAN_EXPERIMENT_NAME": "autumn", "PEAKPLAN_EXPERIMENT_ARMS": ARMS,
        "PEAKPLAN_MODEL_DIR": bounded_model(tmp_path / "model", 1.0),
    }  # fmt: skip
    with fake_server(**settings) as server, Client(server.url, timeout=60, deadline_ms=2000) as client:
        found = {arm: [client.plan(QUESTION, shopper=WHO[arm]) for _ in range(3)] for arm in SOURCES}
        nobody = [client.plan(QUESTION).source for _ in range(2)]
        asked = httpx.post(f"{server.url}/plan", json={"query": QUESTION}, timeout=60,
                           headers={"x-experiment-unit": WHO["ours"]})  # fmt: skip
        kept = [json.loads(line) for line in _lines_once_there(tmp_path / "plans.jsonl", 21)]
        answers = [answer for each in found.values() for answer in each]
        events = [{"action_name": "first_shown", "query_id": answer.request_id, "client_id": "x",
                   "event_attributes": {"milliseconds": 200.0, "results": 3}} for answer in answers]  # fmt: skip
        assert httpx.post(f"{server.url}/outcomes", json=events, timeout=60).json()["kept"] == len(answers)
    assert {arm: [answer.source for answer in each] for arm, each in found.items()} == SOURCES
    assert not any(answer.degraded for answer in answers)
    assert nobody == ["model", "cache"], "who is in no arm has no arm's plan either"
    assert asked.headers["x-experiment"] == "autumn=ours", "the name by which the shop acts"
    exposures = {line["request_id"]: line.get("arm") for line in kept}
    assert [exposures[answer.request_id] for each in found.values() for answer in each] == [
        arm for arm in SOURCES for _ in range(3)
    ], "the exposure is kept with the plan that it is of"
    assert {line["source"] for line in kept if line.get("arm") == "routing-always"} == {"rules"}
    (told,) = report(sums(sorted(tmp_path.glob("*.jsonl"))))["experiments"]
    assert told["shoppers"] == dict.fromkeys(SHARES, 1)
    assert all(made["missed"] == 0 for made in told["made_by"].values())


def _lines_once_there(path: Path, count: int) -> list[str]:
    eventually(lambda: len(path.read_text("utf-8").splitlines()) >= count, "a plan was not kept")
    return path.read_text("utf-8").splitlines()
