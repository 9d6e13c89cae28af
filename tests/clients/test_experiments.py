"""Arms by a hash that a web page computes too; two searches in one list; events that nobody waits for."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from peakplan_client import Client, EventSender, Trial, assigned, interleave
from peakplan_client.experiments import __doc__ as algorithm
from peakplan_client.experiments import bucket

from rehearsal.tools import client_types
from tests.clients import vectors
from tests.clients.scripted import BODY, FIRST, OK, Clock, Fake, problem
from tests.processes import PATIENCE

NODE = shutil.which("node", path=client_types.PATH)


def test_the_vectors_that_the_typescript_tests_read_are_what_python_finds() -> None:
    written = vectors.EXPERIMENTS.read_text(encoding="utf-8")
    assert written == vectors.experiments(), "every running experiment is dealt anew"
    cases = json.loads(written)
    assert {case["arm"] for case in cases} == {"control", "2", "1", "newer", "all"}
    assert {case["credit"] for case in cases} == {-1, 0, 1}
    assert {case["header"] for case in cases} == {True, False}


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


EDGES = {"s840": 0, "s1412": 4999, "s4019": 5000, "s6193": 9999}  # shoppers of the experiment "autumn"


HALVES = {"control": 1, "ours": 1}


ARMS = {"ours": ["http://own", "http://spare"]}


@pytest.mark.parametrize(
    ("arms", "found"),
    [
        (HALVES, ["control", "control", "ours", "ours"]),
        ({"nobody": 0, "control": 5000, "ours": 5000}, ["control", "control", "ours", "ours"]),
        ({"a": 4999, "b": 5001}, ["a", "b", "b", "b"]),
        ({"a": 9999, "b": 1}, ["a", "a", "a", "b"]),
        ({"a": 1, "b": 9999}, ["a", "b", "b", "b"]),
        ({"only": 3}, ["only"] * 4),
    ],
)
def test_an_arm_has_its_share_of_the_buckets_to_the_last_one(arms: Mapping[str, int], found: list[str]) -> None:
    assert {shopper: bucket("autumn", shopper) for shopper in EDGES} == EDGES
    assert [assigned("autumn", arms, shopper) for shopper in EDGES] == found


@pytest.mark.parametrize("arms", [{}, {"a": 0, "b": 0}, {"a": 2, "b": -1}])
def test_shares_that_are_none_and_hosts_of_an_arm_without_one_are_refused(arms: Mapping[str, int]) -> None:
    with pytest.raises(ValueError, match="shares of 0 and more"):
        assigned("autumn", arms, "s0")
    with pytest.raises(ValueError, match="shares of 0 and more"):
        Trial("autumn", arms, {})
    with pytest.raises(ValueError, match="no share is given for other, third"):
        Trial("autumn", HALVES, {"third": ["http://x"], "ours": ["http://y"], "other": ["http://z"]})


def ask(fake: Fake, *shoppers: str | None, **options: Any) -> list[str]:
    trial = Trial("autumn", HALVES, ARMS)
    with Client(FIRST, transport=httpx.MockTransport(fake), trial=trial, timeout=20) as client:
        for shopper in shoppers:
            client.plan("red boots", **options, **({} if shopper is None else {"shopper": shopper}))
    return fake.hosts


def test_a_shopper_is_asked_for_at_the_hosts_of_their_arm_where_a_header_can_name_them() -> None:
    fake = Fake(first=[OK], own=[OK], spare=[OK])
    nameless = (None, "", "ü👟", "two words", "x" * 101, "x\n")
    assert ask(fake, "s1412", "s4019", *nameless) == ["first", "own", *["first"] * 6]
    units = [request.headers.get("x-experiment-unit") for request in fake.asked]
    assert units == ["s1412", "s4019", *[None] * 6]


def test_where_these_fail_others_are_asked_and_the_other_arm_s_last(clock: Clock) -> None:
    fake = Fake(first=[OK], own=[problem(503)], spare=[problem(503)])
    assert ask(fake, "s4019", "s1412") == ["own", "spare", "first", "first"]
    assert clock.paused == []


def test_batches_go_to_the_hosts_of_no_arm() -> None:
    many = httpx.Response(200, json={"answers": [{"answer": BODY}]})
    fake = Fake(first=[many], own=[OK], spare=[OK])
    with Client(FIRST, transport=httpx.MockTransport(fake), trial=Trial("autumn", HALVES, ARMS)) as client:
        client.plans(["red boots"])
    assert fake.hosts == ["first"]


@pytest.mark.parametrize(
    ("a", "b", "length", "products", "teams"),
    [
        (["x", "y"], ["x", "y"], 0, [], ""),
        (["x", "y"], ["x", "y"], 1, ["x"], "0"),
        (["x", "y", "a"], ["x", "y"], 3, ["x", "y", "a"], "00a"),
        (["x"], ["x", "b", "c"], 9, ["x", "b", "c"], "0bb"),
        (["x", "x", "a"], ["x", "x", "a"], 3, ["x", "a"], "0?"),
        ([], [], 3, [], ""),
    ],
)
def test_what_both_begin_with_belongs_to_nobody(
    a: list[str], b: list[str], length: int, products: list[str], teams: str
) -> None:
    drafted = interleave(a, b, length=length, seed="1")
    assert drafted.products == products
    assert len(drafted.teams) == len(teams)
    for team, expected in zip(drafted.teams, teams, strict=True):
        assert team in {"0": [""], "?": ["a", "b"]}.get(expected, [expected])
