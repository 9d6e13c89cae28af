import asyncio

import pytest

from service.api.lifecycle import DeadlineWatch, Reloader
from service.engines.protocol import GenerationRequest, GenerationResult
from service.engines.worker.messages import ModelSource
from service.gateway.pool import ReplicaPool
from service.settings.groups import QueueSettings
from tests.api.client import assert_problem, talking_to
from tests.fake_engines import FakeEngine, request, until
from tests.processes import PATIENCE

pytestmark = pytest.mark.anyio


async def test_alive_says_nothing_of_the_model() -> None:
    engine = FakeEngine()
    async with talking_to(engine) as client:
        engine.start_failures = 100
        engine.fail()
        assert (await client.get("/healthz")).json() == {"status": "alive"}


async def test_ready_is_proven_by_a_real_inference_and_proven_again() -> None:
    engine = FakeEngine()
    async with talking_to(engine, readiness_ttl_seconds=1e-6) as client:
        for count in (1, 2):
            assert (await client.get("/readyz")).json() == {
                "status": "ready",
                "model": "fake",
                "kernel": "fake",
                "deadline_ms": 300,
            }
            assert len(engine.served) == count


async def test_recent_traffic_is_proof_enough() -> None:
    engine = FakeEngine()
    async with talking_to(engine, readiness_ttl_seconds=60) as client:
        await client.post("/plan", json={"query": "shoes"})
        assert (await client.get("/readyz")).status_code == 200
    assert len(engine.served) == 1


async def test_not_ready_while_every_replica_is_down() -> None:
    engine = FakeEngine()
    async with talking_to(engine, readiness_ttl_seconds=60) as client:
        assert (await client.get("/readyz")).status_code == 200
        engine.start_failures = 100
        engine.fail()
        response = await client.get("/readyz")
    assert "no replica" in assert_problem(response, 503)["detail"]
    assert response.headers["retry-after"] == "1"


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


class Slow(FakeEngine):
    async def generate(self, request: GenerationRequest) -> GenerationResult:
        await asyncio.sleep(0.2)
        return await super().generate(request)


class Sluggish(FakeEngine):
    async def generate(self, request: GenerationRequest) -> GenerationResult:
        await asyncio.sleep(0.03)
        return await super().generate(request)


async def test_a_machine_whose_plans_would_be_late_says_so_once_and_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with talking_to(Sluggish(), readiness_ttl_seconds=60, deadline_ms=25) as client:
        async with asyncio.timeout(PATIENCE):  # on a busy machine the first proof takes longer than a health check
            while (notice := (await client.get("/readyz")).json().get("notice")) is None:
                await asyncio.sleep(0.01)
    assert "PEAKPLAN_DEADLINE_MS=100" in notice
    assert '"deadline_ms": 100' in notice
    async with talking_to(Sluggish(), readiness_ttl_seconds=60, deadline_ms=2000) as client:
        assert "notice" not in (await client.get("/readyz")).json()
    pool = ReplicaPool([Sluggish()], warm_up=[GenerationRequest(prompt="", grammar="")])
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
    assert request["properties"]["deadline_ms"] | {"description": "", "title": ""} == {
        "type": "integer",
        "minimum": 10,
        "maximum": 2000,
        "default": 300,
        "description": "",
        "title": "",
    }
    assert set(post["responses"]) == {"200", "400", "401", "408", "413", "415", "422", "429", "503"}
    assert "find_product" in document["components"]["schemas"]["Plan"]["properties"]["intent"]["enum"]
    reference = post["responses"]["422"]["content"]["application/problem+json"]["schema"]["$ref"]
    assert "errors" in document["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
    named = f"{document['info']['title'].lower().replace(' ', '_')}_client"  # as openapi-python-client names a package
    assert named != "peakplan_client", "ours"


async def test_every_operation_is_in_a_group_that_says_what_it_is() -> None:
    """Without one /docs puts it under "default"."""
    async with talking_to() as client:
        document = (await client.get("/openapi.json")).json()
    groups = {group["name"]: group["description"] for group in document["tags"]}
    used = [operation["tags"] for path in document["paths"].values() for operation in path.values()]
    assert all(groups.values())
    assert {name for (name,) in used} == groups.keys()


async def test_every_answer_carries_safe_headers() -> None:
    async with talking_to() as client:
        for path in ("/", "/healthz", "/nothing"):
            headers = (await client.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


async def test_the_page_is_served_and_revalidated() -> None:
    async with talking_to() as client:
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
    engine = Slow()
    async with talking_to(engine, readiness_ttl_seconds=0.001) as client:
        while (await client.get("/readyz")).status_code == 503:  # its first proof takes longer than a health check
            await asyncio.sleep(0.05)
        await asyncio.sleep(2.1)  # the last plan is some time ago, and the neighbours are busy
        statuses = {(await client.get("/readyz")).status_code for _ in range(5)}
    assert statuses == {200}


async def test_readiness_says_why_replicas_are_down() -> None:
    engine = FakeEngine("the one")
    async with talking_to(engine) as client:
        engine.start_failures = 100
        engine.fail()
        await asyncio.sleep(0.3)
        assert "the one does not start" in assert_problem(await client.get("/readyz"), 503)["detail"]


async def test_where_files_have_changed_and_replicas_cannot_start_what_is_there_now_is_served() -> None:
    engine, source = FakeEngine(), ModelSource("loader", {}, version="one")
    pool = ReplicaPool([engine], version="one")
    await pool.start()
    adopted: list[str] = []
    reloader = Reloader(
        pool, lambda: source, lambda: lambda: adopted.append(source.version), lambda _, __: FakeEngine()
    )
    watching = asyncio.create_task(reloader.watch(seconds=0.01))
    source = ModelSource("loader", {}, version="two")
    await asyncio.sleep(0.1)
    assert pool.version == "one"  # all replicas are well: only an operator reloads
    engine.start_failures = 1000
    engine.fail()
    await until(lambda: pool.version == "two")
    assert (await pool.generate(request())).model_version == "two"
    assert adopted == ["two"]
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


async def test_files_that_cannot_be_read_for_a_while_do_not_end_the_watch() -> None:
    engine, found = FakeEngine(), [ModelSource("loader", {}, version="two")]
    pool = ReplicaPool([engine], version="one")
    await pool.start()

    def find() -> ModelSource:
        if len(looked) < 3:
            looked.append(None)
            raise OSError("gone")
        return found[0]

    looked: list[None] = []
    reloader = Reloader(pool, find, lambda: lambda: None, lambda _, __: FakeEngine())
    watching = asyncio.create_task(reloader.watch(seconds=0.01))
    engine.start_failures = 1000
    engine.fail()
    await until(lambda: pool.version == "two")
    assert len(looked) == 3  # and it looked on after each error
    watching.cancel()
    await reloader.close()
    await pool.close()
