"""Many questions at once: what of them goes into one request, and what each of them gets."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict

import httpx
from pydantic import BaseModel

from peakplan_client.calls import LEAST_DEADLINE_MS, Call, Send, Steps, of_status, read
from peakplan_client.errors import InvalidRequestError, PlannerError, UnavailableError
from peakplan_client.plan import Answer, Problem

PLANS_TIMEOUT_SECONDS = 60.0
MESSAGES = 8  # of the history, the newest, that the service reads; and as many of each one's last characters
MESSAGE_CHARACTERS = 512
_DEADLINE_MS = 10_000  # of a question of a batch that has none
_MOST_REQUESTS = 64
_MOST_BYTES = 15 * 1024  # the service takes 16 KiB, unless PEAKPLAN_MAX_BODY_BYTES says otherwise
_NETWORK_SECONDS = 2.0  # for an answer of many plans
_PAUSE_SECONDS = 1.0  # before what the service had no room for is sent again

Planned = Answer | PlannerError


class _Question(TypedDict):
    query: str


class Question(_Question, total=False):
    """One question of a batch, as `POST /plan` takes it; its plan is there `deadline_ms` after the batch came."""

    history: Sequence[str]
    deadline_ms: int
    locale: str | None


class _Item(BaseModel):
    answer: Answer | None = None
    problem: Problem | None = None


class _Items(BaseModel):
    answers: list[_Item]


def newest(history: Sequence[str]) -> list[str]:
    """Return of a conversation what the service reads."""
    return [message[-MESSAGE_CHARACTERS:] for message in history[-MESSAGES:]]


def batches(requests: Iterable[Question | str]) -> Iterator[list[dict[str, Any]]]:
    """Yield requests in groups, each as large as the service takes."""
    batch: list[dict[str, Any]] = []
    room = _MOST_BYTES
    for given in requests:
        body: dict[str, Any] = {"query": given} if isinstance(given, str) else dict(given)
        if isinstance(history := body.get("history"), list | tuple):
            body["history"] = newest(history)
        size = len(json.dumps(body, ensure_ascii=False).encode(errors="replace")) + 1
        if batch and (size > room or len(batch) == _MOST_REQUESTS):
            yield batch
            batch, room = [], _MOST_BYTES
        batch.append(body)
        room -= size
    if batch:
        yield batch


class PlansCall(Call[list[Planned]]):
    """A batch. Questions that the service had no room for are sent again while time is left; other results are kept."""

    def __init__(
        self,
        ask_last_until: dict[httpx.URL, float],
        headers: Mapping[str, str],
        timeout: float,
        requests: Sequence[dict[str, Any]],
    ) -> None:
        super().__init__(ask_last_until, headers, timeout)
        self._requests = requests
        self._found: dict[int, Planned] = {}
        self._open = list(range(len(requests)))

    def _send(self, endpoint: httpx.URL, left: float) -> Send | None:
        left_ms = int((left - _NETWORK_SECONDS) * 1000)
        if left_ms < LEAST_DEADLINE_MS:
            return None
        bodies = [self._requests[number] for number in self._open]
        deadlines = [_deadline_ms(body, left_ms) for body in bodies]
        cut = [body | {"deadline_ms": deadline} for body, deadline in zip(bodies, deadlines, strict=True)]
        longest = max((deadline for deadline in deadlines if isinstance(deadline, int)), default=left_ms)
        request = self._request(endpoint, "/plans", {"requests": cut})
        return Send(request, min(self.end, time.monotonic() + longest / 1000 + _NETWORK_SECONDS))

    def _take(self, response: httpx.Response) -> PlannerError | None:
        again: PlannerError | None = None
        for number, item in zip(list(self._open), read(_Items, response).answers, strict=False):
            found = item.answer or _error(item.problem or Problem(), response.url)
            if isinstance(found, UnavailableError):
                again = found
            else:
                self._open.remove(number)
            self._found[number] = found
        if again is None and self._open:
            return UnavailableError(f"{response.url} left {len(self._open)} questions without an answer.", status=200)
        return again

    def _result(self) -> list[Planned]:
        return [self._found[number] for number in range(len(self._requests))]

    def _given_up(self, error: PlannerError) -> list[Planned]:
        return [self._found.get(number, error) for number in range(len(self._requests))]

    def steps(self) -> Steps[list[Planned]]:
        """As every call's; a batch that is refused as a whole costs the others nothing."""
        try:
            return (yield from super().steps())
        except InvalidRequestError as error:
            return self._given_up(error)


def _deadline_ms(body: Mapping[str, Any], left_ms: int) -> Any:
    """Return a question's deadline, at most the time left; the service rejects an invalid one, so it is passed on."""
    given = body.get("deadline_ms", _DEADLINE_MS)
    return min(given, left_ms) if isinstance(given, int) and given >= LEAST_DEADLINE_MS else given


def _error(problem: Problem, url: httpx.URL) -> PlannerError:
    status = problem.status or 500
    told = f"{url} answered this question with {status}: {problem.detail or problem.title}"
    return of_status(told, status, problem, _PAUSE_SECONDS)
