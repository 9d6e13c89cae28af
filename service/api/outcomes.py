"""`POST /outcomes`: what shoppers did with what a plan found: rows to train on, and events to judge by.

Off unless `PEAKPLAN_OUTCOMES_DIR` names a folder. Then every plan is a JSON line there and every outcome another, with
the request id and the caller in both. Training joins them by these, so a caller cannot label another's plans
(docs/own-data.md). The shopper's words, and values made of them, are written only with `PEAKPLAN_OUTCOMES_TEXT`;
otherwise only keys of the vocabulary are. Events (docs/value.md) go into files of their own.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag, TypeAdapter, model_validator
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope

from service.api.models import FieldProblem
from service.api.observation import OUTCOMES_PATH
from service.api.outcome_log import MOST_OUTCOMES
from service.api.problems import problem_response
from service.api.services import Services, Use, problems
from service.events.keeper import EventKeeper, Refusal, Taken
from service.events.model import ACTIONS, MOST_EVENTS, Event, Happened, OwnEvent
from service.planner.vocabulary import Vocabulary

_WRITE_SECONDS = 5.0  # for a disk that hangs
_AT_ONCE = 8  # events of a list, after which other tasks get a turn of the event loop

Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Value = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class Product(BaseModel):
    """A product as the shop's catalogue describes it, in the terms of `GET /vocabulary`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Value
    vertical: Name | None = Field(default=None, description="The product's own department.")
    facets: dict[Name, Annotated[list[Value], Field(max_length=32)]] = Field(
        default_factory=dict, max_length=32, description='Its attributes, e.g. {"brand": ["Nike"]}.'
    )


_NOTHING_WAS_CHOSEN: JsonDict = {"properties": {"outcome": {"const": "nothing"}}}


class Outcome(BaseModel):
    """What came of a plan: a product was clicked, put into the cart or bought, or nothing of what was found helped."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "if": _NOTHING_WAS_CHOSEN,
            "then": {"properties": {"product": {"type": "null"}}},
            "else": {"properties": {"product": {"type": "object"}}, "required": ["product"]},
            "examples": [
                {
                    "request_id": "48bf42ea6d3ea9e6a247eb2a042389b2",
                    "outcome": "purchase",
                    "product": {"id": "B07", "vertical": "apparel-accessories", "facets": {"brand": ["Nike"]}},
                }
            ],
        },
    )

    request_id: str = Field(pattern="^[A-Za-z0-9._:-]{1,64}$", description="Of the plan's answer.")
    outcome: Literal["click", "cart", "purchase", "nothing"]
    product: Product | None = None

    @model_validator(mode="after")
    def _names_what_was_chosen(self) -> Self:
        if (self.product is None) != (self.outcome == "nothing"):
            raise ValueError(f"{self.outcome} needs {'no' if self.outcome == 'nothing' else 'a'} product")
        return self


def _unknown_names(product: Product | None, vocabulary: Vocabulary) -> list[FieldProblem]:
    """Return a problem for each name that the vocabulary lacks: training must not learn from it."""
    if product is None:
        return []
    named: list[tuple[str, str, str, Mapping[str, object]]] = []
    if product.vertical is not None:
        named.append(("product.vertical", product.vertical, "vertical", vocabulary.verticals))
    named += [(f"product.facets.{name}", name, "facet", vocabulary.facets) for name in product.facets]
    return [
        FieldProblem(field=field, detail=f"{field}: {name!r} is no {kind} of GET /vocabulary{_nearest(name, known)}.")
        for field, name, kind, known in named
        if name not in known
    ]


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f", but {near[0]!r} is" if near else ""


def _kind(body: Any) -> str:
    if isinstance(body, list):
        return "(events)"
    if isinstance(body, Happened) or (isinstance(body, dict) and "action_name" in body):
        return _whose(body)
    return "(outcome)"


def _whose(body: Any) -> str:
    action = body.get("action_name") if isinstance(body, dict) else getattr(body, "action_name", None)
    return "(own)" if isinstance(action, str) and action not in ACTIONS else "(event)"


# The document does not promise that an action of the shop's own is taken: most services take none.
_Tagged = Annotated[Event, Tag("(event)")] | Annotated[SkipJsonSchema[OwnEvent], Tag("(own)")]
_One = Annotated[_Tagged, Discriminator(_whose)]
_Events = Annotated[list[_One], Field(min_length=1, max_length=MOST_EVENTS)]
_EVENT: TypeAdapter[Happened] = TypeAdapter(_One)
_EVENTS = TypeAdapter(_Events)
Report = Annotated[
    Annotated[Outcome, Tag("(outcome)")] | _Tagged | Annotated[_Events, Tag("(events)")],
    Discriminator(_kind),
    Body(description="An outcome to train on, an event, or a list of events."),
]

router = APIRouter()


@router.post(
    OUTCOMES_PATH,
    operation_id="report_outcome",
    status_code=202,
    responses=problems(400, 401, 404, 408, 409, 413, 415, 422, 429, 503),
)
async def outcomes(body: Report, request: Request, use: Use) -> Response:
    """Report what a shopper did with the products that a plan found; kept where the operator wants it.

    Of a list, the answer says how many events are kept, how many were known already, and which are refused and why.
    """
    if not isinstance(body, Outcome):
        return await answer_events(body if isinstance(body, list) else [body], request.scope, request.receive, use)
    request_id, caller = request.state.request_id, getattr(request.state, "caller", "")
    if use.outcomes is None:
        return _nothing_is_kept(request_id)
    if not use.request_ids.is_of_late(body.request_id):
        detail = "This request_id is of no plan that was served here lately."
        return problem_response(request_id, 404, detail)
    if wrong := _unknown_names(body.product, use.planner.vocabulary):
        # No 422: the names are right by the document, and another model's vocabulary may have them.
        return problem_response(request_id, 409, " ".join(problem.detail for problem in wrong), wrong)
    if not use.outcomes.has_room(body.request_id, caller):
        return problem_response(request_id, 409, f"This plan has its {MOST_OUTCOMES} outcomes already.")
    if not use.outcomes.happened(body.model_dump(exclude_none=True), caller):
        return problem_response(request_id, 503, "The outcome was not kept: too many wait.")
    return JSONResponse({"status": "kept"}, status_code=202)


def read_events(body: bytes) -> Sequence[Happened]:
    """Read one event or a list of them from JSON. Raises ValidationError: it is none, or an outcome to train on."""
    return _EVENTS.validate_json(body) if body.lstrip()[:1] == b"[" else [_EVENT.validate_json(body)]


async def answer_events(events: Sequence[Happened], scope: Scope, _: Receive, use: Services) -> Response:
    """Answer for events once they are in a file, or say that they are not."""
    request_id, caller = scope["state"]["request_id"], scope["state"].get("caller", "")
    if use.events is None:
        return _nothing_is_kept(request_id)
    if any(type(event) is OwnEvent for event in events):
        if wrong := _unknown_actions(events, use.events.own_actions):
            return problem_response(request_id, 422, " ".join(problem.detail for problem in wrong), wrong)
        events = [_as_kept(event, use.events.own_actions) for event in events]
    taken = await _take(use.events, events, caller)
    if taken is None:
        detail = "The events were not kept, because no disk takes them now: send the same ones again."
        return problem_response(request_id, 503, detail)
    if taken.refused and not taken.kept and not taken.repeated:
        told = [_told(refusal, alone=len(events) == 1) for refusal in taken.refused]
        statuses = {refusal.status for refusal in taken.refused}
        status = statuses.pop() if len(statuses) == 1 else 409
        return problem_response(request_id, status, " ".join(problem.detail for problem in told), told)
    if taken.refused:
        return JSONResponse(_answer(len(taken.kept), taken.repeated, taken.refused), status_code=202)
    return AllTaken(*_all_taken(len(taken.kept), taken.repeated))


def _nothing_is_kept(request_id: str) -> Response:
    return problem_response(request_id, 404, "This service keeps no outcomes: PEAKPLAN_OUTCOMES_DIR turns that on.")


def _unknown_actions(events: Sequence[Happened], own: Mapping[str, str]) -> list[FieldProblem]:
    """Return which actions are neither UBI's nor ours nor of the shop's own that the operator named."""
    return [
        _told(Refusal(place, "action_name", f"{event.action_name!r} is no action{_nearest(event.action_name, known)}: "
        f"there are {', '.join(ACTIONS)}, and what PEAKPLAN_OUTCOMES_ACTIONS names", 422), alone=len(events) == 1)
        for known in ((*ACTIONS, *own),)
        for place, event in enumerate(events)
        if isinstance(event, OwnEvent) and event.action_name not in own
    ]  # fmt: skip


def _as_kept(event: Happened, own: Mapping[str, str]) -> Happened:
    """Return an event by the name that it is kept by."""
    kept = own.get(event.action_name, event.action_name) if isinstance(event, OwnEvent) else event.action_name
    return event if kept == event.action_name else event.model_copy(update={"action_name": kept})


async def _take(keeper: EventKeeper, events: Sequence[Happened], caller: str) -> Taken | None:
    """Return what became of events, once they are in a file; None where no disk takes them."""
    taken = Taken()
    for first in range(0, len(events), _AT_ONCE):
        if first:
            await asyncio.sleep(0)
        keeper.judge(events[first : first + _AT_ONCE], caller, taken)
    keeper.append(taken)
    if taken.written is not None:
        if not await keeper.landing.kept(taken.written, _WRITE_SECONDS):
            return None
        keeper.wrote(taken, caller)
    return taken


@lru_cache(maxsize=256)
def _all_taken(kept: int, repeated: int) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
    """Return body and headers of the answer to nearly all requests, made once."""
    body = json.dumps(_answer(kept, repeated, []), separators=(",", ":")).encode()
    return body, tuple(Response(body, media_type="application/json").raw_headers)


class AllTaken(Response):
    """A response with ready-made body and headers; an ordinary one would write them for each event."""

    def __init__(self, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.status_code, self.background = 202, None
        self.body, self.raw_headers = body, [*headers]


def _answer(kept: int, repeated: int, refused: Sequence[Refusal]) -> dict[str, Any]:
    told = [_told(refusal, alone=False).model_dump() for refusal in refused]
    return {"status": "kept", "kept": kept, "repeated": repeated, "refused": told}


def _told(refusal: Refusal, *, alone: bool) -> FieldProblem:
    name = refusal.field if alone else f"[{refusal.place}].{refusal.field}"
    return FieldProblem(field=name, detail=f"{name} {refusal.detail}.")
