"""Which names a request may give its host.

A page anywhere can have its own name resolve to this machine (DNS rebinding): its browser then lets it read whatever
answers there. A service on a loopback address without tokens is protected by the name alone, which the page cannot
choose.
"""

import ipaddress
import logging
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.problems import problem_response

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
