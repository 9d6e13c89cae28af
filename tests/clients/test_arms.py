"""Arms at their bounds: who is in which, whose hosts are asked, and the coins of a draft."""

import hashlib
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from peakplan_client import Client, Trial, assigned, interleave
from peakplan_client.experiments import bucket

from tests.clients.scripted import BODY, FIRST, OK, Clock, Fake, problem

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
def test_shares_that_are_none_are_refused(arms: Mapping[str, int]) -> None:
    with pytest.raises(ValueError, match="shares of 0 and more"):
        assigned("autumn", arms, "s0")
    with pytest.raises(ValueError, match="shares of 0 and more"):
        Trial("autumn", arms, {})


def test_hosts_of_an_arm_that_has_no_share_are_refused() -> None:
    with pytest.raises(ValueError, match="no share is given for other, third"):
        Trial("autumn", HALVES, {"third": ["http://x"], "ours": ["http://y"], "other": ["http://z"]})


def ask(fake: Fake, *shoppers: str | None, **options: Any) -> list[str]:
    trial = Trial("autumn", HALVES, ARMS)
    with Client(FIRST, transport=httpx.MockTransport(fake), trial=trial, timeout=20) as client:
        for shopper in shoppers:
            client.plan("red boots", **options, **({} if shopper is None else {"shopper": shopper}))
    return fake.hosts


def test_a_shopper_is_asked_for_at_the_hosts_of_their_arm() -> None:
    fake = Fake(first=[OK], own=[OK], spare=[OK])
    assert ask(fake, "s1412", "s4019", None, "") == ["first", "own", "first", "first"]
    units = [request.headers.get("x-experiment-unit") for request in fake.asked]
    assert units == ["s1412", "s4019", None, None]


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


def test_coins_are_the_bits_of_the_seed_s_hash_and_captains_take_turns() -> None:
    a, b = ([f"{name}{number}" for number in range(150)] for name in "ab")
    drafted = interleave(a, b, length=300, seed="48bf")
    bits = [byte >> place & 1 for byte in hashlib.sha256(b"48bf").digest() for place in range(8)]
    assert [drafted.teams[at] for at in range(0, 300, 2)] == ["ab"[bit] for bit in bits[:150]]
    assert all(first != second for first, second in zip(drafted.teams[::2], drafted.teams[1::2], strict=True))
    assert [each for each in drafted.products if each.startswith("a")] == a


def test_coins_begin_anew_after_the_last_one() -> None:
    a, b = ([f"{name}{number}" for number in range(300)] for name in "ab")
    firsts = interleave(a, b, length=600, seed="48bf").teams[::2]
    assert firsts[256:] == firsts[:44]


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


def test_as_many_choices_of_both_are_nobody_s_win() -> None:
    drafted = interleave(["a0", "a1"], ["b0", "b1"], length=4, seed="1")
    assert [drafted.credit(chosen) for chosen in ([], ["a0", "b1"], ["a0", "a1", "b0"], ["b0", "b1", "a1"])] == [
        0,
        0,
        1,
        -1,
    ]
