"""The shared plan cache against a real redis-server: alive, dead, frozen, slow, and full of foreign values."""

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from infra.fleet.shared_cache import ACCESS
from service.planner.caching import CachedPlanText
from service.planner.redis_plan_cache import ElastiCacheTokens, RedisPlanCache
from service.settings.groups import CacheSettings
from tests.redis_server import RedisServer, needs_redis, redis_server

pytestmark = [pytest.mark.anyio, needs_redis]
ENTRY = CachedPlanText(" find Type shoes Any", "model", "medusa", "0123456789abcdef:AQID")
BARE = CachedPlanText(" find Type shoes Any", "model", "medusa")
GENEROUS = 0.5  # a read timeout for tests about something else


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("redis")


@pytest.fixture
def redis(folder: Path) -> Iterator[RedisServer]:
    with redis_server(folder) as server:
        yield server


async def until_up(memory: RedisPlanCache, expected: bool = True) -> None:
    async with asyncio.timeout(20):
        while memory.up is not expected:
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def connected(
    url: str, timeout: float = GENEROUS, seconds: float = 60.0, secret: str = ""
) -> AsyncIterator[RedisPlanCache]:
    memory = RedisPlanCache(url, timeout=timeout, seconds=seconds, secret=secret)
    memory.start()
    await until_up(memory)
    yield memory
    await memory.close()


async def kept(memory: RedisPlanCache, key: str) -> CachedPlanText | None:
    """Return the entry, once the pending write is done."""
    for _ in range(500):
        if (entry := await memory.get(key)) is not None:
            return entry
        await asyncio.sleep(0.01)
    return None


async def test_what_one_process_puts_another_gets(redis: RedisServer) -> None:
    async with connected(redis.url) as one, connected(redis.url) as other:
        assert await other.get("key") is None
        one.put("key", ENTRY)
        one.put("bare", BARE)
        assert await kept(other, "key") == ENTRY
        assert await kept(other, "bare") == BARE  # as hosts of an earlier release write it


async def test_many_reads_at_once_share_one_connection(redis: RedisServer) -> None:
    async with connected(redis.url) as memory:
        memory.put("7", ENTRY)
        assert await kept(memory, "7") == ENTRY
        found = await asyncio.gather(*(memory.get(str(number % 50)) for number in range(500)))
        assert [entry is not None for entry in found] == [number % 50 == 7 for number in range(500)]
        async with Redis.from_url(redis.url) as client:
            assert len([one for one in await client.client_list() if one["name"] == "peakplan"]) <= 2


async def test_entries_expire(redis: RedisServer) -> None:
    async with connected(redis.url, seconds=0.05) as memory:
        memory.put("key", ENTRY)
        await asyncio.sleep(0.2)
        assert await memory.get("key") is None


GARBAGE = [
    b"", b"\xff\x00", b"{}", b"5", b"null", b'["a", "b"]', b'["a", "b", 3, ""]', b'["a", "b", "c", 5]',
    b'["a", "b", "c", 5, ""]', b'["a", "b", "c", "d", "e", ""]', b'["\\ud800", "b", "c", "\\ud800"]', b"[" * 5000,
    b"x" * 9000,
]  # fmt: skip


@pytest.mark.parametrize("value", GARBAGE)
async def test_what_is_no_entry_of_ours_is_no_entry(redis: RedisServer, value: bytes) -> None:
    async with connected(redis.url) as memory, Redis.from_url(redis.url) as client:
        await client.set("peakplan:key", value)
        assert await memory.get("key") is None
        assert memory.up


async def test_a_server_that_was_never_there_costs_nothing(folder: Path) -> None:
    memory = RedisPlanCache(RedisServer(folder).url, timeout=GENEROUS, seconds=60)
    memory.start()
    assert await memory.get("key") is None
    memory.put("key", ENTRY)
    await asyncio.sleep(0.05)
    assert not memory.up
    await memory.close()


async def test_a_killed_server_is_left_alone_until_it_is_back(redis: RedisServer) -> None:
    async with connected(redis.url) as memory:
        redis.kill()
        assert await memory.get("key") is None
        await until_up(memory, expected=False)
        redis.start()
        await until_up(memory)
        memory.put("key", ENTRY)
        assert await kept(memory, "key") == ENTRY


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="redis"):
        RedisPlanCache("http://somewhere", timeout=1, seconds=1)
    with pytest.raises(ValueError, match="protocol"):
        RedisPlanCache("redis://somewhere?protocol=3", timeout=1, seconds=1)


@contextlib.asynccontextmanager
async def answering(reply: bytes, delay: float = 0.0) -> AsyncIterator[str]:
    """Run a server that answers PING and CLIENT properly, the first MGET with `reply`, and others with one miss."""
    replies = [reply]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while words := int((await reader.readline())[1:] or 0):
                command, *_ = [await _word(reader) for _ in range(words)]
                await asyncio.sleep(delay)
                known = {b"PING": b"+PONG\r\n", b"MGET": b"*1\r\n$-1\r\n"}.get(command.upper(), b"+OK\r\n")
                writer.write(replies.pop() if command.upper() == b"MGET" and replies else known)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}?protocol=2"


async def _word(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readexactly(int((await reader.readline())[1:]) + 2))[:-2]


async def test_a_server_that_answers_more_slowly_than_a_read_may_take_counts_as_down() -> None:
    async with answering(b"*1\r\n$-1\r\n", delay=0.1) as url:
        memory = RedisPlanCache(url, timeout=0.02, seconds=60)
        memory.start()
        await asyncio.sleep(0.5)
        assert not memory.up
        assert await memory.get("key") is None
        await memory.close()
        await asyncio.sleep(0.3)  # let the server's answers end


REPLIES = [
    b":5\r\n", b"*1\r\n:5\r\n", b"*2\r\n$-1\r\n$-1\r\n", b"*1\r\n" * 5000 + b":1\r\n", b"!\r\n", b"-ERR\r\n",
    b"$-1\r\n",
]  # fmt: skip


@pytest.mark.parametrize("reply", REPLIES)
async def test_whatever_a_server_answers_the_next_read_works(reply: bytes) -> None:
    async with answering(reply) as url, connected(url) as memory:
        assert await memory.get("key") is None
        await until_up(memory)
        started = time.monotonic()
        assert await memory.get("key") is None
        assert time.monotonic() - started < GENEROUS


@pytest.mark.parametrize(
    "reply", [b"*1000000\r\n" + b"$-1\r\n" * 1_000_000, b"*1\r\n$999999999\r\n"], ids=["nils", "bytes"]
)
async def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    reply: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with answering(reply) as url, connected(url) as memory:
        assert await memory.get("key") is None
        await until_up(memory, False)
        await until_up(memory)
    (told,) = [record for record in caplog.records if record.message == "shared cache down"]
    assert vars(told)["reason"] == "OversizedAnswerError"


async def test_entries_without_our_signature_are_none(redis: RedisServer) -> None:
    async with connected(redis.url) as anybody, connected(redis.url, secret="ours") as one:
        anybody.put("key", ENTRY)
        assert await kept(anybody, "key") == ENTRY
        assert await one.get("key") is None
        one.put("key", ENTRY)
        assert await kept(one, "key") == ENTRY
        async with Redis.from_url(redis.url) as client:  # a signature is for one key
            await client.copy("peakplan:key", "peakplan:another")
        assert await one.get("another") is None


ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = "token/with+every=thing&more"
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()


def test_a_token_expires_and_names_user_cache_and_region(metadata: None) -> None:
    del metadata
    user, token = ElastiCacheTokens("dev-cell-1", "Shared", "us-east-1").get_credentials()
    host, _, query = token.partition("?")
    assert (user, host) == ("dev-cell-1", "shared/")
    signed = dict(parse_qsl(query))
    assert (signed["Action"], signed["User"]) == ("connect", "dev-cell-1")
    assert signed["X-Amz-Expires"] == "900"
    assert signed["X-Amz-Security-Token"] == TOKEN
    assert re.fullmatch(f"{ACCESS_KEY}/[0-9]{{8}}/us-east-1/elasticache/aws4_request", signed["X-Amz-Credential"])
    assert re.fullmatch("[0-9a-f]{64}", signed["X-Amz-Signature"])


def test_a_host_without_a_role_has_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    no_other_keys(monkeypatch)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(OSError, match="no token for ElastiCache"):
        ElastiCacheTokens("dev-cell-1", "shared", "us-east-1").get_credentials()


def no_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave botocore the metadata service alone."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Answers(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer("session")

        def do_GET(self) -> None:
            if self.headers["x-aws-ec2-metadata-token"] != "session":
                return self.send_error(401)
            keys = {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Token": TOKEN, "Expiration": TOMORROW}
            return self._answer(json.dumps(keys) if self.path.endswith("/a-role") else "a-role\n")

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            del words

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    no_other_keys(monkeypatch)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("metadata")
async def test_a_host_connects_with_its_role_and_may_do_what_it_needs_alone(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: now)  # so that each token is the same password
    tokens = ElastiCacheTokens("dev-cell-1", "Shared", "us-east-1")
    user, password = await tokens.get_credentials_async()
    async with Redis.from_url(redis.url) as operator:
        await operator.execute_command("ACL", "SETUSER", user, f">{password}", *ACCESS.split())
        await operator.execute_command("ACL", "SETUSER", "default", "off")
        memory = RedisPlanCache(redis.url, timeout=0.5, seconds=60, credentials=tokens)
        memory.start()
        await until_up(memory)
        memory.put("key", ENTRY)
        assert await kept(memory, "key") == ENTRY
        await memory.close()
    async with Redis.from_url(redis.url, username=user, password=password) as host:
        for forbidden in ("GET session:1", "FLUSHALL", "KEYS *", "CONFIG GET *", "DEL peakplan:key"):
            with pytest.raises(NoPermissionError):
                await host.execute_command(*forbidden.split())


@pytest.mark.parametrize("url", ["redis://cache:6380/0", None])
def test_a_token_goes_over_tls_alone(url: str | None) -> None:
    named = {"iam_user": "dev-cell-1", "iam_cache": "shared", "iam_region": "us-east-1"}
    with pytest.raises(ValidationError, match="rediss"):
        CacheSettings.model_validate({"url": url, **named})
    assert CacheSettings.model_validate({"url": "rediss://cache:6380/0", **named}).iam_cache == "shared"
