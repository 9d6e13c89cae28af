"""Any input gets the right status with a clear message, or a valid plan: never a 500, never a hang."""

import hashlib
import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.planner import planner as planner_module
from service.planner.plan import Plan
from tests.api.client import ODD_QUERIES, assert_problem, talking_to
from tests.fake_engines import FakeEngine

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}


FIELD_ERRORS: list[tuple[Any, str, str]] = [
    ({}, "query", "query is required."),
    ({"query": ""}, "query", "query must not be empty."),
    ({"query": " \n\t\u200b\u0000 "}, "query", "query must hold at least one visible character."),
    ({"query": "a" * 600}, "query", "query must have at most 512 characters."),
    ({"query": 5}, "query", "query must be a string."),
    ({"query": None}, "query", "query must be a string."),
    ({"query": ["shoes"]}, "query", "query must be a string."),
    ({"query": {"text": "shoes"}}, "query", "query must be a string."),
    ({"query": "x", "history": "y"}, "history", "history must be a list of strings."),
    ({"query": "x", "history": None}, "history", "history must be a list of strings."),
    ({"query": "x", "history": ["a", 2]}, "history[1]", "history[1] must be a string."),
    ({"query": "x", "deadline_ms": 9}, "deadline_ms", "deadline_ms must be at least 10."),
    ({"query": "x", "deadline_ms": 2001}, "deadline_ms", "deadline_ms must be at most 2000."),
    ({"query": "x", "deadline_ms": "300"}, "deadline_ms", "deadline_ms must be a whole number."),
    ({"query": "x", "deadline_ms": 300.5}, "deadline_ms", "deadline_ms must be a whole number."),
    ({"query": "x", "deadline_ms": True}, "deadline_ms", "deadline_ms must be a whole number."),
    ({"query": "x", "locale": 5}, "locale", "locale must be a string."),
    ({"query": "x", "locale": "x" * 36}, "locale", "locale must have at most 35 characters."),
    ({"query": "x", "quary": "y"}, "quary", "quary is not a field of this request."),
    ([], "body", "The request body must be a JSON object."),
    ("shoes", "body", "The request body must be a JSON object."),
    (None, "body", "The request body must be a JSON object."),
]


@pytest.mark.parametrize(("body", "field", "words"), FIELD_ERRORS)
async def test_a_wrong_field_is_named_with_the_reason(body: object, field: str, words: str) -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
        for path in ("/plan", "/trace"):
            response = await client.post(path, content=json.dumps(body), headers=JSON)
            problem = assert_problem(response, 422)
            assert problem["errors"] == [{"field": field, "detail": words}]
            assert words in problem["detail"]
    assert engine.served == []


RAW_BODIES: list[tuple[bytes, int]] = [
    (b"", 422),
    (b"{", 400),
    (b"shoes", 400),
    (b'{"query": "a"', 400),
    (b'{"query": "\xff\xfe"}', 400),
    (b'{"query": "a\nb"}', 400),
    (b"[" * 15_000, 400),
    (b'{"a":' * 2500 + b"1" + b"}" * 2500, 400),
    (b'{"query": "\\ud800"}', 422),
    (b'{"query": "x", "history": ["\\ud800"]}', 422),
    (b'{"query": "x", "history": ["\\ud800", "1", "2", "3", "4", "5", "6", "7", "8"]}', 422),
    (b'{"query": "x", "\\ud800{0}": 1}', 422),
    (b'{"query": "x", "{error}": 1}', 422),
    (b'{"query": "x", "deadline_ms": NaN}', 422),
    (b'{"query": "x", "deadline_ms": 1e400}', 422),
    (b'{"query": "x", "deadline_ms": ' + b"9" * 5000 + b"}", 400),
    (b"{" + b",".join(b'"f%d": 1' % number for number in range(1000)) + b"}", 422),
]


@pytest.mark.parametrize(("body", "status"), RAW_BODIES)
async def test_bytes_that_are_no_request_are_refused_with_words(body: bytes, status: int) -> None:
    async with talking_to() as client:
        problem = assert_problem(await client.post("/plan", content=body, headers=JSON), status)
    assert len(problem.get("errors", [])) <= 20


@pytest.mark.parametrize("query", ODD_QUERIES)
async def test_odd_words_get_a_valid_plan(query: str) -> None:
    busy = FakeEngine(hold=True)
    for engine in (FakeEngine(), busy):
        async with talking_to(engine) as client:
            body = {"query": query, "history": [query], "deadline_ms": 50 if engine is busy else 2000}
            response = await client.post("/plan", json=body)
        assert response.status_code == 200
        Plan.model_validate(response.json()["plan"])


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
async def test_a_body_that_does_not_say_it_is_json_is_refused(content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    async with talking_to() as client:
        problem = assert_problem(await client.post("/plan", content=b'{"query": "x"}', headers=headers), 415)
    assert "application/json" in problem["detail"]


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", "application/ld+json"])
async def test_other_spellings_of_json_are_taken(content_type: str) -> None:
    async with talking_to() as client:
        response = await client.post("/plan", content=b'{"query": "x"}', headers={"content-type": content_type})
    assert response.status_code == 200


async def test_a_whole_number_may_be_written_as_json_likes() -> None:
    async with talking_to() as client:
        for number in (b"300", b"300.0", b"3e2"):
            content = b'{"query": "shoes", "deadline_ms": ' + number + b"}"
            assert (await client.post("/plan", content=content, headers=JSON)).status_code == 200


async def test_the_largest_plain_request_fits() -> None:
    async with talking_to() as client:
        response = await client.post("/plan", json={"query": "a" * 512, "history": ["b" * 512] * 8})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/plan", 405),
        ("PUT", "/plan", 405),
        ("DELETE", "/trace", 405),
        ("POST", "/healthz", 405),
        ("POST", "/", 405),
        ("GET", "/nothing", 404),
        ("POST", "/nothing", 404),
        ("GET", "/../app.py", 404),
        ("GET", "/%2e%2e/app.py", 404),
        ("GET", "/plan/", 404),
    ],
)
async def test_wrong_addresses_and_methods(method: str, path: str, status: int) -> None:
    async with talking_to() as client:
        response = await client.request(method, path, follow_redirects=False)
    assert_problem(response, status)
    assert (status == 405) == ("allow" in response.headers)


async def test_a_bug_of_ours_costs_a_trace_and_no_plan_and_shows_no_words(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeEngine):
        async def generate(self, request: Any) -> Any:  # noqa: ARG002
            raise ZeroDivisionError("secret words")

    async with talking_to(Broken()) as client:
        problem = assert_problem(await client.post("/trace", json={"query": "shoes"}), 500)
        answer = await client.post("/plan", json={"query": "shoes"})
        counted = (await client.get("/metrics")).text
    assert (answer.status_code, answer.json()["reason"]) == (200, "fault")
    assert answer.json()["plan"]["queries"] == ["shoes"]
    assert "secret" not in json.dumps(problem) + answer.text + caplog.text
    assert 'peakplan_fallbacks_total{reason="fault"} 2.0' in counted
    told = [vars(record) for record in caplog.records if record.levelname == "ERROR"]
    assert [each["question"] for each in told] == [hashlib.blake2b(b" shoes |", digest_size=8).hexdigest()] * 2


async def test_a_plan_that_cannot_be_completed_is_traced_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Plan:
        raise IndexError("secret words")

    monkeypatch.setattr(planner_module, "plan_from_draft", fails)
    async with talking_to(FakeEngine(text=" Find Type shoes Any")) as client:
        answer = await client.post("/trace", json={"query": "shoes"})
        counted = (await client.get("/metrics")).text
    assert (answer.status_code, answer.json()["reason"]) == (200, "fault")
    for way in ("medusa", "greedy"):
        assert answer.json()[way]["plan_text"] == " Find Type shoes Any"
        assert answer.json()[way]["plan"]["queries"] == ["shoes"]
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert vars(told)["question"] == hashlib.blake2b(b" shoes |", digest_size=8).hexdigest()
    assert 'peakplan_fallbacks_total{reason="fault"} 1.0' in counted
    assert "secret" not in answer.text + caplog.text


async def test_a_search_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("secret words")

    monkeypatch.setattr("peakplan_client.shop.Shop.open", fails)
    body = {"query": "boots", "plan": {"mode": "keyword", "intent": "find_product", "queries": ["boots"]}}
    async with talking_to() as client:
        answer = await client.post("/shop/search", json=body)
        counted = (await client.get("/metrics")).text
    assert (answer.status_code, answer.json()["by_plan"]) == (200, [])
    assert "failed at this search" in answer.json()["reason"]
    assert 'peakplan_fallbacks_total{reason="fault"} 1.0' in counted
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    assert "secret" not in answer.text + caplog.text


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=200) | st.text(max_size=600).map(lambda text: json.dumps({"query": text}).encode()))
def test_any_bytes_at_all(body: bytes) -> None:
    import anyio

    async def post() -> httpx.Response:
        async with talking_to() as client:
            return await client.post("/plan", content=body, headers=JSON)

    response = anyio.run(post)
    assert response.status_code in (200, 400, 422)
    if response.status_code == 200:
        Plan.model_validate(response.json()["plan"])
