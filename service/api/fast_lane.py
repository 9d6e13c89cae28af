"""A fast path for valid plans' requests and for events.

Routing and injection of the framework cost more than the gateway's own work for a request, and under overload every
microsecond is taken from the model; of events there are ten for each plan. Invalid requests go on to the framework,
which writes their error messages.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.middleware import replay
from service.api.models import PlanRequest
from service.api.observation import OUTCOMES_PATH, PLAN_PATH
from service.api.outcomes import answer_events, read_events
from service.api.problems import bug_response
from service.api.routes import answer_plan
from service.api.services import Services
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)


_Answer = Callable[[Any, Scope, Receive, Services], Awaitable[Response]]
_LANES: dict[str, tuple[Callable[[bytes], Any], _Answer]] = {
    PLAN_PATH: (PlanRequest.model_validate_json, answer_plan),
    OUTCOMES_PATH: (read_events, answer_events),
}


class FastLane:
    """Middleware that answers valid requests for plans, and events; `app` gets the rest."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in _LANES:
            return await self._app(scope, receive, send)
        read, answer = _LANES[scope["path"]]
        body = (await receive())["body"]  # the whole body, as JsonBody passes it
        try:
            request = read(body)
        except ValidationError:
            return await self._app(scope, replay(body, receive), send)
        response = await self._answered(answer(request, scope, receive, self._services), scope)
        return await response(scope, receive, send)

    async def _answered(self, answer: Awaitable[Response], scope: Scope) -> Response:
        try:
            return await answer
        except Exception as error:
            logger.error("a request failed", extra={"exception": error_location(error)})
            return bug_response(scope["state"]["request_id"])
