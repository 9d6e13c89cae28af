"""What an event takes from the event loop that plans share: `python -m benchmarks.event_cost` prints microseconds.

The whole application but the HTTP protocol, in this process, ten requests at a time as they come between two writes of
the journal. Each kind is measured in turn, round after round, so that whatever else the machine does meets all alike;
the median round counts. To compare two versions, run it in both checkouts in turn.
"""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from starlette.types import ASGIApp, Message

from service.api.app import create_app, replica_pool, wire
from service.engines.worker.messages import ModelSource
from service.events.model import MOST_EVENTS
from service.settings import Settings
from service.settings.groups import HttpSettings, OutcomeSettings

_ROUNDS, _REQUESTS, _AT_ONCE = 7, 300, 10
_HEADERS = [(b"host", b"127.0.0.1:8080"), (b"content-type", b"application/json")]


def event(query_id: str, number: int, action: str, **attributes: object) -> dict[str, Any]:
    known = {"object": {"object_id": f"B{number}"}, "position": {"ordinal": 1}}
    who = {"event_id": f"{action}{number}", "client_id": "browser"}
    return {"action_name": action, "query_id": query_id, **who, "event_attributes": known | attributes}


async def post(app: ASGIApp, payload: object, status: int) -> None:
    """Post to /outcomes. Raises RuntimeError for another status."""
    sent: list[Message] = []
    body = json.dumps(payload).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    where = {"path": "/outcomes", "raw_path": b"/outcomes", "query_string": b"", "root_path": ""}
    who = {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8080), "headers": list(_HEADERS), "state": {}}
    await app(
        {"type": "http", "method": "POST", "scheme": "http", "http_version": "1.1", **where, **who}, receive, send
    )
    if sent[0]["status"] != status:
        raise RuntimeError(f"answered {sent[0]['status']}, not {status}: {sent[1]['body']!r}")


async def measure() -> dict[str, float]:
    """Return microseconds an event, by kind."""
    with tempfile.TemporaryDirectory() as folder:
        kept = OutcomeSettings(dir=Path(folder), actions="buy_now=purchase")
        settings = Settings(replicas=1, outcomes=kept, http=HttpSettings(max_body_bytes=2**16))
        services = wire(replica_pool(settings, ModelSource("none", {})), settings)
        app, ids = create_app(services, settings), [services.request_ids.new() for _ in range(10_000)]
        kinds: dict[str, tuple[Callable[[int], object], int, int]] = {
            "alone": (lambda n: event(ids[n // 10], n, "impression"), 202, 1),
            "an action of the shop's own, alone": (lambda n: event(ids[n // 10], n, "buy_now"), 202, 1),
            "sent again": (lambda n: event(ids[0], n % 10, "click"), 202, 1),
            "of no plan": (lambda n: event("0" * 32, n, "watch"), 404, 1),
            "of no known action": (lambda n: event(ids[n // 10], n, "clikc"), 422, 1),
            "of no known attribute": (lambda n: event(ids[n // 10], n, "click", size=1), 422, 1),
            f"in lists of {MOST_EVENTS}": (
                lambda n: [event(ids[n], MOST_EVENTS * n + place, "view") for place in range(MOST_EVENTS)],
                202,
                MOST_EVENTS,
            ),
        }  # fmt: skip
        found: dict[str, list[float]] = {name: [] for name in kinds}
        for number in range(_ROUNDS):
            for name, (make, status, events) in kinds.items():
                count = _REQUESTS // min(events, 10)
                payloads = [make(number * _REQUESTS + place) for place in range(count)]
                before = time.thread_time()
                for first in range(0, count, _AT_ONCE):
                    some = payloads[first : first + _AT_ONCE]
                    await asyncio.gather(*(post(app, each, status) for each in some))
                found[name].append((time.thread_time() - before) / count / events * 1e6)
        await services.close()
    return {name: statistics.median(rounds) for name, rounds in found.items()}


def main() -> None:
    for name, microseconds in uvloop.run(measure()).items():
        print(f"{microseconds:6.0f} us  {name}")


if __name__ == "__main__":
    main()
