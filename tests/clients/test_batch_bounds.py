"""How large batches are, how long they wait and what is sent again: at the bounds, on a clock that stands still."""

import json
from typing import Any

import httpx
import pytest
from peakplan_client import Answer, Client, Planned, UnavailableError
from peakplan_client.batch import batches

from tests.clients.scripted import BODY, FIRST, Clock, Handler, problem, waits

ROOM = 15 * 1024  # bytes
PLAN = {"answer": BODY}


def plans(handler: Handler, *questions: Any, **options: Any) -> list[Planned]:
    with Client(FIRST, transport=httpx.MockTransport(handler)) as client:
        return client.plans(questions, **options)


class Service:
    """Answers each batch with the next list of answers, the last one for ever."""

    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self._answers, self.asked = list(answers), []  # type: ignore[var-annotated]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return httpx.Response(200, json={"answers": answers})

    def bodies(self) -> list[list[dict[str, Any]]]:
        return [json.loads(request.content)["requests"] for request in self.asked]


@pytest.mark.parametrize(("more", "sizes"), [(0, [2, 1]), (1, [1, 2])])
def test_a_batch_is_filled_to_the_last_byte(more: int, sizes: list[int]) -> None:
    frame = len('{"query": ""},')
    first, second = "x" * 5000, "y" * (ROOM - 5000 - 2 * frame + more)
    assert [len(batch) for batch in batches([first, second, "z"])] == sizes


def test_a_question_that_is_too_large_for_any_batch_goes_alone_and_costs_no_room_of_others() -> None:
    large = "x" * 2 * ROOM
    assert [len(batch) for batch in batches(["a", large, "b", "c"])] == [1, 1, 2]


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (64, [64]), (65, [64, 1]), (129, [64, 64, 1])])
def test_64_questions_go_at_a_time(count: int, sizes: list[int]) -> None:
    assert [len(batch) for batch in batches("q" for _ in range(count))] == sizes


def test_of_each_conversation_what_counts_is_sent_and_what_is_none_goes_as_it_is() -> None:
    long = [f"{number}" + "x" * 600 for number in range(9)]
    questions: list[Any] = [{"query": "a", "history": tuple(long)}, {"query": "b", "history": "no list"}]
    ((first, second),) = batches(questions)
    assert first["history"] == ["x" * 512] * 8
    assert second["history"] == "no list"
    assert isinstance(questions[0]["history"], tuple), "what the caller gave is the caller's"


def test_a_question_without_a_deadline_has_ten_seconds_and_the_network_two(clock: Clock) -> None:
    service = Service([PLAN])
    plans(service, "a")
    plans(service, {"query": "a", "deadline_ms": 9})
    plans(service, {"query": "a", "deadline_ms": "x"}, timeout=7)
    assert clock.paused == []
    assert [[each["deadline_ms"] for each in body] for body in service.bodies()] == [[10_000], [9], ["x"]]
    assert [waits(request) for request in service.asked] == pytest.approx([12.0, 2.009, 7.0])


def test_a_batch_has_a_minute_unless_it_is_told_otherwise(clock: Clock) -> None:
    assert clock.now
    service = Service([PLAN])
    plans(service, {"query": "a", "deadline_ms": 100_000})
    assert service.bodies()[0][0]["deadline_ms"] == 58_000, "a minute less what the network has"
    assert waits(service.asked[0]) == pytest.approx(60.0)


@pytest.mark.parametrize(("milliseconds", "asked"), [(2009, 0), (2010, 1)])
def test_without_time_for_a_plan_and_the_network_nothing_is_asked(clock: Clock, milliseconds: int, asked: int) -> None:
    assert clock.now
    service = Service([PLAN])
    (found,) = plans(service, "a", timeout=(milliseconds + 0.5) / 1000)
    assert len(service.asked) == asked
    assert isinstance(found, Answer if asked else UnavailableError)
    if asked:
        assert service.bodies()[0][0]["deadline_ms"] == 10
    else:
        assert "no time to ask" in str(found)


def test_what_there_was_no_room_for_waits_a_second(clock: Clock) -> None:
    full = {"problem": json.loads(problem(503).content)}
    service = Service([PLAN, full], [PLAN])
    assert [type(each) for each in plans(service, "a", "b")] == [Answer, Answer]
    assert clock.paused == [1.0]


def test_a_question_that_the_service_leaves_out_is_asked_again(clock: Clock) -> None:
    service = Service([PLAN], [], [PLAN])
    assert [type(each) for each in plans(service, "a", "b")] == [Answer, Answer]
    assert [[each["query"] for each in body] for body in service.bodies()] == [["a", "b"], ["b"], ["b"]]
    assert clock.paused == pytest.approx([0.03, 0.06]), "the service asked for no pause"


def test_who_leaves_questions_out_for_ever_is_named(clock: Clock) -> None:
    assert clock.now
    found, left_out, other = plans(Service([PLAN], []), "a", "b", "c", timeout=2.1)
    assert isinstance(found, Answer)
    for each in (left_out, other):
        assert isinstance(each, UnavailableError)
        assert each.status == 200
        assert "left 2 questions without an answer" in str(each)


def test_an_answer_that_is_none_is_a_fault_of_the_service(clock: Clock) -> None:
    assert clock.now
    (found,) = plans(Service([{}]), "a", timeout=2.5)
    assert isinstance(found, UnavailableError)
    assert (found.status, found.retry_after) == (500, 1.0)


def test_the_most_patient_question_decides_how_long_a_batch_is_waited_for(clock: Clock) -> None:
    assert clock.now
    service = Service([PLAN] * 3)
    plans(
        service,
        {"query": "a", "deadline_ms": 300},
        {"query": "b", "deadline_ms": 900},
        {"query": "c", "deadline_ms": 20},
    )
    assert waits(service.asked[0]) == pytest.approx(2.9)
