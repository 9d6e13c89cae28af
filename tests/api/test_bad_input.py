"""Any input gets the right status with a clear message, or a valid plan: never a 500, never a hang."""

import hashlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from service.api.outcome_log import OUTCOMES, PLANS
from service.planner import planner as planner_module
from service.planner.plan import Plan
from tests.api.client import ODD_QUERIES, assert_problem, talking_to
from tests.fake_engines import FakeEngine
from tests.faults.under_load import fake_server

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
async def test_odd_words_get_a_valid_plan_without_a_model_too(query: str) -> None:
    async with talking_to(FakeEngine(hold=True)) as client:
        response = await client.post("/plan", json={"query": query, "history": [query], "deadline_ms": 50})
    assert response.status_code == 200
    Plan.model_validate(response.json()["plan"])


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
async def test_a_body_that_does_not_say_it_is_json_is_refused(content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    async with talking_to() as client:
        problem = assert_problem(await client.post("/plan", content=b'{"query": "x"}', headers=headers), 415)
    assert "application/json" in problem["detail"]


SMALL = b'{"query": "x"}'
LARGEST = json.dumps({"query": "a" * 512, "history": ["b" * 512] * 8}).encode()
SPELLINGS = ("application/json; charset=utf-8", "Application/JSON", "application/ld+json")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        *((SMALL, spelling) for spelling in SPELLINGS),
        *((SMALL[:-1] + b', "deadline_ms": ' + number + b"}", SPELLINGS[0]) for number in (b"300", b"300.0", b"3e2")),
        (LARGEST, SPELLINGS[0]),
    ],
)
async def test_other_spellings_and_the_largest_request_are_taken(body: bytes, content_type: str) -> None:
    async with talking_to() as client:
        response = await client.post("/plan", content=body, headers={"content-type": content_type})
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


EXAMPLES = 40  # for each operation; `make siege` tries others, in minutes


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        ["--exclude-path", "/plans", "--max-examples", str(EXAMPLES)],
        # A batch of any objects takes schemathesis seconds to think of: what is at random is in the test below.
        ["--include-path", "/plans", "--phases", "examples,coverage"],
    ],
    ids=["questions", "batches"],
)
def test_schemathesis_finds_nothing(tmp_path: Path, chosen: list[str]) -> None:
    """Run schemathesis by its command, because its pytest plugin uses pytest's private attributes."""
    settings = {"PEAKPLAN_MAX_BODY_BYTES": 1024 * 1024, "PEAKPLAN_CORS_ORIGINS": "*"}
    kept = {"PEAKPLAN_OUTCOMES_DIR": tmp_path / "outcomes", "PEAKPLAN_OUTCOMES_TEXT": 1}
    with fake_server(FAKE_SECONDS=0, FAKE_ANSWER="fixed", **settings, **kept) as server:
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json",
            *chosen, "--checks", "all", "--seed", "1", "--request-timeout", "60",
            "--generation-database", "none", "--no-color",
            "--suppress-health-check", "too_slow",  # a busy machine thinks of requests slowly; all are sent
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    kept_in = {PLANS: "plan"} if "--include-path" in chosen else {PLANS: "plan", OUTCOMES: "outcome"}
    for name, record in kept_in.items():
        lines = (tmp_path / "outcomes" / f"{name}.jsonl").read_text(encoding="utf-8").strip().split("\n")
        assert {json.loads(line)["record"] for line in lines} == {record}


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """Return any JSON value."""
    plain = [None, True, False, 0, -1, 1.5, 1e308, 2**70, "", "shoes", "\x00", "👟" * 3, "a" * 600, "\u202e", "1e5"]
    if depth > 3 or rng.random() < 0.6:
        return rng.choice(plain)
    if rng.random() < 0.5:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["query", "history", "x", ""]): any_value(rng, depth + 1) for _ in range(rng.randrange(4))}


@pytest.mark.slow
async def test_batches_of_random_values() -> None:
    rng = random.Random(2)
    seen: set[int] = set()
    async with talking_to() as client:
        for _ in range(500):
            requests = [any_value(rng) if rng.random() < 0.2 else {"query": any_value(rng)} for _ in range(3)]
            response = await client.post("/plans", json={"requests": rng.choice([requests, requests, any_value(rng)])})
            seen.add(response.status_code)
            assert response.status_code in (200, 422), requests
            for each in response.json().get("answers", []):
                assert each.keys() in ({"answer"}, {"problem"})
                assert "answer" in each or each["problem"]["status"] == 422
    assert seen == {200, 422}
