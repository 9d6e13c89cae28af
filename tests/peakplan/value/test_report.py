"""`peakplan value` on files as the service writes them: counted once, by release and arm, and honest about chance.

They go into OpenSearch's UBI indexes, too.
"""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from peakplan.value.page import page
from peakplan.value.reading import MEASURES, FilesError, sums
from peakplan.value.report import level, report
from service.settings.groups import ExperimentSettings, OutcomeSettings
from tests.api.client import talking_to
from tests.api.test_outcomes import OWN_ACTIONS, SHOES, SHOPPER, click, planned, ubi_page_exit


def plan(name: str, **more: Any) -> dict[str, Any]:
    return {"record": "plan", "request_id": name, "caller": "shop", "time": 1.8e9, "source": "model", **more}


def event(name: str, action: str, shopper: str = "s", event_id: str = "", **attributes: Any) -> dict[str, Any]:
    line = {"record": "event", "event_id": event_id or f"{name} {action}", "caller": "shop", "time": 1.8e9 + 1}
    return {**line, "action_name": action, "query_id": name, "client_id": shopper, "event_attributes": attributes}


def written(folder: Path, plans: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("plans.jsonl", plans), ("events-1.jsonl", events)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return sorted(folder.iterdir())


def test_what_shoppers_got_and_did_is_told_by_release_each_plan_once(tmp_path: Path) -> None:
    plans = [plan("p1", release="ami-1"), plan("p2", release="ami-1"), plan("p3", release="ami-2")]
    paid = {"value": 40.0, "currency": "EUR"}
    events = [
        event("p1", "first_shown", milliseconds=100.0, results=9),
        event("p2", "first_shown", milliseconds=300.0, results=0),
        event("p1", "click", position={"ordinal": 3}), event("p1", "click", event_id="twice", position={"ordinal": 1}),
        event("p2", "click", position={"ordinal": 4}), event("p1", "add_to_cart", position={"ordinal": 1}),
        event("p1", "purchase", event_id="a", **paid), event("p1", "purchase", event_id="a", **paid),
        event("p1", "purchase", event_id="b", value=2.0, currency="EUR"), event("p1", "came_back"),
        event("p3", "first_shown", milliseconds=50.0, results=1),
        event("p3", "purchase", value=1.0, currency="USD"), event("elsewhere", "first_shown", milliseconds=1.0),
    ]  # fmt: skip
    told = report(sums(written(tmp_path, plans, events)))
    first, second = (row for row in told["releases"] if row["name"] != "-")
    assert first == {
        "name": "ami-1", "plans": 2, "shoppers": 1, "plans_shown": 2, "first_answer_ms": {"p50": 200.0, "p99": 298.0},
        "without_result": 0.5, "click_in_first_three": 0.5, "cart_in_first_three": 0.5, "bought": 0.5, "basket": 42.0,
        "came_back": 0.5,
    }  # fmt: skip
    assert (second["name"], second["plans_shown"], second["basket"]) == ("ami-2", 1, 0.0)
    assert (told["currency"], told["plans_in_other_currencies"]) == ("EUR", 1)


def experiment(folder: Path, control: int, ours: int, *, bought: tuple[int, int]) -> dict[str, Any]:
    """Report a test with so many shoppers an arm, of whom so many bought."""
    plans, events = [], []
    for arm, count, buyers in (("control", control, bought[0]), ("rules", ours, bought[1])):
        for number in range(count):
            name = f"{arm}{number}"
            plans.append(plan(name, experiment="autumn", arm=arm, client_id=name, time=1.8e9 + number))
            events += [event(name, "purchase", name, value=10.0, currency="EUR")] if number < buyers else []
    told = report(sums(written(folder, plans, events)), planned=20_000)
    (found,) = told["experiments"]
    assert "Experiment autumn" in page(told)
    return found


def comparison(found: dict[str, Any], measure: str) -> dict[str, Any]:
    (one,) = [each for each in found["comparisons"] if each["measure"] == measure]
    return dict(one)


def test_a_large_loss_is_a_verdict_and_a_small_one_says_how_many_more_it_takes(tmp_path: Path) -> None:
    harmed = comparison(experiment(tmp_path / "a", 4000, 4000, bought=(800, 500)), "conversion")
    assert (harmed["verdict"], harmed["lift"]) == ("worse", -0.375)
    assert harmed["interval"][0] < -0.375 < harmed["interval"][1] < 0
    close = comparison(experiment(tmp_path / "b", 4000, 4000, bought=(800, 790)), "conversion")
    assert close["verdict"] == "not known yet"
    assert close["more_shoppers_needed"] > 100_000
    few = comparison(experiment(tmp_path / "c", 100, 100, bought=(60, 5)), "conversion")
    assert few["verdict"] == "not known yet", "a share of so few is not near enough to normal"


def test_all_of_an_experiment_s_verdicts_together_are_wrong_in_five_of_a_hundred_tests(tmp_path: Path) -> None:
    for arms in (2, 3, 5):
        chances = [level(measure, "basket", arms) for measure in MEASURES]
        assert (arms - 1) * sum(chances) == pytest.approx(0.05)
        assert max(chances) == level("basket", "basket", arms)
    found = experiment(tmp_path, 4000, 4000, bought=(800, 790))
    main, other = comparison(found, "conversion"), comparison(found, "click")
    assert (main["confidence"], other["confidence"]) == (0.97, 0.995)
    asked = report(sums(sorted(tmp_path.iterdir())), main="basket", planned=20_000)["experiments"][0]
    narrow, wide = (comparison(each, "basket")["interval"] for each in (asked, found))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_arms_of_the_wrong_size_are_told_before_any_comparison(tmp_path: Path) -> None:
    assert experiment(tmp_path / "a", 2000, 1600, bought=(400, 320))["sample_ratio_mismatch"]
    assert not experiment(tmp_path / "b", 2000, 1960, bought=(400, 320))["sample_ratio_mismatch"]


def test_whoever_was_in_two_arms_is_in_none_and_a_shop_s_own_exposure_counts(tmp_path: Path) -> None:
    plans = [plan("p1"), plan("p2"), plan("p3")]
    arms = [("p1", "s1", "control"), ("p2", "s1", "ours"), ("p3", "s2", "ours")]
    events = [event(name, "exposure", shopper, experiment="x", arm=arm) for name, shopper, arm in arms]
    (found,) = report(sums(written(tmp_path, plans, events)))["experiments"]
    assert (found["shoppers"], found["shoppers_in_several_arms"]) == ({"ours": 1}, 1)
    assert "yet, only in ours" in found["note"], "the control may have no shopper so far"
    assert "--control" in found["note"]


def test_the_command_writes_json_and_a_page_and_names_a_missing_file(tmp_path: Path) -> None:
    files = written(tmp_path, [plan("p1", release="r<b>")], [event("p1", "first_shown", milliseconds=100.0, results=9)])
    command = [sys.executable, "-m", "peakplan.value", *map(str, files), "--html", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["releases"][0]["plans_shown"] == 1
    html = (tmp_path / "page.html").read_text("utf-8")
    assert "r&lt;b&gt;" in html
    assert "data:image/png" in html
    with pytest.raises(FilesError, match="no such file"):
        sums([tmp_path / "nowhere.jsonl"])


def test_reports_are_cloudwatch_metrics_by_aws_s_own_schema(tmp_path: Path) -> None:
    schema = json.loads((Path(__file__).parents[2] / "telemetry/emf_schema.json").read_text(encoding="utf-8"))
    shown = {"milliseconds": 100.0, "results": 9}
    plans = [plan(f"p{number}", release="ami-1", experiment="autumn", arm=arm, client_id=f"c{number}")
             for number, arm in enumerate(("control", "rules") * 2)]  # fmt: skip
    events = [event(f"p{number}", "first_shown", f"c{number}", **shown) for number in range(4)]
    events += [event("p1", "click", "c1", position={"ordinal": 1}), event("p1", "came_back", "c1")]
    files, emf = written(tmp_path / "in", plans, events), tmp_path / "value.log"
    for _ in range(2):
        words = [sys.executable, "-m", "peakplan.value", *map(str, files), "--emf", str(emf)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    found = [json.loads(line) for line in emf.read_text(encoding="utf-8").splitlines()]
    assert len(found) == 2 * (1 + 2 + 1 + 5), "a release, two arms, an experiment and its measures, twice"
    for document in found:
        jsonschema.validate(document, schema)
        (directive,) = document["_aws"]["CloudWatchMetrics"]
        assert all(isinstance(document[each["Name"]], int | float) for each in directive["Metrics"])
        assert all(document[name] for name in directive["Dimensions"][0])
    release = next(each for each in found if "Release" in each)
    assert (release["PlansShown"], release["ClickInFirstThree"], release["CameBack"]) == (4, 25.0, 25.0)
    assert release["FirstAnswerP99"] == 100.0
    compared = next(each for each in found if each.get("Measure") == "click")
    assert (compared["Arm"], compared["Novelty"]) == ("rules", 0)


@pytest.mark.parametrize("first", [0, 1])
def test_places_count_from_0_or_1_and_attributes_may_be_null(tmp_path: Path, first: int) -> None:
    events = [
        {"record": "event", "event_id": f"{at}", "caller": "", "time": 1_700_000_000_000.0 + at, "query_id": f"r{at}",
         "action_name": "click", "event_attributes": {"position": {"ordinal": at + first}} if at else None}
        for at in range(6)
    ] + [{"record": "event", "event_id": "x", "caller": "", "time": 1_700_000_000_000.0, "query_id": "r0",
          "action_name": "click", "event_attributes": {"position": {"ordinal": first}}}]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert sums([tmp_path / "events.jsonl"]).releases[0]["clicks"] == 3


def test_a_report_of_nothing_says_why(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("")
    with pytest.raises(FilesError, match="neither a plan nor an event"):
        sums([tmp_path / "events.jsonl"])


# What OpenSearch's events-mapping.json and queries-mapping.json name at their top.
OF_EVENTS = {"application", "action_name", "client_id", "query_id", "message", "message_type", "user_query",
             "timestamp", "event_attributes", "session_id"}  # fmt: skip
OF_QUERIES = {"timestamp", "query_id", "query", "query_response_id", "query_response_hit_ids", "user_query",
              "query_attributes", "client_id", "application"}  # fmt: skip
STRICT_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.mark.anyio
async def test_plans_and_events_are_documents_of_ubi(tmp_path: Path) -> None:
    trial = ExperimentSettings(name="autumn", arms="control=1")
    kept = OutcomeSettings(dir=tmp_path / "kept", actions=OWN_ACTIONS)
    async with talking_to(SHOES, outcomes=kept, experiment=trial, release="ami-1") as client:
        await client.post("/plan", json={"query": "red shoes"}, headers={"x-experiment-unit": SHOPPER})
        query_id, other_id = await planned(client), await planned(client)
        clicks = [click(query_id, event_id="1"), click(other_id, event_id="1")]
        for event in (click(query_id, timestamp="2026-11-23T20:20:39"), ubi_page_exit(query_id), *clicks):
            assert (await client.post("/outcomes", json=event)).json()["kept"] == 1
    plans, events = tmp_path / "kept/plans.jsonl", tmp_path / "kept/events.jsonl"
    packed = tmp_path / "events.gz"  # as Firehose's bucket has them
    packed.write_bytes(gzip.compress(events.read_bytes()))
    files = [str(plans), str(events), str(packed)]
    words = [sys.executable, "-m", "peakplan.value", *files, "--ubi", str(tmp_path / "bulk.ndjson")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "bulk.ndjson").read_text("utf-8")
    assert SHOPPER not in text
    lines = [json.loads(line) for line in text.splitlines()]
    found: dict[str, dict[str, Any]] = {"ubi_queries": {}, "ubi_events": {}}
    for action, document in zip(lines[::2], lines[1::2], strict=True):
        found[action["index"]["_index"]][action["index"]["_id"]] = document
        assert STRICT_DATE_TIME.fullmatch(document["timestamp"])
    first, second, _ = found["ubi_queries"].values()
    assert first["query_attributes"]["arm"] == "control"
    assert (second["query_id"], second["query_attributes"]["release"]) == (query_id, "ami-1")
    assert set(first) <= OF_QUERIES
    assert len(found["ubi_events"]) == 4, "an event that two files have is one document"
    for event in found["ubi_events"].values():
        assert set(event) <= OF_EVENTS
        assert event["query_id"] in (query_id, other_id)
    assert {event["action_name"] for event in found["ubi_events"].values()} == {"click", "page_exit"}
    assert "2026-11-23T20:20:39.000Z" in {event["timestamp"] for event in found["ubi_events"].values()}
