"""`EventSender`: what happened after plans, sent from a thread of its own; a caller never waits.

`put` is for threads and for asyncio alike: it returns at once. Events wait in a bounded queue, linger there so that
those which come together go out in one list, and are sent again with the same `event_id` until the service has them,
which keeps each once. What finds no room is counted.
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

from peakplan_client.calls import ENCODINGS, read_body, urls

logger = logging.getLogger(__name__)

MOST_OF_A_REQUEST, MOST_BYTES = 64, 16 * 1024  # as many as the service takes, unless its operator has set other limits
LINGER_MS = 500
_TIMEOUT_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10.0
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class EventSender:
    """Sends events to `POST /outcomes` (docs/value.md): `EventSender("http://127.0.0.1:8080").put(event)`."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        token: str | None = None,
        linger_ms: float = LINGER_MS,
        most_waiting: int = 10_000,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Take endpoints in order of preference, and how many events may wait for a service that is down.

        An event waits for others for up to `linger_ms` milliseconds, less where a request is full or the sender closes:
        events in lists cost the service a fraction of what they cost one by one. 0 sends at once what waits.
        """
        self._urls = [f"{url}/outcomes" for url in urls(endpoints)]
        headers = {
            "accept-encoding": ENCODINGS, "content-type": "application/json", "user-agent": "peakplan-client",
        }  # fmt: skip
        if token:
            headers["authorization"] = f"Bearer {token}"
        self._http = httpx.Client(headers=headers, transport=transport, timeout=_TIMEOUT_SECONDS)
        self._linger = linger_ms / 1000
        self._waiting: deque[tuple[bytes, float]] = deque()  # events as JSON, and when each has lingered long enough
        self._waiting_bytes = 0
        self._most_waiting = most_waiting
        self._changed = threading.Condition()
        self._ends_at: float | None = None
        self._sending = 0
        self.sent = self.dropped = self.refused = 0
        self._thread = threading.Thread(target=self._send_for_ever, name="peakplan-events", daemon=True)
        self._thread.start()

    def put(self, event: Mapping[str, Any]) -> bool:
        """Take an event as UBI has it; return whether it was taken: there was room, and it can be written as JSON.

        It gets an `event_id` where it has none. What the caller does with the mapping afterwards changes nothing.
        """
        try:
            text = _JSON({"event_id": uuid.uuid4().hex, **event}).encode()
        except (TypeError, ValueError) as error:  # words of a shopper are in no message of these
            with self._changed:
                self._refuse([f"it is no JSON: {type(error).__name__}"])
            return False
        with self._changed:
            if self._ends_at is not None or len(self._waiting) + self._sending >= self._most_waiting:
                self._drop(1, "the service is down or slow")
                return False
            was_empty, was_full = not self._waiting, self._is_full
            self._waiting.append((text, time.monotonic() + self._linger))
            self._waiting_bytes += len(text) + 1
            if was_empty or self._is_full != was_full:  # the sender lingers through what is between
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

    @property
    def _is_full(self) -> bool:
        """Whether what waits fills a request; the bytes have a comma each, and a bracket more."""
        return len(self._waiting) >= MOST_OF_A_REQUEST or self._waiting_bytes + 1 > MOST_BYTES

    def _send_for_ever(self) -> None:
        while batch := self._next():
            self._send(batch)
            self._sending = 0

    def _next(self) -> list[bytes]:
        """Return the oldest events, once there are enough or they have lingered; none when the sender has ended."""
        with self._changed:
            while self._ends_at is None and not self._is_full:
                left = self._waiting[0][1] - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            batch: list[bytes] = []
            size = 1
            while self._waiting and len(batch) < MOST_OF_A_REQUEST:
                size += len(self._waiting[0][0]) + 1
                if batch and size > MOST_BYTES:
                    break
                batch.append(self._waiting.popleft()[0])
                self._waiting_bytes -= len(batch[-1]) + 1
            self._sending = len(batch)
        return batch

    def _send(self, batch: list[bytes]) -> None:
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
                self._wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _wait(self, seconds: float) -> None:
        """Wait, whatever comes meanwhile; less where the end is announced."""
        until, ends = time.monotonic() + seconds, self._ends_at
        while self._ends_at == ends and (left := until - time.monotonic()) > 0:
            self._changed.wait(left)

    def _is_done(self, url: str, batch: list[bytes]) -> bool:
        try:
            with self._http.stream("POST", url, content=b"[" + b",".join(batch) + b"]") as answer:
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
