"""Endpoints for operators: liveness, readiness, metrics; and, on the host itself: drain, reload."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from service.api.problems import problem_response
from service.api.reload import ReloadBusyError
from service.api.services import Use, problems
from service.engines.protocol import EngineError
from service.telemetry.prometheus import CONTENT_TYPE

LOCAL_PATHS = ("/drain", "/reload")
METRICS_PATH = "/metrics"
_RETRY_AFTER = {"Retry-After": "1"}

router = APIRouter()


@router.get("/healthz")
async def health() -> JSONResponse:
    """Whether the process is alive; says nothing about the model."""
    return JSONResponse({"status": "alive"})


@router.get("/readyz", responses=problems(503))
async def readiness(request: Request, use: Use) -> Response:
    """Whether a model would plan a question now, as proven by a real inference no older than a few seconds.

    A `notice` says in words what is wrong all the same: that most plans are late on this machine, and what to do.
    """
    reason = await use.readiness.why_not()
    if reason is not None:
        return problem_response(request.state.request_id, 503, f"Not ready: {reason}.", headers=_RETRY_AFTER)
    notice = use.deadline_watch.notice()
    ready = {
        "status": "ready",
        "model": use.pool.model_id,
        "kernel": use.pool.kernel,
        "deadline_ms": use.deadline_ms,  # of requests that name none
    }
    return JSONResponse({**ready, "notice": notice} if notice else ready)


@router.get(METRICS_PATH, include_in_schema=False)
async def metrics(use: Use) -> Response:
    """Everything that is measured, in Prometheus's text format."""
    return Response(use.metrics.exposition(), headers={"content-type": CONTENT_TYPE})


@router.post("/drain", include_in_schema=False)
async def drain(use: Use) -> JSONResponse:
    """Say not ready from now on, serve on for the drain's wait, finish what is in flight, exit 0."""
    use.drain.begin()
    return JSONResponse({"status": "draining", "seconds": use.drain.seconds}, status_code=202)


@router.post("/reload", include_in_schema=False)
async def reload(request: Request, use: Use) -> Response:
    """Roll the replicas over to what the model folder holds now; answers once that is done."""
    request_id = request.state.request_id
    try:
        version = await use.reloader.reload()
    except ReloadBusyError:
        return problem_response(request_id, 409, "A reload is under way already.")
    except EngineError as error:
        return problem_response(request_id, 503, f"The old model stays, for the new one does not start: {error}.")
    return JSONResponse({"status": "reloaded", "model": use.pool.model_id, "version": version})
