"""The page at `/`: the files of `static/`, with one route each, so that no path can reach other files."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

STATIC_FOLDER = Path(__file__).with_name("static")


def page_routes(folder: Path = STATIC_FOLDER) -> list[Route]:
    """Return a route for each file, `index.html` as `/`. Browsers revalidate, so an upgrade shows at once."""
    files = StaticFiles(directory=folder)

    async def serve(request: Request) -> Response:
        name = request.url.path.lstrip("/") or "index.html"
        response = await files.get_response(name, request.scope)
        response.headers["cache-control"] = "no-cache"
        return response

    names = sorted(path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return [Route("/" if name == "index.html" else f"/{name}", serve, include_in_schema=False) for name in names]
