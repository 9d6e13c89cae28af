"""Turns in the event loop: who has far more done for a question than others leaves room between two of them.

Everything besides the model happens in one thread. A question that costs ten times an ordinary one, asked by several
callers at once and over and over, would keep all others waiting for each of them, at every step of theirs.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CostlyTurns:
    """Costly work is done one piece at a time, after what is ready by then, and as much time is left after each."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """Take `clock`, which returns the seconds of the processor that the event loop's thread has used."""
        self._clock = clock
        self._turn = asyncio.Lock()

    async def take(self, work: Callable[[], T], latest: float) -> T:
        """Return what the work does in its turn, or at `latest` on the `time.monotonic` clock without one."""
        try:
            async with asyncio.timeout(max(latest - time.monotonic(), 0.0)):
                await self._turn.acquire()
        except TimeoutError:
            return work()
        began = self._clock()
        try:
            await asyncio.sleep(0)  # who is ready goes first
            began = self._clock()
            return work()
        finally:
            asyncio.get_running_loop().call_later(self._clock() - began, self._turn.release)


class Metered(Generic[T]):
    """Awaits a coroutine, and tells the seconds of the processor that it took from the event loop's thread."""

    def __init__(self, work: Coroutine[Any, Any, T], clock: Callable[[], float] = time.thread_time) -> None:
        self._work = work
        self._clock = clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[], Any] = partial(self._work.send, None)
        while True:
            began = self._clock()
            try:
                waited_for = step()
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            finally:
                self.seconds += self._clock() - began
            try:
                yield waited_for
                step = partial(self._work.send, None)
            except BaseException as error:  # cancelled, most often
                step = partial(self._work.throw, error)
