"""Authentication, rate limits and access to local endpoints."""

import asyncio
import logging
import time
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from service.api.access import RateLimiter
from service.gateway.load_shedder import LoadShedder
from service.gateway.pool import ReplicaPool
from service.gateway.request_queue import CapacityError
from service.gateway.turns import CostlyTurns
from service.planner.caching import CachingPlanner
from service.planner.prompt import PlanTask
from service.settings.groups import AuthSettings, HttpSettings
from tests.api.client import assert_problem, bearer, callers, come_from, talking_to
from tests.fake_engines import FakeEngine
from tests.gateway.simulated import Clock

pytestmark = pytest.mark.anyio
BODY = {"query": "red shoes"}
CONTROLLED = AuthSettings(control_token=SecretStr("operator"))
OPERATOR = {"Authorization": "Bearer operator"}


async def test_where_tokens_are_asked_for_only_their_callers_get_plans(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    async with talking_to(engine, auth=callers("search", "mobile")) as client:
        for headers in ({}, bearer("other"), {"authorization": "Basic token-of-search"}):
            problem = assert_problem(await client.post("/plan", json=BODY, headers=headers), 401)
            assert "token-of" not in problem["detail"]
        assert (await client.get("/metrics")).status_code == 401
        assert engine.served == []
        with caplog.at_level(logging.DEBUG, "service"):
            asking = ("search", "search", "mobile")
            answers = [await client.post("/plan", json=BODY, headers=bearer(name)) for name in asking]
            assert_problem(await client.post("/plan", json=BODY | {"zebra": 1}, headers=bearer("mobile")), 422)
        assert [each.json()["source"] for each in answers] == ["model", "cache", "model"], "each has a cache of its own"
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert (await client.get(path)).status_code == 200
    told = [vars(record) for record in caplog.records]
    assert [record["caller"] for record in told if "caller" in record][-4:] == [*asking, "mobile"]
    assert not any(word in repr(told) for word in ("token-of", "red shoes", "zebra"))
    async with talking_to(auth=AuthSettings(api_keys=SecretStr("# the tokens come later\n"))) as client:
        assert_problem(await client.post("/plan", json=BODY), 401)


def _stop_the_rates_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine gives callers time to ask again."""
    monkeypatch.setattr("service.api.access.RateLimiter", partial(RateLimiter, lambda: 0.0))


async def test_a_caller_that_asks_too_often_is_told_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    _stop_the_rates_clock(monkeypatch)
    engine = FakeEngine()
    async with talking_to(engine, auth=callers("a", "b", rate=2.0)) as client:
        answers = [await client.post("/plan", json=BODY, headers=bearer("a")) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert_problem(answers[2], 429)
        assert answers[2].headers["retry-after"] == "1"
        assert (await client.post("/plan", json=BODY, headers=bearer("b"))).status_code == 200


async def test_past_the_last_rung_requests_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking_to() as client:
        monkeypatch.setattr(LoadShedder, "is_open_to", lambda *_: False)
        response = await client.post("/plan", json=BODY)
        assert_problem(response, 503)
        assert response.headers["retry-after"] == "1"
        assert (await client.get("/healthz")).status_code == 200
        monkeypatch.undo()
        metrics = (await client.get("/metrics")).text
    assert "peakplan_shed_total 1.0" in metrics
    assert "peakplan_slo_bad_total 1.0" in metrics


@pytest.mark.parametrize("path", ["/drain", "/reload"])
@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.0.0.5", OPERATOR),
        ("127.0.0.1", OPERATOR | {"X-Forwarded-For": "1.2.3.4"}),
        ("127.0.0.1", OPERATOR | {"Forwarded": "for=1.2.3.4"}),
        ("127.0.0.1", OPERATOR | {"Origin": "https://elsewhere.example"}),
        ("127.0.0.1", OPERATOR | {"Sec-Fetch-Site": "cross-site"}),
        ("127.0.0.1", {}),
        ("127.0.0.1", {"Authorization": "Bearer operators"}),
        ("127.0.0.1", {"Authorization": "Basic operator"}),
        ("::ffff:10.0.0.5", OPERATOR),
        ("2001:db8::1", OPERATOR),
    ],
)
async def test_the_hosts_own_addresses_answer_nobody_else(path: str, address: str, headers: dict[str, str]) -> None:
    async with talking_to(auth=CONTROLLED) as client:
        come_from(address, client)
        assert_problem(await client.post(path, headers=headers), 403)
        assert (await client.get("/readyz")).status_code == 200, "it does not drain"


async def test_drain_flips_readiness_and_goes_on_serving() -> None:
    async with talking_to(drain_seconds=60, auth=CONTROLLED) as client:
        assert (await client.get("/readyz")).status_code == 200
        response = await client.post("/drain", headers=OPERATOR)
        assert (response.status_code, response.json()) == (202, {"status": "draining", "seconds": 60.0})
        assert "shutting down" in assert_problem(await client.get("/readyz"), 503)["detail"]
        planned = await client.post("/plan", json=BODY)
        assert (planned.status_code, planned.headers["connection"]) == (200, "close")


async def test_metrics_tell_of_rungs_and_cache() -> None:
    async with talking_to() as client:
        for _ in range(2):
            await client.post("/plan", json=BODY)
        text = (await client.get("/metrics")).text
    assert 'peakplan_answered_total{source="model"} 1.0' in text
    assert 'peakplan_answered_total{source="cache"} 1.0' in text
    assert "peakplan_cache_hits_total 1.0" in text
    assert "peakplan_cache_misses_total 1.0" in text
    assert "shoes" not in text


async def test_without_a_token_of_the_operator_nobody_drains_the_host() -> None:
    async with talking_to() as client:
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer x"}):
            assert "SIGTERM" in assert_problem(await client.post("/drain", headers=headers), 403)["detail"]
        assert (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("10.0.0.5", "10.0.0.6", 200),
        ("10.0.0.5", "::ffff:10.0.0.5", 429),
        ("2001:db8::1", "2001:db8::2", 429),
        ("2001:db8::1", "2001:db8:0:1::1", 200),
    ],
)
async def test_a_caller_is_an_address_or_a_network_of_ipv6(first: str, second: str, status: int) -> None:
    async with talking_to(auth=AuthSettings(rate=1.0)) as client:
        for address, expected in ((first, 200), (second, status)):
            come_from(address, client)
            assert (await client.post("/plan", json=BODY)).status_code == expected


async def test_replicas_are_shared_among_those_whom_a_rate_counts() -> None:
    engine = FakeEngine()
    async with talking_to(engine, auth=callers("a", "b")) as client:
        for name in ("a", "b"):
            await client.post("/plan", json=BODY, headers=bearer(name))
    assert [request.client for request in engine.served] == ["a", "b"]
    async with talking_to(engine := FakeEngine()) as client:
        await client.post("/plan", json=BODY)
    assert [request.client for request in engine.served] == ["127.0.0.1"]


async def test_a_long_question_counts_as_the_ordinary_ones_it_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four such callers once took the gateway's time from everybody, each within its rate."""
    _stop_the_rates_clock(monkeypatch)
    for path in ("/plan", "/trace"):
        async with talking_to(FakeEngine(text=" Find Any"), auth=AuthSettings(rate=3)) as client:
            answers = [await client.post(path, json={"query": "$1" * 256, "history": ["$1" * 22]}) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 429], path
    async with talking_to(auth=AuthSettings(rate=4)) as client:
        answers = [await client.post("/plan", json={"query": f"red shoes {number}"}) for number in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4


async def test_what_a_question_costs_besides_the_model_counts_in_its_callers_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked: list[tuple[str, float]] = []
    monkeypatch.setattr(ReplicaPool, "worked", lambda _, client, seconds: worked.append((client, seconds)))
    async with talking_to(FakeEngine(text=" Find Any"), auth=callers("a", "b"), routing="off") as client:
        for name in ("a", "a", "b"):  # by the model, from the cache, and a costly one
            query = "$1" * 256 if name == "b" else BODY["query"]
            assert (await client.post("/plan", json={"query": query}, headers=bearer(name))).status_code == 200
        batch = {"requests": [{"query": "blue shoes"}, {"query": "green shoes"}]}
        assert (await client.post("/plans", json=batch, headers=bearer("b"))).status_code == 200
    assert [who for who, _ in worked] == ["a", "a", "b", "b", "b"]
    assert all(seconds > 0 for _, seconds in worked)


async def test_costly_questions_that_came_first_are_read_one_by_one_after_an_ordinary_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    plan_at_once = CachingPlanner.plan_at_once

    def noted(planner: CachingPlanner, task: PlanTask) -> Any:
        read.append(task.question.text)
        return plan_at_once(planner, task)

    monkeypatch.setattr(CachingPlanner, "plan_at_once", noted)
    asked = [*("$1" * 200 + f" {number}" for number in range(4)), "red shoes"]
    async with talking_to(FakeEngine(text=" Find Any")) as client:
        answers = await asyncio.gather(
            *(client.post("/plan", json={"query": query, "deadline_ms": 2000}) for query in asked)
        )
    assert [answer.status_code for answer in answers] == [200] * 5
    assert len(read) == 5
    assert read[0] == "red shoes"


async def test_a_long_question_whose_turn_does_not_come_is_planned_as_far_as_an_ordinary_one_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once it was read whole then, by however many callers at the same time."""
    asked: list[tuple[str, float]] = []

    async def take(_turns: CostlyTurns, client: str, _work: Any, latest: float) -> Any:
        asked.append((client, latest - time.monotonic()))
        raise CapacityError("too many long questions came before", "capacity")

    monkeypatch.setattr(CostlyTurns, "take", take)
    long = "red shoes " * 30 + "under $40"
    async with talking_to(engine := FakeEngine(text=" Find Any")) as client:
        one = (await client.post("/plan", json={"query": long, "deadline_ms": 2000})).json()
        batch = {"requests": [{"query": long, "deadline_ms": 20_000}, {"query": "blue shoes"}]}
        answers = (await client.post("/plans", json=batch)).json()["answers"]
        assert (await client.post("/plan", json={"query": "red shoes"})).json()["source"] == "model"
    for answer in (one, answers[0]["answer"]):
        assert (answer["source"], answer["reason"]) == ("fallback", "capacity")
        assert answer["plan"]["facets"]["type"] == ["shoes"]
        assert answer["plan"]["price"]["max"] is None, "it stands where nobody reads"
    assert [who for who, _ in asked] == ["127.0.0.1"] * 2
    assert 0 < asked[0][1] < 0.6, "a quarter of its time at most"
    assert 10 < asked[1][1] < 20.1, "a batch has time"
    assert len(engine.served) == 2


async def test_a_search_with_a_long_plan_counts_as_several() -> None:
    plan = {"mode": "keyword", "intent": "find_product", "queries": ["boots"]}
    long = plan | {"exclude": {"brand": [f"brand {number}" for number in range(600)]}}
    for asked, expected in ((plan, [200, 200]), (long, [200, 429])):
        async with talking_to(auth=AuthSettings(rate=3), sample_shop=False) as client:
            answers = [await client.post("/shop/search", json={"query": "boots", "plan": asked}) for _ in range(2)]
            assert [answer.status_code for answer in answers] == expected


LOOPBACK = ("127.0.0.1", "::1", "localhost")
OWN = ("localhost", "LocalHost:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "a.localhost")
OTHERS = ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.7", "notlocalhost")
NAMED = "plans.shop.example, 10.0.0.7"


@pytest.mark.parametrize(
    ("host", "bound_to", "allowed", "status"),
    [
        *((host, LOOPBACK[0], "", 200) for host in OWN),
        *((host, bound_to, "", 421) for host in OTHERS for bound_to in LOOPBACK),
        ("shop.example", "0.0.0.0", "", 200),  # where others reach it any name is right until the setting names some
        *((host, "0.0.0.0", NAMED, 200) for host in ("Plans.Shop.Example:443", "10.0.0.7")),
        *((host, "0.0.0.0", NAMED, 421) for host in ("evil.example", "localhost")),
        *((host, LOOPBACK[0], NAMED, 200) for host in ("plans.shop.example", "localhost")),
    ],
)
async def test_a_page_whose_name_resolves_to_this_machine_reads_nothing(
    host: str, bound_to: str, allowed: str, status: int
) -> None:
    """Its browser sends the page's own name as the Host, whatever address that name has by now (DNS rebinding)."""
    async with talking_to(host=bound_to, http=HttpSettings(allowed_hosts=allowed)) as client:
        response = await client.post("/plan", json=BODY, headers={"host": host})
    assert response.status_code == status
    assert status == 200 or "PEAKPLAN_ALLOWED_HOSTS" in assert_problem(response, status)["detail"]


def test_a_host_with_a_scheme_is_refused() -> None:
    with pytest.raises(ValidationError, match="a name or an address alone"):
        HttpSettings(allowed_hosts="https://shop.example")


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_only_known_paths_are_logged(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """A browser's question beforehand is answered for any path, and the path may hold a shopper's words."""
    asked = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    with caplog.at_level("INFO"):
        async with talking_to(http=HttpSettings(cors_origins="https://shop.example")) as client:
            await client.request(method, "/secret-words", headers=asked)
            await client.request(method, "/plan", headers=asked)
    told = [record.message for record in caplog.records if record.name == "service.api"]
    assert told == [f"{method} -", f"{method} /plan"]


def test_a_bucket_holds_a_second_and_fills_at_its_rate() -> None:
    clock = Clock()
    limiter = RateLimiter(clock)
    assert [limiter.wait_seconds("a", 2.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    clock.now = 0.5
    assert limiter.wait_seconds("a", 2.0) == 0.0
    assert limiter.wait_seconds("a", 2.0) == 0.5
    clock.now = 100.0
    assert [limiter.wait_seconds("a", 2.0) for _ in range(3)] == [0.0, 0.0, 0.5]


def test_a_slow_rate_lets_one_through_and_none_means_any_number() -> None:
    limiter = RateLimiter(Clock())
    assert limiter.wait_seconds("a", 0.1) == 0.0
    assert limiter.wait_seconds("a", 0.1) == 10.0
    assert {limiter.wait_seconds("b", 0.0) for _ in range(100)} == {0.0}


def test_the_table_of_callers_is_bounded() -> None:
    limiter = RateLimiter(Clock())
    for number in range(10_050):
        limiter.wait_seconds(str(number), 1.0)
    assert limiter.wait_seconds("0", 1.0) == 0.0


SHOP = "https://shop.example"


@pytest.mark.parametrize(("origin", "allowed"), [(SHOP, True), ("https://other.example", False)])
async def test_pages_of_allowed_origins_may_ask(origin: str, allowed: bool) -> None:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    async with talking_to(http={"cors_origins": f"{SHOP}, http://localhost:3000"}) as client:
        before = await client.options("/plan", headers=asked)
        answer = await client.post("/plan", json={"query": "red shoes"}, headers={"origin": origin})
        problem = await client.post("/plan", json={}, headers={"origin": origin})
    assert before.status_code == (200 if allowed else 400)
    assert answer.status_code == 200
    assert_problem(problem, 422)
    for response in (before, answer, problem):
        assert response.headers.get("access-control-allow-origin") == (origin if allowed else None)


async def test_a_page_that_may_not_call_is_told_which_setting_would_let_it(caplog: pytest.LogCaptureFixture) -> None:
    asking = {"origin": SHOP, "access-control-request-method": "POST"}
    async with talking_to(http={"cors_origins": "https://other.example"}) as client:
        for _ in range(3):
            assert (await client.options("/plan", headers=asking)).status_code == 400
        await client.options("/plan", headers=asking | {"origin": "https://other.example"})
    (told,) = [record for record in caplog.records if record.message == "origin_refused"]
    assert (vars(told)["origin"], "PEAKPLAN_CORS_ORIGINS" in vars(told)["reason"]) == (SHOP, True)
    async with talking_to() as client:
        refused = assert_problem(await client.options("/plan", headers=asking), 405)
        assert "PEAKPLAN_CORS_ORIGINS" in refused["detail"]
        plain = assert_problem(await client.request("OPTIONS", "/plan"), 405)
        answer = await client.post("/plan", json=BODY, headers={"origin": SHOP})
    assert "PEAKPLAN_CORS_ORIGINS" not in plain["detail"]
    assert "access-control-allow-origin" not in answer.headers
