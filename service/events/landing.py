"""Requests that wait for the journal, many for one write: its thread wakes the event loop once for all of them."""

import asyncio
import contextlib
from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Waiting:
    timer: asyncio.TimerHandle
    requests: list["asyncio.Future[bool]"] = field(default_factory=list)


class Landing:
    """Tells requests of one event loop whether what they appended is in a file."""

    def __init__(self) -> None:
        self._waiting: dict[Future[bool], _Waiting] = {}

    async def kept(self, written: "Future[bool]", seconds: float) -> bool:
        """Return a write's result; False where it is not known in time, because a disk hangs."""
        if written.done():
            return written.result()
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(written)
        if waiting is None:
            waiting = self._waiting[written] = _Waiting(loop.call_later(seconds, self._land, written, False))
            written.add_done_callback(lambda done: self._wake(loop, done))
        request = loop.create_future()
        waiting.requests.append(request)
        return bool(await request)

    def _wake(self, loop: asyncio.AbstractEventLoop, written: "Future[bool]") -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(self._land, written, written.result())

    def _land(self, written: "Future[bool]", kept: bool) -> None:
        if (waiting := self._waiting.pop(written, None)) is None:
            return  # given up before
        waiting.timer.cancel()
        for request in waiting.requests:
            if not request.done():
                request.set_result(kept)
