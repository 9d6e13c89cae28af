"""The pages `/` and `/docs`, and the OpenAPI document: what FastAPI derives, in the terms of the served vocabulary.

The files of `static/` have one route each, so that no path can reach other files.

`/docs` is Swagger UI, whose files come from the package fastapi-offline: nothing is fetched from another host. Without
that package there is no such page.
"""

import hashlib
import mimetypes
import re
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema
from starlette.datastructures import Headers
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.api.answers import event_schemas
from service.api.models import Problem
from service.api.problems import REFERENCE, problem_response
from service.events.model import OwnEvent
from service.planner.planner import read_plan
from service.planner.prompt import PlanTask
from service.planner.question import Question
from service.planner.reader.reading import Reader
from service.planner.vocabulary import Vocabulary

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
            detail = "Too many callers are reading this file."
            response = problem_response(scope["state"]["request_id"], 503, detail)
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


_QUESTION = "waterproof hiking boots but not leather, under $120"
_Schema = dict[str, Any]
# The groups of /docs in their order: what each says, and its paths.
_GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Plans": ("A question's plan, and how it was made.", ("/plan", "/plans", "/trace", "/vocabulary")),
    "Sample shop": ("Plans and what a search finds with them.", ("/answer",)),
    "Outcomes": ("What shoppers did with a plan.", ("/outcomes",)),
    "Health": ("For load balancers and supervisors.", ("/healthz", "/readyz")),
}


class Api(FastAPI):
    """A FastAPI that adds problem documents, the vocabulary's names and the default deadline to its document."""

    def __init__(self, **options: Any) -> None:
        super().__init__(generate_unique_id_function=lambda route: route.name, **options)
        self._described: Vocabulary | None = None

    def openapi(self) -> _Schema:
        use = self.state.services
        if self.openapi_schema is None or self._described is not use.planner.vocabulary:  # a reload replaces it
            self.openapi_schema, self._described = None, use.planner.vocabulary
            document = super().openapi()
            schemas = document["components"]["schemas"]
            _group(document)
            for operation in (each for path in document["paths"].values() for each in path.values()):
                operation["summary"] = _summary(operation)
            _, definitions = models_json_schema([(Problem, "serialization")], ref_template=REFERENCE)
            schemas |= definitions["$defs"] | event_schemas()
            schemas.pop(OwnEvent.__name__, None)  # FastAPI lists it, though nothing refers to it: see outcomes.py
            schemas["PlanRequest"]["properties"]["deadline_ms"]["default"] = use.deadline_ms
            for name in [name for name in schemas if name.split("-")[0] in ("Plan", "Part")]:
                _name_entries(schemas[name], use.planner.vocabulary, use.planner.reader)
        return super().openapi()


def _group(document: _Schema) -> None:
    for name, (_, paths) in _GROUPS.items():
        for operation in (each for path in paths for each in document["paths"][path].values()):
            operation["tags"] = [name]
    document["tags"] = [{"name": name, "description": says} for name, (says, _) in _GROUPS.items()]


def _summary(operation: _Schema) -> str:
    """Return what an operation does in a few words, the beginning of its description: "Plan a shopper's question"."""
    return re.split(r"[.:;]", operation["description"], maxsplit=1)[0].strip()


def _name_entries(schema: _Schema, vocabulary: Vocabulary, reader: Reader | None) -> None:
    """Write what a vocabulary has into the schema of a plan or of a part, and an example of a plan."""
    fields = schema["properties"]
    for name in ("facets", "exclude"):
        fields[name]["propertyNames"] = {"enum": list(vocabulary.facets)}
    if "intent" in fields:
        fields["intent"]["enum"] = list(vocabulary.intents)
        fields["vertical"] = {"title": "Vertical", "enum": [*vocabulary.verticals, None], "default": None}
        fields["sources"]["items"]["enum"] = list(vocabulary.sources)
        example = PlanTask(Question.parse(_QUESTION), vocabulary, reader=reader)
        schema["examples"] = [read_plan(example).model_dump()]
