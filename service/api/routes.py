"""The routes that make plans, and those for operators. Handlers are coroutines: plain functions would go to threads."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope

from service.api.experiment import Exposure
from service.api.lifecycle import ReloadBusyError
from service.api.models import Decoding, PlanAnswer, PlanRequest, TraceAnswer
from service.api.observation import CLIENT_CLOSED_REQUEST, PLAN_PATH
from service.api.problems import bug_response, problem_response
from service.api.services import Services, Use, problems
from service.api.shop import ShopRequest
from service.engines.protocol import EngineError, RequestRefusedError
from service.gateway.request_queue import CapacityError
from service.gateway.turns import Metered
from service.planner.plan_text import PlanTextError
from service.planner.planner import Drafted, Planned, Planner, tell_fault
from service.planner.prompt import PlanTask, render_prompt
from service.planner.question import Question
from service.planner.vocabulary import Vocabulary
from service.settings.choices import Strategy
from service.telemetry.logs import error_location
from service.telemetry.metrics import CONTENT_TYPE

logger = logging.getLogger(__name__)
T = TypeVar("T")

SHOP_PATH = "/shop/search"
LOCAL_PATHS = ("/drain", "/reload")
METRICS_PATH = "/metrics"
PLANS_PATH = "/plans"
JSON_PATHS = (PLAN_PATH, PLANS_PATH, "/trace", SHOP_PATH)
_TRACE_PAUSE_SECONDS = 0.01
REPLY_SECONDS = 0.005  # reserved before the deadline for writing and sending the answer
_TURN_SHARE = 0.25  # of the time left, the most that a costly question waits for its turn to be read
_UNWATCHED_SECONDS = 0.001  # into a request before its client's connection is watched
_ORDINARY_PLAN_BYTES = 2048  # of a search with its plan: a longer one counts as several of its caller's rate
_LEFT_HEADER = b"x-envoy-expected-rq-timeout-ms"
_WAY_BACK_SECONDS = 0.02  # of what the balancer waits: an answer that it has given up on is lost
_DIGITS = 10


class ClientLeftError(Exception):
    """Raised when the client has disconnected."""


router, operations_router = APIRouter(), APIRouter()


@router.post(PLAN_PATH, response_model=PlanAnswer, responses=problems(400, 401, 408, 413, 415, 422, 429, 503))
async def plan(body: PlanRequest, request: Request, use: Use) -> Response:
    """Plan a shopper's question, within the deadline whatever happens: the reader answers when no model can in time."""
    return await answer_plan(body, request.scope, request.receive, use)


async def answer_plan(body: PlanRequest, scope: Scope, receive: Receive, use: Services) -> Response:
    """Answer a valid request. `receive` has given the whole body; the next message is the client's disconnect."""
    try:
        answer = await make_plan(body, scope, receive, use, REPLY_SECONDS)
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return Response(answer.json(), media_type="application/json")


async def make_plan(
    body: PlanRequest, scope: Scope, receive: Receive, use: Services, reserved_seconds: float
) -> PlanAnswer:
    """Plan a valid request until `reserved_seconds` before its deadline. Raises ClientLeftError."""
    state, question = scope["state"], body.question
    seconds = (body.deadline_ms if "deadline_ms" in body.model_fields_set else use.deadline_ms) / 1000
    seconds = min(seconds, _left(state["headers"]))
    deadline = state["started"] + seconds - reserved_seconds
    caller, client = state.get("caller", ""), state.get("client", "")
    task = PlanTask(question, use.planner.vocabulary, deadline, caller, client, use.planner.reader)
    _charge(state, question)
    if use.experiment is None or (exposure := use.experiment.exposure(state["headers"], task.caller)) is None:
        planned = await _kept_plan(task, scope, receive, use, None)
    else:
        state["experiment"] = exposure.header
        task.planners, task.cached_for = exposure.planners, exposure.cached_for
        with use.experiment.reading(exposure):
            planned = await _kept_plan(task, scope, receive, use, exposure)
    return PlanAnswer.of(planned, state["request_id"], time.monotonic() - state["started"])


async def _kept_plan(
    task: PlanTask, scope: Scope, receive: Receive, use: Services, exposure: Exposure | None
) -> Planned:
    """Return a question's plan, counted and kept with what its shopper got. Raises ClientLeftError."""
    metered = Metered(_plan(task, receive, use))
    try:
        planned = await metered
    finally:
        use.pool.worked(task.client, metered.seconds)
    use.observer.planned(scope, planned)
    if use.outcomes is not None:
        use.outcomes.served(scope["state"]["request_id"], task.caller, task.question, planned, exposure)
    return planned


async def _plan(task: PlanTask, receive: Receive, use: Services) -> Planned:
    """Return a question's plan; one that costs far more than others to read waits for its turn. ClientLeftError.

    Where so many wait that its turn does not come in time, as much of it is read as an ordinary question has.
    """
    if task.question.weight > 1:
        now = time.monotonic()
        latest = now + (task.deadline - now) * _TURN_SHARE if task.deadline is not None else now
        try:
            planned = await use.turns.take(task.client, partial(_at_once, task, use), latest)
        except CapacityError as refusal:
            planned = use.planner.plan_briefly(task, refusal)
    else:
        planned = use.planner.plan_at_once(task)
    if planned is None:
        planned = await unless_client_leaves(receive, use.planner.plan(task), use.planner.unwanted)
    return planned


def _at_once(task: PlanTask, use: Services) -> Planned | None:
    """Return a plan that needs no waiting, else have the question read, for the model, by the end of its turn."""
    if (planned := use.planner.plan_at_once(task)) is None:
        with contextlib.suppress(Exception):  # a fault is told where the plan is made
            _ = task.prompt, task.grammar
    return planned


def _left(headers: Mapping[bytes, bytes]) -> float:
    """Return the seconds for which the balancer still waits: a retry has only the rest of the deadline.

    Envoy's router filter writes the header, "the time in milliseconds the router expects the request to be completed";
    other balancers write none. A caller that writes it itself shortens its own time.
    """
    left = headers.get(_LEFT_HEADER, b"")
    return max(int(left) / 1000 - _WAY_BACK_SECONDS, 0.0) if left.isdigit() and len(left) < _DIGITS else math.inf


@router.post("/trace", response_model=TraceAnswer, responses=problems(400, 401, 408, 413, 415, 422, 429, 503))
async def trace(body: PlanRequest, request: Request, use: Use) -> Response:
    """Decode a question twice, with Medusa heads and greedily, and show each step: one at a time, while no plan waits.

    Ignores `deadline_ms`.
    """
    question, request_id = body.question, request.state.request_id
    _charge(request.scope["state"], question)
    try:
        traced = await unless_client_leaves(
            request.receive, _decode_twice(use, question, request.scope["state"].get("client", ""))
        )
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    except RequestRefusedError as error:
        return problem_response(request_id, 422, f"The model does not take this question: {error}.")
    except PlanTextError as error:
        logger.error("plan text did not parse", extra={"exception": error_location(error)})
        return problem_response(request_id, 503, "The model's text is no plan.")
    except EngineError as error:
        detail = f"No replica of the model could decode this twice in time: {error}."
        return problem_response(request_id, 503, detail)
    except Exception as fault:  # a bug of ours before there is anything to show
        tell_fault(render_prompt(question), fault)
        use.observer.faulted(request.scope)
        return bug_response(request_id)
    medusa, greedy = (Decoding.of(each.plan, each.result) for each in traced if each.result is not None)
    if traced[0].reason == "fault":
        use.observer.faulted(request.scope)
    answer = TraceAnswer(
        request_id=request_id,
        question=question.text,
        medusa=medusa,
        greedy=greedy,
        reason=traced[0].reason,
    )
    return Response(answer.model_dump_json(), media_type="application/json")


@router.get("/vocabulary", response_model=Vocabulary)
async def vocabulary(use: Use) -> Response:
    """The intents, verticals, facets and sources that plans have, as the model's folder defines them."""
    return Response(use.planner.vocabulary.model_dump_json(), media_type="application/json")


@router.post(SHOP_PATH, include_in_schema=False)  # for the page alone
async def search_shop(body: ShopRequest, request: Request, use: Use) -> Response:
    """Search the shop with a question's plan and, beside it, with the shopper's own words."""
    if "charge" in (state := request.scope["state"]):
        state["charge"](len(await request.body()) // _ORDINARY_PLAN_BYTES)
    try:
        answer = await use.shop.search(body)
    except CapacityError as error:
        return problem_response(request.state.request_id, 503, f"Not now: {error}.")
    if answer.is_fault:
        use.observer.faulted(request.scope)
    answer.counted = use.events is not None
    return Response(answer.model_dump_json(), media_type="application/json")


async def _decode_twice(use: Services, question: Question, client: str) -> list[Planned]:
    """Decode with Medusa heads, then greedily. Raises EngineError, PlanTextError.

    Where our own code fails at completing them, the decodings are there all the same, with the plan that `/plan` gives.
    """
    if use.tracing.locked():
        raise CapacityError("another trace is being made", "capacity")
    deadline = time.monotonic() + use.trace_seconds
    reader = use.planner.reader
    task = PlanTask(question, use.planner.vocabulary, deadline, client=client, reader=reader)
    planner = Planner(use.pool, task.vocabulary, reader=reader)

    async def decode(strategy: Strategy) -> Drafted:
        while not use.pool.idle:  # every replica plans, or is down
            if time.monotonic() > deadline or not use.pool.available:
                raise CapacityError("plans go first", "capacity")
            await asyncio.sleep(_TRACE_PAUSE_SECONDS)
        return await planner.draft(task, strategy=strategy, trace=True)

    async with use.tracing:
        drafts = [await decode("medusa"), await decode("autoregressive")]
    if len({drafted.result.model_version for drafted in drafts}) > 1:
        raise CapacityError("the model was replaced meanwhile", "engine")
    try:
        return [planner.complete(drafted, task) for drafted in drafts]
    except Exception as fault:
        planned = planner.plan_despite(task, fault)
        return [replace(planned, result=drafted.result) for drafted in drafts]


def _charge(state: dict[str, Any], question: Question) -> None:
    """Count a question that costs more to read than an ordinary one as several of its caller's rate."""
    if "charge" in state and (weight := question.weight) > 1:
        state["charge"](weight - 1)


async def unless_client_leaves(
    receive: Receive,
    work: Coroutine[Any, Any, T],
    unwanted: Callable[[asyncio.Task[Any]], Awaitable[None]] | None = None,
) -> T:
    """Return the work's outcome; cancel it and raise ClientLeftError when the client disconnects first.

    `unwanted` gets the working task and returns once no other request waits for its result; only then is the task
    cancelled. The work runs in the request's own task, because a second task costs every plan more than the watch,
    which begins while the model already works.
    """
    worker = asyncio.current_task()
    assert worker is not None
    left = False
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal left
        await _disconnected(receive)
        if unwanted is not None:
            await unwanted(worker)
        left = True
        worker.cancel()

    def begin() -> None:
        nonlocal watching
        watching = asyncio.create_task(watch())

    timer = asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, begin)
    try:
        return await work
    except asyncio.CancelledError:
        if not left:
            raise
        worker.uncancel()
        raise ClientLeftError from None
    finally:
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def _disconnected(receive: Receive) -> None:
    """Return once the client is gone. The body has been read, so no other message can come."""
    while (await receive())["type"] != "http.disconnect":
        pass


@operations_router.get("/healthz")
async def health() -> JSONResponse:
    """Whether the process is alive; says nothing about the model."""
    return JSONResponse({"status": "alive"})


@operations_router.get("/readyz", responses=problems(503))
async def readiness(request: Request, use: Use) -> Response:
    """Whether a model would plan a question now, as proven by a real inference no older than a few seconds.

    A `notice` says in words what is wrong all the same: that most plans are late on this machine, and what to do.
    """
    reason = await use.readiness.why_not()
    if reason is not None:
        return problem_response(request.state.request_id, 503, f"Not ready: {reason}.")
    notice = use.deadline_watch.notice()
    ready = {
        "status": "ready",
        "model": use.pool.model_id,
        "kernel": use.pool.kernel,
        "deadline_ms": use.deadline_ms,  # of requests that name none
    }
    return JSONResponse({**ready, "notice": notice} if notice else ready)


@operations_router.get(METRICS_PATH, include_in_schema=False)
async def metrics(use: Use) -> Response:
    """Everything that is measured, in Prometheus's text format."""
    return Response(use.metrics.exposition(), headers={"content-type": CONTENT_TYPE})


@operations_router.post("/drain", include_in_schema=False)
async def drain(use: Use) -> JSONResponse:
    """Say not ready from now on, serve on for the drain's wait, finish what is in flight, exit 0."""
    use.drain.begin()
    return JSONResponse({"status": "draining", "seconds": use.drain.seconds}, status_code=202)


@operations_router.post("/reload", include_in_schema=False)
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
