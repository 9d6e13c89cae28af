"""The pages `/` and `/docs`: the files of `static/`, with one route each, so that no path can reach other files.

`/docs` is Swagger UI, whose files come from the package fastapi-offline: nothing is fetched from another host. Without
that package there is no such page.
"""

from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

STATIC_FOLDER = Path(__file__).with_name("static")
_PATHS = {"index.html": "/", "docs.html": "/docs"}
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
    files = StaticFiles(directory=folder)

    async def serve(request: Request) -> Response:
        response = await files.get_response(name, request.scope)
        response.headers["cache-control"] = "no-cache"
        return response

    return Route(_PATHS.get(name, f"/{name}"), serve, include_in_schema=False)
