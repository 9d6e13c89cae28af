"""The pages `/` and `/docs`: the files of `static/`, with one route each, so that no path can reach other files.

`/docs` is Swagger UI, whose files come from the package fastapi-offline: nothing is fetched from another host. Without
that package there is no such page.
"""

import hashlib
import mimetypes
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.api.problems import problem_response

STATIC_FOLDER = Path(__file__).with_name("static")
_PATHS = {"index.html": "/", "docs.html": "/docs"}
_SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")
_MOST_READERS = 32  # of one file
_PIECE = 64 * 1024  # bytes that are sent at once: what a client that does not read keeps in memory


def page_routes(folder: Path = STATIC_FOLDER) -> list[Route]:
    """Return a route for each file. Browsers revalidate, so an upgrade shows at once."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    package = find_spec("fastapi_offline")
    if package is None or package.origin is None:
        return [_route(folder, name) for name in names if not name.startswith("docs.")]
    swagger = Path(package.origin).with_name("static")
    return [*(_route(folder, name) for name in names), *(_route(swagger, name) for name in _SWAGGER)]


def _route(folder: Path, name: str) -> Route:
    return Route(_PATHS.get(name, f"/{name}"), _File(folder / name), methods=["GET"], include_in_schema=False)


class _File:
    """An ASGI application that sends one file, from memory: threads that read it would take the plans' time."""

    def __init__(self, path: Path) -> None:
        self._content = memoryview(path.read_bytes())
        self._type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self._headers = {
            "cache-control": "no-cache",
            "etag": f'"{hashlib.sha256(self._content).hexdigest()[:32]}"',
        }
        self._readers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        if Headers(scope=scope).get("if-none-match") == self._headers["etag"]:
            response = Response(status_code=304, headers=self._headers)
        elif self._readers >= _MOST_READERS:
            more = {"retry-after": "1"}
            detail = "Too many callers are reading this file."
            response = problem_response(scope["state"]["request_id"], 503, detail, headers=more)
        else:
            length = {"content-length": str(len(self._content))}
            response = StreamingResponse(self._pieces(), headers=self._headers | length, media_type=self._type)
        self._readers += 1
        try:
            await response(scope, receive, send)
        finally:
            self._readers -= 1

    async def _pieces(self) -> AsyncIterator[memoryview]:
        for start in range(0, len(self._content), _PIECE):
            yield self._content[start : start + _PIECE]
