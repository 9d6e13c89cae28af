"""Arms that are a release or a shop folder: real hosts, each with its own, a client that knows them, and the report."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from peakplan_client import Client, Trial, UnauthorizedError

from peakplan.value.reading import sums
from peakplan.value.report import report
from tests.faults.under_load import MODULE
from tests.readers import write_folder
from tests.server_process import ServerProcess

SHARES = {"control": 1, "release": 1, "folder": 1}
ARMS = ",".join(f"{arm}={share}" for arm, share in SHARES.items())
SHOPPERS = [f"browser-{number}" for number in range(30)]
QUESTION = "muga mugs"  # Muga is a brand in the shop folder, and else a misspelt mug


@contextlib.contextmanager
def hosts(folder: Path) -> Iterator[dict[str, ServerProcess]]:
    """Yield a host for each arm, by its name, all started at once."""
    common = {
        "PEAKPLAN_REPLICAS": 1, "PEAKPLAN_OVERSUBSCRIBE": 1, "PEAKPLAN_OUTCOMES_KEY": "shared", "FAKE_SECONDS": 0,
        "PEAKPLAN_EXPERIMENT_NAME": "autumn", "PEAKPLAN_EXPERIMENT_ARMS": ARMS, "FAKE_ANSWER": "fixed",
    }  # fmt: skip
    own: dict[str, dict[str, object]] = {
        "control": {"PEAKPLAN_RELEASE": "ami-1"},
        "release": {"PEAKPLAN_RELEASE": "ami-2"},
        "folder": {"PEAKPLAN_RELEASE": "ami-1", "PEAKPLAN_SHOP_DIR": write_folder(folder / "shop")},
    }
    started = {
        arm: ServerProcess(MODULE, **common, **more, PEAKPLAN_EXPERIMENT_SERVES=arm, PEAKPLAN_OUTCOMES_DIR=folder / arm)
        for arm, more in own.items()
    }
    try:
        yield {arm: server.wait_until_ready() for arm, server in started.items()}
    finally:
        for server in started.values():
            server.process.terminate()  # and no less: what a host has kept it writes as it ends
        for server in started.values():
            server.wait()


def reported(folder: Path) -> dict[str, Any]:
    files = [path for arm in SHARES for path in sorted((folder / arm).glob("*.jsonl"))]
    (found,) = report(sums(files))["experiments"]
    return dict(found)


def test_releases_and_shop_folders_are_arms_of_hosts_and_who_reached_another_is_counted(tmp_path: Path) -> None:
    with hosts(tmp_path) as servers:
        trial = Trial("autumn", SHARES, {arm: [servers[arm].url] for arm in ("release", "folder")})
        clicked: dict[str, int] = dict.fromkeys(SHARES, 0)
        with Client(servers["control"].url, trial=trial, timeout=60) as client:
            for shopper in SHOPPERS:
                answer = client.plan(QUESTION, shopper=shopper, deadline_ms=2000)
                arm = trial.arm(shopper)
                assert (answer.plan.queries == [QUESTION]) == (arm == "folder"), "the arm's own host planned"
                event = {"action_name": "click", "query_id": answer.request_id, "client_id": shopper,
                         "event_attributes": {"object": {"object_id": "B07"}, "position": {"ordinal": 1}}}  # fmt: skip
                sent = httpx.post(f"{servers['control'].url}/outcomes", json=event, timeout=60)  # wherever it was made
                assert sent.json()["kept"] == 1
                clicked[arm] += 1
            before = reported(tmp_path)
            assert before["shoppers"] == clicked
            assert min(clicked.values()) > 0
            for arm, told in before["made_by"].items():
                (maker,) = told["makers"]
                assert (maker["release"], maker["plans"]) == ("ami-2" if arm == "release" else "ami-1", clicked[arm])
                assert (maker["shop"] != "-") == (arm == "folder")
                assert told["missed"] == 0
            stray = next(shopper for shopper in SHOPPERS if trial.arm(shopper) == "release")
            servers["release"].process.kill()
            servers["release"].process.wait()  # what dies may answer once more
            assert client.plan(QUESTION, shopper=stray, deadline_ms=2000).request_id, "a plan matters more than an arm"
            direct = httpx.post(f"{servers['control'].url}/plan", json={"query": QUESTION}, timeout=60,
                                headers={"x-experiment-unit": stray})  # fmt: skip
            assert direct.headers["x-experiment"] == "autumn=release;missed"
    after = reported(tmp_path)
    assert after["shoppers"] == clicked, "who reached another host stays in the arm that the hash gave"
    assert after["made_by"]["release"]["missed"] == pytest.approx(2 / (clicked["release"] + 2), abs=1e-5)
    assert "release" in after["note"]


def test_a_trial_names_its_arms_and_a_call_of_no_shopper_goes_to_the_usual_hosts() -> None:
    with pytest.raises(ValueError, match="no share is given for newer"):
        Trial("autumn", {"control": 1}, {"newer": ["http://127.0.0.1:1"]})
    asked: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(401)

    trial = Trial("autumn", {"newer": 1}, {"newer": ["http://newer.test"]})
    with Client("http://usual.test", trial=trial, transport=httpx.MockTransport(refuse)) as client:
        for who in ({}, {"shopper": "browser-1"}):
            with pytest.raises(UnauthorizedError):
                client.plan(QUESTION, **who)
    assert asked == ["usual.test", "newer.test"]
