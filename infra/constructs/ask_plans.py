"""The program of a cell's canary: it asks for one real plan, and fails unless that is whole, in time, and no stand-in.

CloudWatch Synthetics runs this file alone, in a Python of its own, whose environment has ADDRESS, NAME, HEADERS and
DEADLINE_MS.
"""

import http.client
import json
import os
import ssl
import time
from typing import Any

# The numbers of the minute make each question new, so that no cache answers it.
_QUESTIONS = (
    "red running shoes under {} dollars",
    "waterproof jacket for a child, at most {} dollars",
    "wireless headphones between 20 and {} dollars",
    "a birthday present for my father, up to {} dollars",
)


class NoGoodPlanError(Exception):
    """An answer that is not what callers are promised. The message says what it was instead."""


def question(moment: float) -> str:
    """Return the question of a minute."""
    minute = int(moment // 60)
    return _QUESTIONS[minute % len(_QUESTIONS)].format(21 + minute % 9973)


def judge(status: int, body: bytes, milliseconds: float, limit_ms: float) -> None:
    """Raise NoGoodPlanError unless the answer is a plan by the model or by choice, in time."""
    if status != 200:
        raise NoGoodPlanError(f"status {status}: {body[:300]!r}")
    try:
        answer: Any = json.loads(body)
        degraded, queries = answer["degraded"], answer["plan"]["queries"]
    except (ValueError, KeyError, TypeError) as error:
        raise NoGoodPlanError(f"no plan: {body[:300]!r}") from error
    if degraded:
        raise NoGoodPlanError(f"a plan by the reader in the model's place: {answer.get('reason')}")
    if not queries:
        raise NoGoodPlanError("a plan that searches for nothing")
    if milliseconds > limit_ms:
        raise NoGoodPlanError(f"{milliseconds:.0f} ms, of at most {limit_ms:.0f}")


def ask(address: str, headers: dict[str, str], deadline_ms: int, moment: float) -> None:
    """Ask a cell for the plan of a minute. Raise NoGoodPlanError, or OSError where no connection comes about."""
    # The load balancer is asked by its own name, and its certificate is for callers' names, often by an authority that
    # no public list has. Its end has an alarm of its own; the question holds nothing of anybody's.
    context = ssl._create_unverified_context()
    host, _, port = address.partition(":")
    connection = http.client.HTTPSConnection(host, int(port or 443), timeout=10, context=context)
    body = json.dumps({"query": question(moment), "deadline_ms": deadline_ms})
    try:
        connection.connect()  # callers' connections persist, so its time is not the plan's
        began = time.monotonic()
        connection.request("POST", "/plan", body, {"Content-Type": "application/json"} | headers)
        response = connection.getresponse()
        answer = response.read()
        judge(response.status, answer, 1000 * (time.monotonic() - began), 2 * deadline_ms)
    finally:
        connection.close()


def handler(event: object, context: object) -> str:
    """Run the canary; what it raises is a failed run."""
    del event, context
    told = {"Host": os.environ["NAME"]} | json.loads(os.environ["HEADERS"])
    ask(os.environ["ADDRESS"], told, int(os.environ["DEADLINE_MS"]), time.time())
    return "a plan, whole and in time"
