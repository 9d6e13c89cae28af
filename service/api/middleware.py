"""Middleware around every request: id, route, safe headers, a JSON body. Plain ASGI, because it is fast."""

import asyncio
import re
import time
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.observation import Observer
from service.api.problems import problem_response
from service.api.request_ids import RequestIds
from service.gateway.drain import Drain

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_JSON_TYPE = re.compile(rb"application/(?:[\w.-]+\+)?json\s*(?:;|$)", re.IGNORECASE)
SAFE_HEADERS = [
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        ),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
        "cache-control": "no-store",  # an answer may contain a shopper's words
    }.items()
]


class RequestContext:
    """Sets a request's id, start and route (`request.state`) and safe headers; notifies the observer.

    The id is the service's own; one that the caller sends is logged and answered beside it. A route is a path of ours,
    or "-": any other may hold anything, a shopper's words too, and goes into no log and no span.

    While the service drains, every answer also closes its connection: callers then reconnect to another host.
    """

    def __init__(
        self, app: ASGIApp, observer: Observer, drain: Drain, ids: RequestIds, *, paths: Collection[str]
    ) -> None:
        """Take the `paths` of all routes."""
        self._app = app
        self._observer = observer
        self._drain = drain
        self._ids = ids
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        state = scope.setdefault("state", {})
        started = state.get("arrived") or time.monotonic()  # its turn may have come later
        headers = dict(reversed(scope["headers"]))  # of repeated headers the first counts
        request_id, callers = self._ids.new(), callers_id(headers.get(b"x-request-id", b""))
        state |= {"request_id": request_id, "started": started, "headers": headers}
        state["log"] = {"callers_request_id": callers} if callers else {}
        state["route"] = scope["path"] if scope["path"] in self._paths else "-"
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(message, request_id, callers)
                if "experiment" in state:
                    message["headers"].append((b"x-experiment", state["experiment"]))
            await send(message)

        self._observer.began(scope)
        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            # In the next event-loop iteration: the response is sent at the end of this one.
            seconds = time.monotonic() - started
            asyncio.get_running_loop().call_soon(self._observer.ended, scope, status, seconds)
        return None

    def _add_headers(self, message: Message, request_id: str, callers: str) -> None:
        headers: list[tuple[bytes, bytes]] = message["headers"]
        given = {name for name, _ in headers}
        headers.append((b"x-request-id", request_id.encode("ascii")))
        if callers:
            headers.append((b"x-callers-request-id", callers.encode("ascii")))
        headers += [header for header in SAFE_HEADERS if header[0] not in given]
        if self._drain.draining and b"connection" not in given:
            headers.append((b"connection", b"close"))


class JsonBody:
    """Answers 415 to a POST to one of `paths` whose body does not say that it is JSON. Our server has bounded it."""

    def __init__(self, app: ASGIApp, *, paths: Collection[str]) -> None:
        self._app = app
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_ours = scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in self._paths
        if not is_ours or _JSON_TYPE.match(scope["state"]["headers"].get(b"content-type", b"")):
            return await self._app(scope, receive, send)
        detail = "The body must be JSON, sent with Content-Type: application/json."
        return await problem_response(scope["state"]["request_id"], 415, detail)(scope, receive, send)


def callers_id(given: bytes) -> str:
    """Return the id that a caller gave its request; "" where it gave none, or one that no log should have."""
    return given.decode("ascii") if _REQUEST_ID.fullmatch(given) else ""


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, then whatever follows: the client's disconnect."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
