"""ElastiCache's tokens: signed as botocore signs them, and good for exactly what a host needs of a real server."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import botocore.session
import pytest
from botocore.credentials import Credentials
from botocore.model import ServiceId
from botocore.signers import RequestSigner
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from infra.fleet.shared_cache import ACCESS
from service.planner import elasticache_token
from service.planner.elasticache_token import ElastiCacheTokens, RoleKeys, signed_token
from service.planner.plan_cache import CachedPlanText
from service.planner.redis_plan_cache import RedisPlanCache
from service.settings.groups import CacheSettings
from tests.redis_server import RedisServer, needs_redis, redis_server

KEYS = RoleKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "token/with+every=thing&more")
NOW = datetime(2027, 7, 13, 7, 0, 5, tzinfo=UTC)
ENTRY = CachedPlanText(" find Type shoes Any", "model", "medusa")


def by_botocore() -> str:
    """The token as AWS's own examples make it."""
    session = botocore.session.get_session()
    signer = RequestSigner(
        ServiceId("elasticache"),
        "us-east-1",
        "elasticache",
        "v4",
        Credentials(KEYS.access_key, KEYS.secret_key, KEYS.session_token),
        session.get_component("event_emitter"),
    )
    request = {
        "method": "GET",
        "url": "https://shared/?Action=connect&User=dev-cell-1",
        "body": {},
        "headers": {},
        "context": {},
    }
    url: str = signer.generate_presigned_url(request, operation_name="connect", expires_in=900, region_name="us-east-1")
    return url.removeprefix("https://")


def test_a_token_is_signed_as_botocore_signs_it() -> None:
    theirs = by_botocore()
    fields = dict(part.split("=", 1) for part in theirs.partition("?")[2].split("&"))
    now = datetime.strptime(fields["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    host, _, query = signed_token("dev-cell-1", "shared", "us-east-1", KEYS, now).partition("?")
    assert host == "shared/"
    assert dict(part.split("=", 1) for part in query.split("&")) == fields


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Answers(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer("session")

        def do_GET(self) -> None:
            if self.headers["X-aws-ec2-metadata-token"] != "session":
                return self.send_error(401)
            keys = {"AccessKeyId": KEYS.access_key, "SecretAccessKey": KEYS.secret_key, "Token": KEYS.session_token}
            return self._answer(json.dumps(keys) if self.path.endswith("/a-role") else "a-role\n")

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            del words

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(elasticache_token, "METADATA", f"http://127.0.0.1:{server.server_port}")
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
async def test_a_host_connects_with_its_role_and_may_do_what_it_needs_alone(redis: RedisServer) -> None:
    tokens = ElastiCacheTokens("dev-cell-1", "Shared", "us-east-1", clock=lambda: NOW)
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
