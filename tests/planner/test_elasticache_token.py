"""Tokens for ElastiCache: signed with the role's keys, and good for exactly what a host needs of a real server."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from infra.fleet.shared_cache import ACCESS
from service.planner.elasticache_token import ElastiCacheTokens
from service.planner.plan_cache import CachedPlanText
from service.planner.redis_plan_cache import RedisPlanCache
from service.settings.groups import CacheSettings
from tests.redis_server import RedisServer, needs_redis, redis_server

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = "token/with+every=thing&more"
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()
ENTRY = CachedPlanText(" find Type shoes Any", "model", "medusa")


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


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@needs_redis
@pytest.mark.anyio
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
        async with asyncio.timeout(20):
            while not memory.up:
                await asyncio.sleep(0.005)
            memory.put("key", ENTRY)
            while await memory.get("key") != ENTRY:
                await asyncio.sleep(0.01)
        await memory.close()
    async with Redis.from_url(redis.url, username=user, password=password) as host:
        for forbidden in (
            ("GET", "session:1"),
            ("FLUSHALL",),
            ("KEYS", "*"),
            ("CONFIG", "GET", "*"),
            ("DEL", "peakplan:key"),
        ):
            with pytest.raises(NoPermissionError):
                await host.execute_command(*forbidden)


@pytest.mark.parametrize("url", ["redis://cache:6380/0", None])
def test_a_token_goes_over_tls_alone(url: str | None) -> None:
    named = {"iam_user": "dev-cell-1", "iam_cache": "shared", "iam_region": "us-east-1"}
    with pytest.raises(ValidationError, match="rediss"):
        CacheSettings.model_validate({"url": url, **named})
    assert CacheSettings.model_validate({"url": "rediss://cache:6380/0", **named}).iam_cache == "shared"
