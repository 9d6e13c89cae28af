"""`POST /answer`: a plan, then the first three products of the sample shop, then the others, as server-sent events.

What stands between a shopper's question and the first products is one request: the plan is searched with where it was
made. Nothing is kept for a client that leaves, and one that does not read is cut off as everywhere (`protocol.py`).
"""

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service.api.models import PlanAnswer, PlanRequest, milliseconds
from service.api.observation import CLIENT_CLOSED_REQUEST
from service.api.problems import REFERENCE
from service.api.routes import REPLY_SECONDS, ClientLeftError, make_plan
from service.api.services import Services, Use, problems
from service.api.shop import More, Options
from service.planner.plan import Plan

ANSWER_PATH = "/answer"
SEARCH_SECONDS = 0.03  # of the deadline that are kept for the search
_CATALOGUE = "catalog"  # among the sources of a vocabulary
_MEDIA_TYPE = "text/event-stream"
_HEADERS = {"x-accel-buffering": "no"}  # a proxy that collects an answer would keep the first options


class Done(BaseModel):
    """The end. Milliseconds from the request's first byte to the plan, the first options and this event."""

    plan_ms: float
    first_ms: float
    total_ms: float


EVENTS: dict[str, type] = {"plan": PlanAnswer, "options": Options, "more": More, "done": Done}


def event_schemas() -> dict[str, Any]:
    """Return the schemas of the events' data that are no plans, for the OpenAPI document."""
    models: list[type[BaseModel]] = [Options, More, Done]
    _, definitions = models_json_schema([(model, "serialization") for model in models], ref_template=REFERENCE)
    schemas: dict[str, Any] = definitions["$defs"]
    return schemas


def _described() -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of the stream, in the words of OpenAPI 3.2 as an extension of 3.1."""
    data = {name: {"$ref": REFERENCE.format(model=model.__name__)} for name, model in EVENTS.items()}
    events = [
        {
            "properties": {
                "event": {"const": name},
                "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": schema},
            }
        }
        for name, schema in data.items()
    ]
    words = "Events in this order: plan, options (three at most), more (only where there are more), done."
    item = {"type": "object", "required": ["event", "data"], "oneOf": events}
    return {200: {"description": words, "content": {_MEDIA_TYPE: {"x-itemSchema": item}}}}


router = APIRouter()


@router.post(
    ANSWER_PATH,
    response_class=StreamingResponse,
    responses=_described() | problems(400, 401, 408, 413, 415, 422, 429, 503),
)
async def answer(body: PlanRequest, request: Request, use: Use) -> Response:
    """Plan a question and send the first three products of the sample shop within the deadline, then the others.

    Each product comes with the wishes that it meets, those that it does not, and those that the catalogue does not
    tell. Where there is no product the options say why; the plan is there all the same.
    """
    if "charge" in (state := request.scope["state"]):
        state["charge"](1)  # for the search
    try:
        planned = await make_plan(body, request.scope, request.receive, use, REPLY_SECONDS + SEARCH_SECONDS)
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    events = _events(body.query, planned, request, use)
    return StreamingResponse(events, headers=_HEADERS, media_type=_MEDIA_TYPE)


async def _events(query: str, planned: PlanAnswer, request: Request, use: Services) -> AsyncIterator[bytes]:
    def elapsed() -> float:
        return milliseconds(time.monotonic() - request.state.started)

    yield _event("plan", planned.json())
    done = Done(plan_ms=planned.timing_ms.total, first_ms=0, total_ms=0)
    async with contextlib.aclosing(_options(query, planned.plan, use)) as found:
        async for each in found:
            if isinstance(each, Options):
                each.milliseconds = done.first_ms = elapsed()
                if each.is_fault:
                    use.observer.faulted(request.scope)
            yield _event("options" if isinstance(each, Options) else "more", each.model_dump_json().encode())
    done.total_ms = elapsed()
    yield _event("done", done.model_dump_json().encode())


async def _options(query: str, plan: Plan, use: Services) -> AsyncGenerator[Options | More, None]:
    """Yield what the sample shop has for a plan; nothing where its sources leave out the catalogue that there is."""
    if _CATALOGUE in use.planner.vocabulary.sources and _CATALOGUE not in plan.sources:
        yield Options(reason="This question is not for the catalogue: the plan names other sources.")
        return
    async with contextlib.aclosing(use.shop.options(query, plan)) as found:
        async for each in found:
            yield each


def _event(name: str, data: bytes) -> bytes:
    """Return an event; JSON has no line end in it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
