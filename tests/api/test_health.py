"""What the service says of itself: health, readiness, its documents, its page; and reloads by itself."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from starlette.types import Message

from service.api.lifecycle import DeadlineWatch, Reloader
from service.api.page import page_routes
from service.engines.protocol import GenerationRequest
from service.engines.worker.messages import ModelSource
from service.gateway.pool import ReplicaPool
from service.planner.plan import Plan
from service.planner.question import MAX_HISTORY_WORDS
from service.planner.vocabulary import FILE_NAME, shipped_vocabulary
from service.settings.groups import QueueSettings
from service.telemetry.names import DegradedReason
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine, request, until
from tests.planner.test_plan_text import GROCER, write
from tests.processes import PATIENCE

pytestmark = pytest.mark.anyio


async def test_alive_says_nothing_of_the_model() -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
        engine.start_failures = 100
        engine.fail()
        assert (await client.get("/healthz")).json() == {"status": "alive"}


@pytest.mark.parametrize(("seconds", "served"), [(1e-6, 3), (60, 1)])
async def test_ready_is_proven_by_a_real_inference_and_again_where_no_traffic_was_lately(
    seconds: float, served: int
) -> None:
    engine, told = FakeEngine(), {"status": "ready", "model": "fake", "kernel": "fake", "deadline_ms": 300}
    async with talking_to(engine, readiness_ttl_seconds=seconds) as client:
        await client.post("/plan", json={"query": "shoes"})
        assert [(await client.get("/readyz")).json() for _ in range(2)] == [told] * 2
    assert len(engine.served) == served


async def test_not_ready_while_every_replica_is_down_and_it_says_why() -> None:
    engine = FakeEngine("the one")
    async with talking_to(engine, readiness_ttl_seconds=60) as client:
        assert (await client.get("/readyz")).status_code == 200
        engine.start_failures = 100
        engine.fail()
        response = await client.get("/readyz")
        assert "no replica" in assert_problem(response, 503)["detail"]
        assert response.headers["retry-after"] == "1"
        async with asyncio.timeout(PATIENCE):
            while "the one does not start" not in (await client.get("/readyz")).json()["detail"]:
                await asyncio.sleep(0.01)


async def test_not_ready_once_a_replica_stays_down_so_that_its_host_is_replaced() -> None:
    stuck, well = FakeEngine("NeuronCore(s) not available: it"), FakeEngine()
    for limit, status in ((0.3, 503), (0, 200)):
        async with talking_to(
            stuck, well, readiness_ttl_seconds=60, queue=QueueSettings(lost_replica_seconds=limit)
        ) as client:
            assert (await client.get("/readyz")).status_code == 200
            stuck.start_failures = 100
            stuck.fail()
            async with asyncio.timeout(PATIENCE):
                while limit and (await client.get("/readyz")).status_code == 200:
                    await asyncio.sleep(0.01)
            response = await client.get("/readyz")
            assert response.status_code == status
            stuck.start_failures = 0
        if status == 503:
            detail = assert_problem(response, 503)["detail"]
            assert "this host must be replaced: NeuronCore(s) not available: it does not start" in detail


async def test_a_machine_whose_plans_would_be_late_says_so_once_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with talking_to(FakeEngine(seconds=0.03), readiness_ttl_seconds=60, deadline_ms=25) as client:
        async with asyncio.timeout(PATIENCE):  # on a busy machine the first proof takes longer than a health check
            while (notice := (await client.get("/readyz")).json().get("notice")) is None:
                await asyncio.sleep(0.01)
    assert "PEAKPLAN_DEADLINE_MS=100" in notice
    assert '"deadline_ms": 100' in notice
    async with talking_to(FakeEngine(seconds=0.03), readiness_ttl_seconds=60, deadline_ms=2000) as client:
        assert "notice" not in (await client.get("/readyz")).json()
    pool = ReplicaPool([FakeEngine(seconds=0.03)], warm_up=[GenerationRequest(prompt="", grammar="")])
    await pool.start()
    watching = asyncio.create_task(DeadlineWatch(pool, 25).watch(seconds=0.001))
    await asyncio.sleep(0.05)
    watching.cancel()
    await pool.close()
    (said,) = [record for record in caplog.records if "longer here than the deadline" in record.message]
    assert said.levelname == "WARNING"
    assert "PEAKPLAN_DEADLINE_MS=100" in vars(said)["detail"]


async def test_not_ready_when_the_model_answers_nonsense() -> None:
    async with talking_to(FakeEngine(text=" gibberish")) as client:
        assert "trial plan failed" in assert_problem(await client.get("/readyz"), 503)["detail"]


async def test_the_openapi_document_describes_the_contract() -> None:
    async with talking_to() as client:
        document = (await client.get("/openapi.json")).json()
    post = document["paths"]["/plan"]["post"]
    request = document["components"]["schemas"]["PlanRequest"]
    assert request["additionalProperties"] is False
    bounds = {"type": "integer", "minimum": 10, "maximum": 2000, "default": 300}
    assert request["properties"]["deadline_ms"].items() >= bounds.items()
    assert set(post["responses"]) == {"200", "400", "401", "408", "413", "415", "422", "429", "503"}
    assert "find_product" in document["components"]["schemas"]["Plan"]["properties"]["intent"]["enum"]
    reference = post["responses"]["422"]["content"]["application/problem+json"]["schema"]["$ref"]
    assert "errors" in document["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
    named = f"{document['info']['title'].lower().replace(' ', '_')}_client"  # as openapi-python-client names a package
    assert named != "peakplan_client", "ours"


async def test_operations_have_names_that_people_would_choose_and_groups_that_say_what_they_are() -> None:
    """Without one /docs puts it under "default"."""
    async with talking_to() as client:
        document = (await client.get("/openapi.json")).json()
    groups = {group["name"]: group["description"] for group in document["tags"]}
    used = [operation["tags"] for path in document["paths"].values() for operation in path.values()]
    assert all(groups.values())
    assert {name for (name,) in used} == groups.keys()
    named = {path: operation["operationId"] for path, item in document["paths"].items() for operation in item.values()}
    wanted = {"/plan": "plan", "/trace": "trace", "/vocabulary": "vocabulary", "/healthz": "health"}
    assert named.items() >= {**wanted, "/readyz": "readiness"}.items()
    history = document["components"]["schemas"]["PlanRequest"]["properties"]["history"]
    assert "newest 8 messages" in history["description"]
    assert f"{MAX_HISTORY_WORDS} words" in history["description"]


async def test_the_page_is_served_and_revalidated_and_every_answer_carries_safe_headers() -> None:
    async with talking_to() as client:
        for path in ("/", "/healthz", "/nothing"):
            headers = (await client.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
        page = await client.get("/")
        assert page.headers["content-type"].startswith("text/html")
        again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert again.status_code == 304


async def test_readiness_is_said_within_a_moment_also_where_every_replica_is_busy_or_stuck() -> None:
    engine = FakeEngine()
    async with talking_to(engine, readiness_ttl_seconds=0.001) as client:
        assert (await client.get("/readyz")).status_code == 200
        engine.hold()
        assert (await client.get("/readyz")).status_code == 200  # a plan was made a moment ago
        async with asyncio.timeout(PATIENCE):  # the trial plan is given up after two seconds, later on a busy machine
            while (response := await client.get("/readyz")).status_code == 200:
                await asyncio.sleep(0.05)
        problem = assert_problem(response, 503)
        assert "trial plan" in problem["detail"]
        engine.let_go()


async def test_a_slow_proof_after_idle_hours_is_no_reason_to_leave_service() -> None:
    engine = FakeEngine(seconds=0.2)
    async with talking_to(engine, readiness_ttl_seconds=0.001) as client:
        while (await client.get("/readyz")).status_code == 503:  # its first proof takes longer than a health check
            await asyncio.sleep(0.05)
        await asyncio.sleep(2.1)  # the last plan is some time ago, and the neighbours are busy
        statuses = {(await client.get("/readyz")).status_code for _ in range(5)}
    assert statuses == {200}


async def test_where_files_have_changed_and_replicas_cannot_start_what_is_there_now_is_served() -> None:
    engine, found, adopted = FakeEngine(), ["one"], list[str]()
    pool = ReplicaPool([engine], version="one")
    await pool.start()

    def find() -> ModelSource:
        if not found[-1]:
            found.pop()
            raise OSError("gone")
        return ModelSource("loader", {}, version=found[-1])

    reloader = Reloader(pool, find, lambda: lambda: adopted.append(found[-1]), lambda _, __: FakeEngine())
    watching = asyncio.create_task(reloader.watch(seconds=0.01))
    found.append("two")
    await asyncio.sleep(0.1)
    assert pool.version == "one"  # all replicas are well: only an operator reloads
    found += [""] * 3  # the files cannot be read for a while, which does not end the watch
    engine.start_failures = 1000
    engine.fail()
    await until(lambda: pool.version == "two")
    assert (await pool.generate(request())).model_version == "two"
    assert (adopted, found) == (["two"], ["one", "two"])
    watching.cancel()
    await reloader.close()
    await pool.close()


async def test_whatever_keeps_a_reload_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> ModelSource:
        raise RecursionError("too deep")

    pool = ReplicaPool([FakeEngine()], version="one")
    await pool.start()
    reloader = Reloader(pool, broken, lambda: lambda: None, lambda _, __: FakeEngine())
    reloader.request()
    await until(lambda: "reload failed" in caplog.text)
    assert "RecursionError" in vars(caplog.records[-1])["exception"]
    await reloader.close()
    await pool.close()


async def test_the_vocabulary_is_the_model_folders() -> None:
    async with talking_to() as client:
        served = (await client.get("/vocabulary")).json()
    assert served == json.loads(shipped_vocabulary().model_dump_json())
    assert served["verticals"]["sporting-goods"]["name"] == "Sporting Goods"


async def test_openapi_and_plans_follow_a_shops_own_vocabulary(tmp_path: Path) -> None:
    async with talking_to(model_dir=write(tmp_path, GROCER)) as client:
        schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
        served = (await client.get("/vocabulary")).json()
    plan = schemas["Plan"]["properties"]
    assert plan["intent"]["enum"] == list(served["intents"]) == ["find_product", "ask_product", "recipe"]
    assert plan["vertical"]["enum"] == ["fresh-food", None]
    assert plan["sources"]["items"]["enum"] == ["shelf", "labels"]
    assert schemas["Part"]["properties"]["exclude"]["propertyNames"] == {"enum": ["diet", "type"]}
    (example,) = schemas["Plan"]["examples"]
    assert Plan.model_validate(example).sources == ["shelf"]
    assert set(example["facets"]) <= {"diet", "type"}


async def test_a_folder_without_a_vocabulary_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=FILE_NAME):
        async with talking_to(model_dir=tmp_path):
            pass


async def test_the_documentation_needs_no_other_host() -> None:
    pytest.importorskip("fastapi_offline")
    async with talking_to() as client:
        page = await client.get("/docs")
        parts = [await client.get(path) for path in ("/docs.js", "/swagger-ui-bundle.js", "/swagger-ui.css")]
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text
    assert [part.status_code for part in parts] == [200] * 3


async def test_the_page_explains_every_reason_of_a_plan_without_the_model() -> None:
    async with talking_to() as client:
        script = (await client.get("/plan.js")).text
    (reasons,) = re.findall(r"const REASONS = \{(.*?)\n\};", script, re.DOTALL)
    assert set(re.findall(r"^  (\w+): ", reasons, re.MULTILINE)) == set(get_args(DegradedReason))


async def test_a_file_is_sent_in_pieces_to_so_many_readers_at_once(tmp_path: Path) -> None:
    (tmp_path / "large.js").write_bytes(b"x" * 300_000)
    (route,) = [route for route in page_routes(tmp_path) if route.path == "/large.js"]
    may_read = asyncio.Event()

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def ask(messages: list[Message], *, slowly: bool) -> None:
        async def send(message: Message) -> None:
            messages.append(message)
            if slowly:
                await may_read.wait()

        scope: dict[str, Any] = {"type": "http", "method": "GET", "headers": [], "state": {"request_id": "x"}}
        await route.app(scope, never, send)

    readers: list[list[Message]] = [[] for _ in range(32)]
    reading = [asyncio.create_task(ask(messages, slowly=True)) for messages in readers]
    await until(lambda: all(readers))
    refused: list[Message] = []
    await ask(refused, slowly=False)
    assert refused[0]["status"] == 503
    assert (b"retry-after", b"1") in refused[0]["headers"]
    may_read.set()
    await asyncio.gather(*reading)
    for first, *pieces in readers:
        assert first["status"] == 200
        assert max(len(piece.get("body", b"")) for piece in pieces) < 100_000
        assert sum(len(piece.get("body", b"")) for piece in pieces) == 300_000
