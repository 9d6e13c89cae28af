"""The second level of the plan cache: a Redis or Valkey server that several hosts share.

A slow or dead server must cost a request next to nothing. So all reads of one event-loop iteration are sent as one MGET
over one connection; a read that exceeds `timeout` is abandoned, and after one failure there are no reads until a
background probe has been answered in time. Nothing waits for writes. All requests wait while an answer is parsed, so it
is read to a bound; a longer one ends the connection. Whatever the server answers is a miss at worst: entries are
checked against their question (`caching.py`) and, given a secret, for our signature.
"""

import asyncio
import contextlib
import hmac
import json
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

from redis._parsers import _AsyncRESP2Parser  # redis-py has no bound of its own, and its parsers no public name
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from service.planner.caching import CachedPlanText

logger = logging.getLogger(__name__)
T = TypeVar("T")

_PREFIX = "peakplan:"
_MAX_VALUE_BYTES = 8192
_MAX_UNWRITTEN = 1000
_MOST_KEYS = 256  # of one MGET
_MOST_PARTS = 2 * _MOST_KEYS  # of an answer, each a line
_MOST_BYTES = 2 * _MOST_KEYS * _MAX_VALUE_BYTES  # of an answer
_PARTS = 3  # of an entry without a meaning
_CONNECT_SECONDS = 0.5  # connecting is off every request's path
_MIN_PAUSE, _MAX_PAUSE = 0.1, 2.0  # between probes of a failing server


class OversizedAnswerError(Exception):
    """Raised where a server answers more than it can have been asked for."""


class _BoundedParser(_AsyncRESP2Parser):
    async def read_response(self, *given: Any, **more: Any) -> Any:
        self._parts = self._bytes = 0
        return await super().read_response(*given, **more)

    async def _readline(self) -> Any:
        self._parts += 1
        self._check()
        return await super()._readline()

    async def _read(self, length: int) -> Any:
        self._bytes += length
        self._check()
        return await super()._read(length)

    def _check(self) -> None:
        if self._parts > _MOST_PARTS or self._bytes > _MOST_BYTES:
            raise OversizedAnswerError


class RedisPlanCache:
    """A `SharedPlanCache` on a Redis or Valkey server."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        seconds: float,
        secret: str = "",
        credentials: CredentialProvider | None = None,
    ) -> None:
        """Take `timeout`, seconds for a read, and `seconds`, an entry's life. Raises ValueError for a bad URL.

        Given a `secret`, entries are signed with it, and others are ignored. Every connection asks `credentials` anew.
        """
        self._reads = _client(url, credentials)
        self._writes = _client(url, credentials)
        self._timeout = timeout
        self._secret = secret.encode()
        self._milliseconds = max(int(seconds * 1000), 1)
        self._asked: dict[str, asyncio.Future[CachedPlanText | None]] = {}
        self._unwritten: dict[str, CachedPlanText] = {}
        self._wake_reader, self._wake_writer = asyncio.Event(), asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.up = False

    def start(self) -> None:
        """Start to connect; until that is done, every `get` returns None at once."""
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    async def close(self) -> None:
        """Stop; pending writes are lost."""
        self.up = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._answer_all({})
        for client in (self._reads, self._writes):
            await _disconnect(client)

    async def get(self, key: str) -> CachedPlanText | None:
        if not self.up:
            return None
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.get_running_loop().create_future()
            self._wake_reader.set()
        await asyncio.wait({asked}, timeout=self._timeout)
        return asked.result() if asked.done() else None

    def put(self, key: str, remembered: CachedPlanText) -> None:
        if self.up and len(self._unwritten) < _MAX_UNWRITTEN:
            self._unwritten[key] = remembered
            self._wake_writer.set()

    async def _read(self) -> None:
        pause = _MIN_PAUSE
        while True:
            try:
                await self._probe()
                logger.info("shared cache up")
                pause = _MIN_PAUSE
                await self._read_until_it_fails()
            except Exception as error:  # a server may answer anything, and so may what is not one
                if self.up or pause == _MIN_PAUSE:
                    logger.warning("shared cache down", extra={"reason": type(error).__name__})
            self.up = False
            self._answer_all({})
            await _disconnect(self._reads)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _MAX_PAUSE)

    async def _probe(self) -> None:
        """Connect, then check that answers arrive in time."""
        await _within(_CONNECT_SECONDS, self._reads.ping())
        await _within(self._timeout, self._reads.ping())
        self.up = True

    async def _read_until_it_fails(self) -> None:
        while True:
            await self._wake_reader.wait()
            self._wake_reader.clear()
            keys = list(self._asked)[:_MOST_KEYS]
            # A busy event loop must not count as a slow server: requests are sent in time, and the connection is
            # dropped later.
            values = await _within(4 * self._timeout, self._reads.mget([_PREFIX + key for key in keys]))
            found = {key: self._decode(key, value) for key, value in zip(keys, values, strict=True)}
            self._answer_all(found, keys)
            if self._asked:
                self._wake_reader.set()

    async def _write(self) -> None:
        while True:
            await self._wake_writer.wait()
            self._wake_writer.clear()
            batch, self._unwritten = self._unwritten, {}
            try:
                async with self._writes.pipeline(transaction=False) as pipeline:
                    for key, remembered in batch.items():
                        pipeline.set(_PREFIX + key, self._encode(key, remembered), px=self._milliseconds)
                    await _within(_CONNECT_SECONDS, pipeline.execute())
            except Exception as error:
                logger.debug("shared cache took no entry", extra={"reason": type(error).__name__})
                await _disconnect(self._writes)

    def _encode(self, key: str, remembered: CachedPlanText) -> bytes:
        parts = [remembered.text, remembered.model_id, remembered.strategy]
        parts += filter(None, [remembered.meaning])
        return json.dumps([*parts, self._signature(key, parts)]).encode()

    def _decode(self, key: str, value: object) -> CachedPlanText | None:
        """Decode an entry; None for any other value."""
        if not isinstance(value, bytes) or len(value) > _MAX_VALUE_BYTES:
            return None
        try:
            *parts, signature = json.loads(value)
            text, model_id, strategy, meaning = parts if len(parts) > _PARTS else (*parts, "")
            is_ours = hmac.compare_digest(signature, self._signature(key, parts))
        except (ValueError, TypeError, RecursionError):
            return None
        return CachedPlanText(text, model_id, strategy, meaning) if is_ours else None

    def _signature(self, key: str, parts: list[str]) -> str:
        """Return the signature of a key's entry; "" where there is no secret. Raises TypeError, ValueError."""
        signed = "\0".join([key, *parts]).encode()
        return hmac.new(self._secret, signed, "sha256").hexdigest() if self._secret else ""

    def _answer_all(self, found: dict[str, CachedPlanText | None], keys: list[str] | None = None) -> None:
        for key in list(self._asked) if keys is None else keys:
            asked = self._asked.pop(key)
            if not asked.done():
                asked.set_result(found.get(key))


def _client(url: str, credentials: CredentialProvider | None) -> "Redis":
    """Return a client with one connection and no retries: a second attempt is left to the next probe."""
    client = Redis.from_url(
        url,
        max_connections=1,
        socket_connect_timeout=_CONNECT_SECONDS,
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        client_name="peakplan",
        credential_provider=credentials,
        parser_class=_BoundedParser,
        protocol=2,
    )
    if client.connection_pool.connection_kwargs["protocol"] != 2:
        raise ValueError("the address of a Redis server must not ask for another protocol than 2, which is parsed here")
    return client


async def _within(seconds: float, work: Awaitable[T]) -> T:
    async with asyncio.timeout(seconds):
        return await work


async def _disconnect(client: "Redis") -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CONNECT_SECONDS):
            await client.connection_pool.disconnect(inuse_connections=True)


_TOKEN_SECONDS = 900


class ElastiCacheTokens(CredentialProvider):
    """A host's password for ElastiCache: a token of 15 minutes that its instance role signs for every connection.

    So no secret is stored. Source: Amazon ElastiCache user guide, Authenticating with IAM: the token is a presigned
    request without its scheme. Not run in a real account.
    """

    def __init__(self, user: str, cache: str, region: str, session: Any = None) -> None:
        """Take the ElastiCache user and the replication group's id; `session` finds the keys of the instance's role."""
        import botocore.session  # takes memory and a moment, which few services need

        self._user, self._cache, self._region = user, cache.lower(), region
        self._session = session or botocore.session.get_session()

    def get_credentials(self) -> tuple[str, str]:
        """Return user and token. Raises OSError where the instance has no role."""
        from botocore.exceptions import BotoCoreError, NoCredentialsError
        from botocore.model import ServiceId
        from botocore.signers import RequestSigner

        try:
            if (keys := self._session.get_credentials()) is None:
                raise NoCredentialsError
            events = self._session.get_component("event_emitter")
            signer = RequestSigner(ServiceId("elasticache"), self._region, "elasticache", "v4", keys, events)
            url = f"https://{self._cache}/?Action=connect&User={self._user}"
            request = {"method": "GET", "url": url, "body": {}, "headers": {}, "context": {}}
            signed: str = signer.generate_presigned_url(request, "connect", _TOKEN_SECONDS, self._region)
        except BotoCoreError as error:
            raise OSError(f"no token for ElastiCache: {error}") from None
        return self._user, signed.removeprefix("https://")

    async def get_credentials_async(self) -> tuple[str, str]:
        """Return user and token, without blocking the event loop while the metadata service answers."""
        return await asyncio.to_thread(self.get_credentials)
