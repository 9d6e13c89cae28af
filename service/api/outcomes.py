"""`POST /outcomes`: what shoppers did with the products that a plan found, kept beside the plans as rows to train on.

Off unless `PEAKPLAN_OUTCOMES_DIR` names a folder. Then every plan is a JSON line there and every outcome another, with
the request id and the caller in both, by which they are joined (docs/own-data.md): nobody teaches another's plans. A
plan's words are the shopper's; its line has them, and the values made of them, only if the operator set
`PEAKPLAN_OUTCOMES_TEXT`, and else only keys of the vocabulary.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Annotated, Literal, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.config import JsonDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from service.api.models import FieldProblem
from service.api.outcome_log import MOST_OUTCOMES
from service.api.problems import problem_response
from service.api.services import Use, problems
from service.planner.vocabulary import Vocabulary

OUTCOMES_PATH = "/outcomes"
_RETRY_AFTER = {"Retry-After": "1"}

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
    """Return what of a product is in other terms than the vocabulary's: rows with it would be learnt from wrongly."""
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


router = APIRouter()


@router.post(
    OUTCOMES_PATH,
    operation_id="report_outcome",
    status_code=202,
    responses=problems(400, 401, 404, 408, 409, 413, 415, 422, 429, 503),
)
async def outcomes(body: Outcome, request: Request, use: Use) -> Response:
    """Report what a shopper did with the products that a plan found; kept for training where the operator wants it."""
    request_id = request.state.request_id
    if use.outcomes is None:
        detail = "This service keeps no outcomes: PEAKPLAN_OUTCOMES_DIR turns that on."
        return problem_response(request_id, 404, detail)
    if not use.request_ids.is_of_late(body.request_id):
        detail = "This request_id is of no plan that was served here lately."
        return problem_response(request_id, 404, detail)
    if wrong := _unknown_names(body.product, use.planner.vocabulary):
        # No 422: the names are right by the document, and another model's vocabulary may have them.
        return problem_response(request_id, 409, " ".join(problem.detail for problem in wrong), wrong)
    caller = getattr(request.state, "caller", "")
    if not use.outcomes.has_room(body.request_id, caller):
        return problem_response(request_id, 409, f"This plan has its {MOST_OUTCOMES} outcomes already.")
    if not use.outcomes.happened(body.model_dump(exclude_none=True), caller):
        return problem_response(request_id, 503, "The outcome was not kept: too many wait.", headers=_RETRY_AFTER)
    return JSONResponse({"status": "kept"}, status_code=202)
