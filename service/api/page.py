"""The pages `/` and `/docs`: the files of `static/`, with one route each, so that no path can reach other files.

`/docs` is Swagger UI, whose files come from the package fastapi-offline: nothing is fetched from another host. Without
that package there is no such page.
"""

from importlib.util import find_spec
from pathlib import Path

from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from service.api.problems import problem_response

STATIC_FOLDER = Path(__file__).with_name("static")
_PATHS = {"index.html": "/", "docs.html": "/docs"}
_MOST_READERS = 32  # of one file
_SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")


def page_routes(folder: Path = STATIC_FOLDER) -> list[Route]:
    """Return a route for each file. Browsers revalidate, so an upgrade shows at once."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    package = find_spec("fastapi_offline")
    if package is None or package.origin is None:
        return [_route(folder, name) for name in names if not name.startswith("docs.")]
    swagger = Path(package.origin).with_name("static")
    return [*(_route(folder, name) for name in names), *(_route(swagger, name) for name in _SWAGGER)]


def _route(folder: Path, name: str) -> Route:
    return Route(_PATHS.get(name, f"/{name}"), _File(folder, name), methods=["GET"], include_in_schema=False)


class _File:
    """An ASGI application that sends one file, to so many callers at once: each holds a descriptor and buffers."""

    def __init__(self, folder: Path, name: str) -> None:
        self._files = StaticFiles(directory=folder)
        self._name = name
        self._readers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._readers >= _MOST_READERS:
            request_id, more = scope["state"]["request_id"], {"retry-after": "1"}
            refusal = problem_response(request_id, 503, "Too many callers are reading this file.", headers=more)
            return await refusal(scope, receive, send)
        self._readers += 1
        try:
            response = await self._files.get_response(self._name, scope)
            response.headers["cache-control"] = "no-cache"
            return await response(scope, receive, send)
        finally:
            self._readers -= 1
