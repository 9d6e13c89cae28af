"""A fast path for a valid `POST /plan`.

Routing and injection of the framework cost more than the gateway's own work for a request, and under overload every
microsecond is taken from the model. Invalid requests go on to the framework, which writes their error messages.
"""

import logging

from pydantic import ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.middleware import replay
from service.api.models import PlanRequest
from service.api.observation import PLAN_PATH
from service.api.problems import bug_response
from service.api.routes import answer_plan
from service.api.services import Services
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)


class FastLane:
    """Middleware that answers valid requests for plans; `app` gets the rest."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PLAN_PATH or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        body = (await receive())["body"]  # the whole body, as JsonBody passes it
        try:
            request = PlanRequest.model_validate_json(body)
        except ValidationError:
            return await self._app(scope, replay(body, receive), send)
        response = await self._answer(request, scope, receive)
        return await response(scope, receive, send)

    async def _answer(self, request: PlanRequest, scope: Scope, receive: Receive) -> Response:
        try:
            return await answer_plan(request, scope, receive, self._services)
        except Exception as error:
            logger.error("a request failed", extra={"exception": error_location(error)})
            return bug_response(scope["state"]["request_id"])
