"""`EventSender`: what happened after plans, sent from a thread of its own; a caller never waits.

`put` is for threads and for asyncio alike: it returns at once. Events wait in a bounded queue, go out in lists, and are
sent again with the same `event_id` until the service has them, which keeps each once. What finds no room is counted.
"""

import contextlib
import json
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx

from peakplan_client.body import ENCODINGS, read_body
from peakplan_client.calls import urls

logger = logging.getLogger(__name__)

MOST_OF_A_REQUEST = 32  # of the 64 that the service takes, so that they fit into its 16 KiB
_TIMEOUT_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10.0


class EventSender:
    """Sends events to `POST /outcomes` (docs/value.md): `EventSender("http://127.0.0.1:8080").put(event)`."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        token: str | None = None,
        most_waiting: int = 10_000,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Take endpoints in order of preference, and how many events may wait for a service that is down."""
        self._urls = [f"{url}/outcomes" for url in urls(endpoints)]
        headers = {"accept-encoding": ENCODINGS, "user-agent": "peakplan-client"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self._http = httpx.Client(headers=headers, transport=transport, timeout=_TIMEOUT_SECONDS)
        self._waiting: deque[dict[str, Any]] = deque()
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._ends_at: float | None = None
        self._sending = 0
        self.sent = self.dropped = self.refused = 0
        self._thread = threading.Thread(target=self._send_for_ever, name="peakplan-events", daemon=True)
        self._thread.start()

    def put(self, event: Mapping[str, Any]) -> bool:
        """Take an event as UBI has it; return whether there was room. It gets an `event_id` where it has none."""
        named = {"event_id": uuid.uuid4().hex, **event}
        with self._changed:
            if self._ends_at is not None or len(self._waiting) + self._sending >= self._most_waiting:
                self._drop(1, "the service is down or slow")
                return False
            self._waiting.append(named)
            self._changed.notify()
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Send what waits, for `timeout` seconds at most; the rest is counted as dropped."""
        with self._changed:
            self._ends_at = time.monotonic() + timeout
            self._changed.notify()
        self._thread.join(timeout + _TIMEOUT_SECONDS)
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send_for_ever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ends_at is not None)
                if not self._waiting:
                    return
                size = min(MOST_OF_A_REQUEST, len(self._waiting))
                batch = [self._waiting.popleft() for _ in range(size)]
                self._sending = size
            self._send(batch)
            self._sending = 0

    def _send(self, batch: list[dict[str, Any]]) -> None:
        """Send until the service has the events or says that it never will."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            for url in self._urls:
                if self._is_done(url, batch):
                    return
            with self._changed:
                ends = self._ends_at
                if ends is not None and time.monotonic() + pause > ends:
                    self._drop(len(batch), "the service did not take them before the end")
                    return
                self._changed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _is_done(self, url: str, batch: list[dict[str, Any]]) -> bool:
        try:
            with self._http.stream("POST", url, json=batch) as answer:
                body = read_body(answer, time.monotonic() + _TIMEOUT_SECONDS)
        except httpx.HTTPError:
            return False
        if answer.status_code == httpx.codes.ACCEPTED:
            refused = _refused(body)
            self.sent += len(batch) - len(refused)
            self._refuse(refused)
            return True
        if answer.status_code == 429 or answer.status_code >= 500:
            return False
        if answer.status_code == 413 and len(batch) > 1:
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                self._send(half)
            return True
        self._refuse([body[:500].decode("utf-8", "replace")] * len(batch))
        return True

    def _refuse(self, told: Sequence[Any]) -> None:
        if told:
            self.refused += len(told)
            logger.warning("events refused: %d, the first because %s", len(told), told[0])

    def _drop(self, count: int, why: str) -> None:
        self.dropped += count
        if self.dropped.bit_length() > (self.dropped - count).bit_length():  # the first, and then ever more rarely
            logger.warning("events dropped: %d by now, because %s", self.dropped, why)


def _refused(body: bytes) -> list[Any]:
    """Return what the service refuses of a list; an older one, or what stands before it, says nothing of that."""
    with contextlib.suppress(ValueError, AttributeError):
        refused = json.loads(body).get("refused")
        return refused if isinstance(refused, list) else []
    return []
