"""Access control: bearer tokens where required, rate limits for each caller, and load shedding.

A refusal here costs next to nothing: no body is read, and nothing is parsed.
"""

import hmac
import ipaddress
import math
from collections.abc import Collection
from functools import lru_cache, partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.api_keys import ApiKeys, Caller
from service.api.callers import Address, Callers, UnknownCallerError, network_of
from service.api.door import BUSY, TURNED_AWAY
from service.api.problems import problem_response
from service.api.rates import RateLimiter
from service.gateway.load_shedder import LoadShedder

_RETRY_AFTER = {"retry-after": "1"}
# What a proxy adds, or a browser for a page.
_NOT_FROM_HERE = ("forwarded", "x-forwarded-for", "via", "origin", "referer", "sec-fetch-site")


class Access:
    """Middleware that answers 401, 429 or 503 for `guarded` paths, and 403 for `local` ones, but for the operator."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: ApiKeys,
        callers: Callers,
        rate: float,
        load_shedder: LoadShedder,
        control_token: str,
        guarded: Collection[str],
        limited: Collection[str],
        local: Collection[str],
    ) -> None:
        """Take `rate`, requests per second of a caller without its own; `limited` paths are shed under load.

        Where there are no `tokens`, `callers` tells who calls.

        `local` paths are for whoever sends `control_token` from this host, and for nobody where it is "".
        """
        self._app = app
        self._tokens = tokens
        self._callers = callers
        self._rate = rate
        self._load_shedder = load_shedder
        self._control_token = control_token.encode()
        self._guarded, self._limited, self._local = frozenset(guarded), frozenset(limited), frozenset(local)
        self._known = self._guarded | self._local
        self._limiter = RateLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path")
        if scope["type"] != "http" or path not in self._known:
            return await self._app(scope, receive, send)
        if path in self._local and not self._is_operator(scope):
            detail = (
                "This address answers on the host itself only, to Authorization: Bearer and the content of "
                "PEAKPLAN_CONTROL_TOKEN. The signals SIGTERM (drain) and SIGHUP (reload) do the same."
            )
            return await _refuse(403, detail, {}, scope, receive, send)
        if path in self._guarded and (refusal := self._refusal(scope)) is not None:
            return await _refuse(*refusal, scope, receive, send)
        if path not in self._limited:
            return await self._app(scope, receive, send)
        address = str(_address(scope) or "")
        if TURNED_AWAY in scope["state"] or not self._load_shedder.is_open_to(address):
            return await _refuse(503, BUSY, _RETRY_AFTER, scope, receive, send)
        with self._load_shedder.handling(address):
            return await self._app(scope, receive, send)

    def _is_operator(self, scope: Scope) -> bool:
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        is_known = scheme.lower() == "bearer" and hmac.compare_digest(token.encode(), self._control_token)
        return bool(self._control_token) and is_known and is_local(scope)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        rate = self._rate
        try:
            caller = self._caller(scope)
        except UnknownCallerError as error:
            return 401, str(error), {"www-authenticate": "Bearer"}
        if caller is not None:
            scope["state"]["caller"] = scope["state"]["log"]["caller"] = caller.name
            rate = self._rate if caller.rate is None else caller.rate
        client = scope["state"]["client"] = network_of(_address(scope)) if caller is None else caller.name
        if rate > 0:
            if wait := self._limiter.wait_seconds(client, rate):
                detail = f"You may send {rate:g} requests a second; a very long one counts as several."
                return 429, detail, {"retry-after": str(math.ceil(wait))}
            scope["state"]["charge"] = partial(self._limiter.charge, client)
            scope["state"]["grant"] = partial(self._limiter.grant, client, rate)
        return None

    def _caller(self, scope: Scope) -> Caller | None:
        """Return who calls; None where its address is all that is known. Raises UnknownCallerError."""
        headers = Headers(scope=scope)
        if self._tokens.required:
            caller = self._tokens.caller(headers.get("authorization", ""))
            if caller is None:
                raise UnknownCallerError("This address needs a token that is known here: Authorization: Bearer ...")
            return caller
        # The host's own programs ask without the balancer: whether a plan can be made, and for metrics.
        return self._callers.caller(headers) if self._callers.is_told and not is_local(scope) else None


def is_local(scope: Scope) -> bool:
    """Tell whether the request comes from this host, and neither through a proxy on it nor from a page."""
    headers = Headers(scope=scope)
    address = _address(scope)
    return address is not None and address.is_loopback and not any(name in headers for name in _NOT_FROM_HERE)


def _address(scope: Scope) -> Address | None:
    try:
        return _read_address(scope["client"][0])
    except (TypeError, ValueError):  # a unix socket has none
        return None


@lru_cache(maxsize=1024)
def _read_address(text: str) -> Address:
    """Return the caller's address, an IPv4 one as such also where the listener is of IPv6. Raises ValueError."""
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


async def _refuse(
    status: int, detail: str, headers: dict[str, str], scope: Scope, receive: Receive, send: Send
) -> None:
    response = problem_response(scope["state"]["request_id"], status, detail, headers=headers)
    await response(scope, receive, send)
