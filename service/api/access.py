"""Access control: bearer tokens where required, rate limits for each caller, and load shedding.

A refusal here costs next to nothing: no body is read, and nothing is parsed.
"""

import hmac
import ipaddress
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import lru_cache, partial

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.api_keys import Address, ApiKeys, Caller, Callers, UnknownCallerError, network_of
from service.api.overload import BUSY, TURNED_AWAY
from service.api.problems import problem_response
from service.gateway.load_shedder import LoadShedder
from service.settings.groups import AuthSettings

# What a proxy adds, or a browser for a page.
_NOT_FROM_HERE = ("forwarded", "x-forwarded-for", "via", "origin", "referer", "sec-fetch-site")


class Access:
    """Middleware that answers 401, 429 or 503 for `guarded` paths, and 403 for `local` ones, but for the operator."""

    def __init__(
        self,
        app: ASGIApp,
        auth: AuthSettings,
        load_shedder: LoadShedder,
        *,
        guarded: Collection[str],
        limited: Collection[str],
        local: Collection[str],
    ) -> None:
        """Shed requests for `limited` paths under load. Raises ApiKeysError.

        `local` paths require the control token, sent from this host; without a control token they are closed.
        """
        self._app = app
        self._tokens = ApiKeys(auth.api_keys.get_secret_value(), auth.api_keys_file)
        self._callers = Callers(auth.caller_from, auth.caller_claim, auth.rates, auth.networks)
        self._rate = auth.rate  # of a caller without its own, requests a second
        self._load_shedder = load_shedder
        self._control_token = auth.control_token.get_secret_value().encode()
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
            return await _refuse(503, BUSY, {}, scope, receive, send)
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


logger = logging.getLogger(__name__)
_MOST_TOLD = 20  # origins that the log names: anybody may send one
_MOST_CHARACTERS = 200
_LOCAL_NAME = "localhost"
_USUAL = {_LOCAL_NAME, "127.0.0.1", "::1"}  # are not parsed at every request


class AllowedHosts:
    """Middleware that answers 421 where a request is for another host than this one."""

    def __init__(self, app: ASGIApp, names: Collection[str], *, bound_to: str) -> None:
        """Take the `names` of the setting; without any, loopback binds answer to loopback names and others to all."""
        self._app = app
        self._names = frozenset(name.lower() for name in names)
        self._local = is_loopback(bound_to)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_ours(scope["state"]["headers"].get(b"host", b"")):
            return await self._app(scope, receive, send)
        detail = "This host answers to another name: PEAKPLAN_ALLOWED_HOSTS lists those that are right."
        response = problem_response(scope["state"]["request_id"], 421, detail)
        return await response(scope, receive, send)

    def _is_ours(self, host: bytes) -> bool:
        if not host or not (self._names or self._local):  # every browser names a host
            return True
        name = _without_port(host.decode("latin-1").lower())
        return name in self._names or (self._local and is_loopback(name))


class RefusedOrigins:
    """Middleware that logs each origin whose pages are refused, and the setting that would let them in."""

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = frozenset(allowed)
        self._told: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "OPTIONS":  # a browser asks before a page may
            self._tell(Headers(scope=scope).get("origin", "")[:_MOST_CHARACTERS])
        await self._app(scope, receive, send)

    def _tell(self, origin: str) -> None:
        if not origin or self._allowed & {origin, "*"} or origin in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add(origin)
        told = {"origin": origin, "reason": "PEAKPLAN_CORS_ORIGINS does not name it: its pages may not ask"}
        logger.warning("origin_refused", extra=told)


def is_loopback(name: str) -> bool:
    """Tell whether a name or address can only mean this machine."""
    if name in _USUAL:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == _LOCAL_NAME or name.endswith(f".{_LOCAL_NAME}")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host


_MOST_CALLERS = 10_000  # that are remembered; the one idle longest is forgotten, which costs it nothing
_BURST_SECONDS = 1.0


class RateLimiter:
    """Buckets that fill at each caller's rate and hold one second's worth, at least one request."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # (filled to, when)

    def wait_seconds(self, caller: str, rate: float) -> float:
        """Return 0 when the caller may send a request now, which is counted; else the seconds to wait."""
        if rate <= 0:
            return 0.0
        now, size = self._clock(), max(rate * _BURST_SECONDS, 1.0)
        level, before = self._buckets.get(caller, (size, now))
        level = min(level + (now - before) * rate, size)
        allowed = level >= 1.0
        self._buckets[caller] = (level - 1.0 if allowed else level, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - level) / rate

    def grant(self, caller: str, rate: float, wanted: int) -> int:
        """Return how many requests more a caller may send that can wait, which are counted.

        They leave half of what a second holds to those that cannot.
        """
        if caller not in self._buckets or rate <= 0:
            return wanted
        level, when = self._buckets[caller]
        granted = max(0, min(wanted, int(level - max(rate * _BURST_SECONDS, 1.0) / 2)))
        self._buckets[caller] = (level - granted, when)
        return granted

    def charge(self, caller: str, more: int) -> None:
        """Count so many requests more: the one that was let in is worth them, as only its content tells."""
        if caller in self._buckets:
            level, when = self._buckets[caller]
            self._buckets[caller] = (level - more, when)
