"""Access control: bearer tokens where required, rate limits for each caller, and load shedding.

A refusal here costs next to nothing: no body is read, and nothing is parsed.
"""

import math
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.api_keys import ApiKeys
from service.api.problems import problem_response
from service.api.rates import RateLimiter
from service.gateway.load_shedder import LoadShedder

_RETRY_AFTER = {"retry-after": "1"}
_LOOPBACK = ("127.0.0.1", "::1")
_FORWARDED = ("forwarded", "x-forwarded-for", "via")


class Access:
    """Middleware that answers 401, 429 or 503 for `guarded` paths, and 403 for `local` ones from other hosts."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: ApiKeys,
        rate: float,
        load_shedder: LoadShedder,
        guarded: Collection[str],
        limited: Collection[str],
        local: Collection[str],
    ) -> None:
        """Take `rate`, requests per second of a caller without its own; `limited` paths are shed under load."""
        self._app = app
        self._tokens = tokens
        self._rate = rate
        self._load_shedder = load_shedder
        self._guarded, self._limited, self._local = frozenset(guarded), frozenset(limited), frozenset(local)
        self._known = self._guarded | self._local
        self._limiter = RateLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in self._known:
            return await self._app(scope, receive, send)
        if path in self._local and not is_local(scope):
            return await _refuse(403, "This address answers on the host itself only.", {}, scope, receive, send)
        if path in self._guarded and (refusal := self._refusal(scope)) is not None:
            return await _refuse(*refusal, scope, receive, send)
        if path not in self._limited:
            return await self._app(scope, receive, send)
        if not self._load_shedder.is_open:
            detail = "More requests come in than can even be turned down with a plan by rule. Try again in a second."
            return await _refuse(503, detail, _RETRY_AFTER, scope, receive, send)
        with self._load_shedder:
            return await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        client, rate = _address(scope), self._rate
        if self._tokens.required:
            caller = self._tokens.caller(Headers(scope=scope).get("authorization", ""))
            if caller is None:
                detail = "This address needs a token that is known here: Authorization: Bearer ..."
                return 401, detail, {"www-authenticate": "Bearer"}
            scope["state"]["log"]["caller"] = client = caller.name
            rate = self._rate if caller.rate is None else caller.rate
        if wait := self._limiter.wait_seconds(client, rate):
            detail = f"You may send {rate:g} requests a second."
            return 429, detail, {"retry-after": str(math.ceil(wait))}
        return None


def is_local(scope: Scope) -> bool:
    """Tell whether the request comes from this host, and not through a proxy on it."""
    headers = Headers(scope=scope)
    return _address(scope) in _LOOPBACK and not any(name in headers for name in _FORWARDED)


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


async def _refuse(
    status: int, detail: str, headers: dict[str, str], scope: Scope, receive: Receive, send: Send
) -> None:
    response = problem_response(scope["state"]["request_id"], status, detail, headers=headers)
    await response(scope, receive, send)
