"""Every error as an RFC 9457 problem document, in words, without a traceback or a shopper's text."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from service.api.models import FieldProblem, Problem

MEDIA_TYPE = "application/problem+json"
REFERENCE = "#/components/schemas/{model}"  # where OpenAPI keeps a model's schema
MAX_FIELD_PROBLEMS = 20
MAX_FIELD_NAME_CHARACTERS = 64
# Of a body, or an event of a list, that may be one of several: no part of a field's path.
BODY_KINDS = ("(outcome)", "(event)", "(own)", "(events)")

# Our messages for pydantic's errors; {names} come from the error itself. Other errors keep pydantic's message.
_REASONS = {
    "missing": "is required",
    "extra_forbidden": "is not a field of this request",
    "string_type": "must be a string",
    "string_unicode": "must be valid Unicode text, without lone surrogates",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "list_type": "must be a list of strings",
    "too_long": "must have at most {max_length} items",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "value_error": "{error}",
}


class ProblemResponse(Response):
    """A problem document. Pure ASCII, so that even a lone surrogate in a field's name can be answered."""

    media_type = MEDIA_TYPE

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(problem.model_dump(exclude_none=True)).encode("ascii")
        super().__init__(body, problem.status, headers)


def problem_response(
    request_id: str,
    status: int,
    detail: str,
    errors: Sequence[FieldProblem] = (),
    headers: dict[str, str] | None = None,
) -> ProblemResponse:
    """Build a problem document; its title is the status's own phrase, as `about:blank` requires.

    A 503 says when to come again.
    """
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers = {"retry-after": "1", **(headers or {})}
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        request_id=request_id,
        errors=list(errors) or None,
    )
    return ProblemResponse(problem, headers)


def install_problem_handlers(app: FastAPI) -> None:
    """Answer every error that reaches FastAPI with a problem document."""
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_bug)


async def _on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # FastAPI says first where in the message a field is: in the body, always.
    return invalid_request(request.state.request_id, [{**item, "loc": item["loc"][1:]} for item in error.errors()])


def invalid_request(request_id: str, found: Sequence[Mapping[str, Any]]) -> ProblemResponse:
    """Return the answer for a body of which pydantic found these errors."""
    if any(item["type"] == "json_invalid" for item in found):
        return problem_response(request_id, 400, "The body is not valid JSON.")
    problems = [_field_problem(item) for item in found[:MAX_FIELD_PROBLEMS]]
    detail = " ".join(problem.detail for problem in problems)
    return problem_response(request_id, 422, detail, problems)


def _field_problem(item: Mapping[str, Any]) -> FieldProblem:
    """Return the field as a path ("history[2]") and a sentence about it; "body" is the whole request."""
    path = ""
    inside = item["loc"]
    kinds = (0, 2) if inside[:1] == ("(events)",) else (0,)  # of a list's events, too
    for part in (each for place, each in enumerate(inside) if place not in kinds or each not in BODY_KINDS):
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    field = path.lstrip(".")[:MAX_FIELD_NAME_CHARACTERS] or "body"
    template = _REASONS.get(item["type"])
    reason = template.format(**item.get("ctx", {})) if template else f"is not right: {item['msg']}"
    return FieldProblem(field=field, detail=f"{'The request body' if field == 'body' else field} {reason}.")


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    request_id = request.state.request_id
    if error.status_code == 404:
        return problem_response(request_id, 404, "There is nothing here. Plans are made by POST /plan.")
    if error.status_code == 405:
        detail = f"This address takes {headers.get('Allow', 'GET')} only."
        if request.method == "OPTIONS" and "origin" in request.headers:  # a browser asks for a page of another origin
            detail += " Web pages may call it whose origins PEAKPLAN_CORS_ORIGINS names."
        return problem_response(request_id, 405, detail, headers=headers)
    if error.status_code == 400:  # from FastAPI itself: a body that is no UTF-8 or nested too deep
        return problem_response(request_id, 400, "The body is not valid JSON in UTF-8.", headers=headers)
    return problem_response(request_id, error.status_code, str(error.detail), headers=headers)


async def _on_bug(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return bug_response(request.state.request_id)


def bug_response(request_id: str) -> ProblemResponse:
    """Return the answer for a bug of ours, without its details."""
    return problem_response(
        request_id, 500, "The planner failed on this request. The log has more under this request id."
    )
