"""Logs, metrics and traces of finished requests. Never a shopper's text."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from starlette.datastructures import Headers
from starlette.types import Scope

from service.api.models import milliseconds
from service.planner.plan import VERSION
from service.planner.planner import Planned
from service.telemetry.metrics import Metrics, Outcome
from service.telemetry.traces import Tracer

logger = logging.getLogger("service.api")

PLAN_PATH, OUTCOMES_PATH = "/plan", "/outcomes"
CLIENT_CLOSED_REQUEST = 499  # nginx's status for it, used only in the log
_QUIET_PATHS = ("/healthz", "/readyz", "/metrics")
# Answers that no log needs: those to checks, and of what is in a file already and comes ten times as often as plans.
_QUIET = {*((path, 200) for path in _QUIET_PATHS), (OUTCOMES_PATH, 202)}


class Observer:
    """Receives every request's beginning and end."""

    def __init__(self, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self._metrics = metrics
        self._tracer = tracer

    def began(self, scope: Scope) -> None:
        if scope["path"] == PLAN_PATH:
            self._metrics.arrived()

    def planned(self, scope: Scope, planned: Planned) -> None:
        """Record a handler's plan; it is formatted only after the answer is sent."""
        scope["state"]["planned"] = planned

    def faulted(self, scope: Scope) -> None:
        """Record that our own code failed at what was asked of another route than that of plans."""
        scope["state"]["log"]["reason"] = "fault"
        self._metrics.faulted()

    def ended(self, scope: Scope, status: int, seconds: float) -> None:
        """Record that the answer is complete, or the client is gone (status 0 or 499)."""
        planned: Planned | None = scope["state"].get("planned")
        if planned is not None:
            scope["state"]["log"] |= _described(planned)
        if scope["path"] == PLAN_PATH:
            self._count(status, seconds, planned)
        _log(scope, status, seconds)
        if self._tracer is not None and scope["path"] not in _QUIET_PATHS:
            self._trace(self._tracer, scope, status, seconds, planned)

    def refused(self, request_id: str, status: int) -> None:
        """Record a message that the server refused: it is no request, or no whole one, or there is no room for it."""
        if status == 503:
            self._metrics.shed()
        logger.info("refused", extra={"request_id": request_id, "status": status})

    def turned_away(self, request_id: str, method: str, path: str, waited: float) -> None:
        """Record a request that was refused before it began, after so many seconds."""
        if path == PLAN_PATH:
            self._metrics.arrived()
            self._metrics.shed()
        fields = {"request_id": request_id, "status": 503, "milliseconds": round(waited * 1000, 2)}
        logger.info(f"{method} {path}", extra=fields)

    def _count(self, status: int, seconds: float, planned: Planned | None) -> None:
        if status == 200 and planned is not None:
            self._metrics.planned(_outcome(planned, seconds))
        elif status in (429, 503):
            self._metrics.shed(for_want_of_room=status == 503)
        elif status == 500:
            self._metrics.failed()

    @staticmethod
    def _trace(tracer: Tracer, scope: Scope, status: int, seconds: float, planned: Planned | None) -> None:
        state = scope["state"]
        attributes: dict[str, str | int | float | bool] = {
            "http.request.method": scope["method"],
            "http.response.status_code": status,
            "peakplan.request_id": state["request_id"],
            **{f"peakplan.{name}": value for name, value in state["log"].items() if name != "text"},
        }
        result = planned.result if planned else None
        parts = {"queue": result.queue_seconds, "model": result.seconds} if result else {}
        tracer.record(f"{scope['method']} {state['route']}", seconds, attributes, parts, Headers(scope=scope))


def _described(planned: Planned) -> Mapping[str, str | int | float]:
    result = planned.result
    fields: dict[str, str | int | float] = {
        "source": planned.source,
        "intent": planned.plan.intent,
        "plan_version": VERSION,
    }
    fields |= {
        "queue_ms": milliseconds(result.queue_seconds if result else 0),
        "model_ms": milliseconds(result.seconds if result else 0),
        "steps": result.forwards if result else 0,
        "plan_tokens": result.plan_tokens if result else 0,
    }
    return fields | ({"reason": planned.reason} if planned.reason else {})


def _outcome(planned: Planned, seconds: float) -> Outcome:
    outcome = Outcome(
        source=planned.source,
        milliseconds=seconds * 1000,
        degraded=planned.degraded,
        reason=planned.reason,
        intent=planned.plan.intent,
    )
    if (result := planned.result) is None:
        return outcome
    return replace(
        outcome,
        queue_milliseconds=result.queue_seconds * 1000,
        tokens_per_step=result.plan_tokens / max(result.forwards, 1),
        forced_percent=100 * result.forced_tokens / max(result.plan_tokens, 1),
        drafts=result.drafts,
        draft_tokens=result.draft_tokens,
        accepted_by_position=tuple(result.accepted_by_position),
        prompt_tokens=result.prompt_tokens,
        cached_tokens=result.cached_tokens,
    )


def _log(scope: Scope, status: int, seconds: float) -> None:
    """Log one line, without the query string, which may hold a shopper's words."""
    state = scope["state"]
    level = logging.DEBUG if (scope["path"], status) in _QUIET else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields = {"request_id": state["request_id"], "status": status, "milliseconds": round(seconds * 1000, 2)}
    logger.log(level, f"{scope['method']} {state['route']}", extra=fields | state["log"])
