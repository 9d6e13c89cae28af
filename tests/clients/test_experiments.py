"""Arms by a hash that a web page computes too; two searches in one list; events that nobody waits for."""

import json
import shutil
import subprocess
import threading
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from peakplan_client import Client, EventSender, Trial, UnauthorizedError, assigned, interleave
from peakplan_client.experiments import BUCKETS, bucket
from peakplan_client.experiments import __doc__ as algorithm

from rehearsal.tools import client_types
from tests.clients import experiment_vectors
from tests.processes import PATIENCE

VECTORS = experiment_vectors.FILE
NODE = shutil.which("node", path=client_types.PATH)
SHOPPERS = [f"browser-{number}" for number in range(2000)]


def test_arms_get_their_shares_and_another_experiment_deals_anew() -> None:
    arms = {"control": 1, "rules": 1, "ours": 2, "nobody": 0}
    first = [assigned("autumn", arms, shopper) for shopper in SHOPPERS]
    assert first == [assigned("autumn", arms, shopper) for shopper in SHOPPERS]
    counts = Counter(first)
    for arm, share in (("control", 0.25), ("rules", 0.25), ("ours", 0.5)):
        assert abs(counts[arm] / len(SHOPPERS) - share) < 0.05
    assert "nobody" not in first
    again = [assigned("winter", arms, shopper) for shopper in SHOPPERS]
    assert 0.3 < sum(one == other for one, other in zip(first, again, strict=True)) / len(SHOPPERS) < 0.45
    with pytest.raises(ValueError, match="shares"):
        assigned("autumn", {"a": 0}, "x")


def test_a_shopper_on_the_edge_of_two_shares_has_the_second_arm() -> None:
    for shopper in SHOPPERS[:20]:
        place = bucket("autumn", shopper)
        for end in (place, place + 1):
            arms = {"first": end, "second": BUCKETS - end}
            assert assigned("autumn", arms, shopper) == ("second" if end == place else "first")


def test_the_vectors_that_the_typescript_tests_read_are_what_python_finds() -> None:
    assert VECTORS.read_text(encoding="utf-8") == experiment_vectors.text(), "every running experiment is dealt anew"
    cases = json.loads(VECTORS.read_text(encoding="utf-8"))
    assert {case["arm"] for case in cases} == {"control", "2", "1", "newer", "all"}
    assert {case["credit"] for case in cases} == {-1, 0, 1}
    assert {case["header"] for case in cases} == {True, False}


def test_a_shopper_whom_no_header_can_name_gets_a_plan_of_the_usual_hosts() -> None:
    asked: list[tuple[str, str | None]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.host, request.headers.get("x-experiment-unit")))
        return httpx.Response(401)

    trial = Trial("autumn", {"newer": 1}, {"newer": ["http://newer"]})
    with Client("http://usual", trial=trial, transport=httpx.MockTransport(answer)) as client:
        for shopper in ("browser-1", "", "ü👟", "two words", "x" * 101, "x\n"):
            with pytest.raises(UnauthorizedError):
                client.plan("red boots", shopper=shopper)
    assert asked == [("newer", "browser-1"), *[("usual", None)] * 5]


@pytest.mark.skipif(NODE is None, reason="Node is not installed: apt-get install nodejs")
def test_a_web_page_computes_the_same_bucket() -> None:
    """The JavaScript is the documentation's own."""
    lines = "\n".join(line.strip() for line in str(algorithm).splitlines() if "const " in line)
    shoppers = ["browser-1", "ü👟", ""]
    script = f"""
      const {{webcrypto}} = require("crypto"); const crypto = webcrypto;
      (async () => {{ const found = [];
        for (const shopper of {json.dumps(shoppers)}) {{ const experiment = "autumn"; {lines} found.push(bucket); }}
        console.log(JSON.stringify(found)); }})();"""
    done = subprocess.run([NODE, "-e", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [bucket("autumn", shopper) for shopper in shoppers]


def test_two_lists_become_one_and_clicks_tell_whose_products_are_better() -> None:
    a, b = ["same", "a1", "a2", "both", "a3"], ["same", "b1", "both", "b2", "b3"]
    drafted = interleave(a, b, length=7, seed="48bf")
    assert drafted == interleave(a, b, length=7, seed="48bf")
    assert (drafted.products[0], drafted.teams[0]) == ("same", "")
    assert len(set(drafted.products)) == len(drafted.products) == 7
    assert abs(drafted.teams.count("a") - drafted.teams.count("b")) <= 1
    for team, own in (("a", {"a1", "a2", "a3"}), ("b", {"b1", "b2", "b3"})):
        assert own >= {p for p, t in zip(drafted.products, drafted.teams, strict=True) if t == team} - {"both"}
    assert drafted.credit({"same"}) == 0
    assert (drafted.credit({"a1", "a2"}), drafted.credit({"b1"})) == (1, -1)
    assert interleave(["x"], [], length=5, seed="1").products == ["x"]


def test_by_chance_neither_list_wins() -> None:
    same = [str(number) for number in range(10)]
    other = same[::-1]
    firsts = Counter(interleave(same, other, length=10, seed=str(number)).teams[0] for number in range(1000))
    assert 400 < firsts["a"] < 600
    assert not any(interleave(same, same, length=10, seed="1").teams)


class Service:
    """Answers `POST /outcomes` as it is told to, and remembers what it got."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.got, self.idle = list(answers), [], threading.Event()  # type: ignore[var-annotated]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        events: list[dict[str, Any]] = json.loads(request.content)
        status = self.answers.pop(0) if self.answers else 202
        if status == 0:
            raise httpx.ConnectError("down")
        if status == 202:
            self.got += events
        return httpx.Response(status, json={"refused": []})


def test_events_arrive_once_they_can_with_the_ids_that_they_had_before() -> None:
    service = Service(0, 503, 202)
    with EventSender("http://service", transport=httpx.MockTransport(service)) as sender:
        assert all(sender.put({"action_name": "click", "query_id": str(number)}) for number in range(100))
        sender.close(timeout=PATIENCE)
    assert [event["query_id"] for event in service.got] == [str(number) for number in range(100)]
    assert len({event["event_id"] for event in service.got}) == 100
    assert (sender.sent, sender.dropped, sender.refused) == (100, 0, 0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_events_that_are_too_large_together_go_one_by_one(count: int) -> None:
    sizes: list[int] = []

    def service(request: httpx.Request) -> httpx.Response:
        sizes.append(len(json.loads(request.content)))
        return httpx.Response(413 if sizes[-1] > 1 else 202)

    sender = EventSender("http://service", transport=httpx.MockTransport(service))
    with sender._changed:  # until all of them wait
        for number in range(count):
            sender.put({"action_name": "click", "query_id": str(number)})
    sender.close(timeout=PATIENCE)
    assert (sender.sent, sender.refused, sizes.count(1)) == (count, 0, count)


def test_the_end_waits_for_what_is_being_sent() -> None:
    def slow(_: httpx.Request) -> httpx.Response:
        time.sleep(0.2)
        return httpx.Response(202)

    with EventSender("http://service", transport=httpx.MockTransport(slow)) as sender:
        sender.put({"action_name": "click"})
    assert (sender.sent, sender.dropped) == (1, 0)


def test_what_finds_no_room_is_counted_and_nobody_waits() -> None:
    gate = threading.Event()

    def hangs(_: httpx.Request) -> httpx.Response:
        gate.wait(PATIENCE)
        return httpx.Response(422, text="no such name")

    sender = EventSender("http://service", most_waiting=10, transport=httpx.MockTransport(hangs))
    taken = [sender.put({"action_name": "click"}) for _ in range(30)]
    gate.set()
    sender.close(timeout=PATIENCE)
    assert taken.count(False) == sender.dropped == 20
    assert sender.refused == 10
    assert not sender.put({"action_name": "click"}), "after the end"
