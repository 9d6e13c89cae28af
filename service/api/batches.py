"""`POST /plans`: many questions at once, for offline jobs; they never delay shoppers (`gateway/idle_replicas.py`)."""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from service.api.models import PlanAnswer, PlanRequest, Problem
from service.api.observation import CLIENT_CLOSED_REQUEST
from service.api.problems import bug_response, invalid_request, problem_response
from service.api.routes import PLANS_PATH, REPLY_SECONDS, ClientLeftError, unless_client_leaves
from service.api.services import Services, Use, problems
from service.gateway.request_queue import CapacityError
from service.gateway.turns import Metered
from service.planner.planner import Planned
from service.planner.prompt import PlanTask
from service.telemetry.logs import error_location

logger = logging.getLogger(__name__)

MOST_REQUESTS = 64
DEADLINE_MS = 10_000
_MOST_DEADLINE_MS = 30_000


class BatchedRequest(PlanRequest):
    """A question of a batch. It has more time: its turn comes when nobody else needs a replica."""

    deadline_ms: int = Field(
        default=DEADLINE_MS,
        ge=10,
        le=_MOST_DEADLINE_MS,
        description="The plan is there within this time after the batch came; the answer comes with the last one.",
    )


class PlansRequest(BaseModel):
    """Questions of an offline job. Each is answered by itself, a wrong one too."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"requests": [{"query": "red shoes"}, {"query": "quiet blender", "deadline_ms": 20_000}]}]
        },
    )

    requests: list[Annotated[BatchedRequest | dict[str, Any], Field(union_mode="left_to_right")]] = Field(
        min_length=1,
        max_length=MOST_REQUESTS,
        description="Each as for `POST /plan`. One that is not as it should be gets a problem; the others get plans.",
    )


class BatchedAnswer(BaseModel):
    """The answer to one question: a plan as `POST /plan` gives it, or the problem that it would answer."""

    answer: PlanAnswer | None = None
    problem: Problem | None = None


class PlansAnswer(BaseModel):
    """Answers in the order of the requests."""

    request_id: str
    answers: list[BatchedAnswer]


router = APIRouter()


@router.post(PLANS_PATH, response_model=PlansAnswer, responses=problems(400, 401, 408, 413, 415, 422, 429, 503))
async def plans(body: PlansRequest, request: Request, use: Use) -> Response:
    """Plan many questions, for offline jobs: on replicas that no shopper needs, each within its own deadline."""
    request_id = request.state.request_id
    batch = _Batch(body.requests, request.scope, use)
    if not use.load_shedder.is_open or not use.batch_room.enter(batch.client, batch.give_way):
        detail = "This host has as much to do as it can now. A batch can wait: try again in a second."
        return problem_response(request_id, 503, detail)
    try:
        parts = await unless_client_leaves(request.receive, batch.answers())
    except ClientLeftError:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    finally:
        use.batch_room.leave(batch.client, batch.give_way)
    request.scope["state"]["log"] |= {"requests": len(parts), **batch.counts}
    whole = b'{"request_id":%b,"answers":[%b]}' % (json.dumps(request_id).encode(), b",".join(parts))
    return Response(whole, media_type="application/json")


class _Batch:
    """The questions of one call, and how many plans came from where."""

    def __init__(self, requests: Sequence[BatchedRequest | dict[str, Any]], scope: Scope, use: Services) -> None:
        self._requests, self._state, self._use = requests, scope["state"], use
        self._tasks: dict[int, asyncio.Task[bytes]] = {}  # by the number of the request
        self.client = self._state.get("client", "")
        self.counts: Counter[str] = Counter()

    def give_way(self) -> None:
        """Plan no more questions; the plans that are made are answered."""
        for task in self._tasks.values():
            task.cancel()

    async def answers(self) -> list[bytes]:
        """Return every answer as JSON, in the order of the requests; those with the least time come first."""
        granted = len(self._requests) - 1  # the call itself is one
        if "grant" in self._state:
            granted = self._state["grant"](granted)
        order = sorted(range(len(self._requests)), key=lambda number: _deadline_ms(self._requests[number]))
        async with asyncio.TaskGroup() as group:
            self._tasks = {
                number: group.create_task(self._answer(self._requests[number], is_granted=place <= granted))
                for place, number in enumerate(order)
            }
        ended = [self._tasks[number] for number in range(len(order))]
        return [self._gave_way() if task.cancelled() else task.result() for task in ended]

    def _gave_way(self) -> bytes:
        detail = "You hold more batches than others, who needed the room of this one. Send this again in a second."
        return self._problem(problem_response(self._use.request_ids.new(), 503, detail))

    async def _answer(self, given: BatchedRequest | dict[str, Any], *, is_granted: bool) -> bytes:
        request_id = self._use.request_ids.new()
        if not is_granted:
            detail = "You sent more requests than you may in a second. Send this one again in a second."
            return self._problem(problem_response(request_id, 429, detail))
        async with self._use.batch_places.place(self.client):
            try:
                request = given if isinstance(given, BatchedRequest) else BatchedRequest.model_validate(given)
                planned = await self._charged(request, request_id)
                if planned is None:
                    detail = "This host can now not even let the reader plan this. Try again in a second."
                    return self._problem(problem_response(request_id, 503, detail))
                answer = PlanAnswer.of(planned, request_id, time.monotonic() - self._state["started"]).json()
            except ValidationError as error:
                return self._problem(invalid_request(request_id, error.errors()))
            except Exception as error:
                logger.error("a request of a batch failed", extra={"exception": error_location(error)})
                return self._problem(bug_response(request_id))
        self.counts[f"from_{planned.source}"] += 1
        return b'{"answer":%b}' % answer

    async def _charged(self, request: BatchedRequest, request_id: str) -> Planned | None:
        """Plan, and count in the caller's share what that takes besides the model."""
        metered = Metered(self._planned(request, request_id))
        try:
            return await metered
        finally:
            self._use.pool.worked(self.client, metered.seconds)

    async def _planned(self, request: BatchedRequest, request_id: str) -> Planned | None:
        """Return the plan of one question; None where this host has no time for it."""
        use, deadline = self._use, self._state["started"] + request.deadline_ms / 1000 - REPLY_SECONDS
        async with use.batch_turn:  # in a turn of the event loop one question is read, however many batches there are
            await asyncio.sleep(0)
            if not use.load_shedder.is_open:
                return None
            with use.load_shedder:
                question = request.question
                caller = self._state.get("caller", "")
                task = PlanTask(question, use.planner.vocabulary, deadline, caller, reader=use.planner.reader)
                planned = await self._at_once(task) if question.weight > 1 else use.batches.plan_at_once(task)
        if planned is None:
            planned = await use.batches.plan(task)
        if use.outcomes is not None:
            use.outcomes.served(request_id, task.caller, question, planned)
        return planned

    async def _at_once(self, task: PlanTask) -> Planned | None:
        """Read a long question, which counts as several, between those of shoppers: all batches wait for it."""
        if "charge" in self._state:
            self._state["charge"](task.question.weight - 1)
        work = partial(self._use.batches.plan_at_once, task)
        try:
            return await self._use.turns.take(self.client, work, task.deadline or 0.0)
        except CapacityError as refusal:
            return self._use.batches.plan_briefly(task, refusal)

    def _problem(self, response: Response) -> bytes:
        self.counts["problems"] += 1
        return b'{"problem":%b}' % bytes(response.body)


def _deadline_ms(request: BatchedRequest | dict[str, Any]) -> int:
    return request.deadline_ms if isinstance(request, BatchedRequest) else 0
