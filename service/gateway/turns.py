"""Turns in the event loop: who has far more done for a question than others leaves room between two of them.

Everything besides the model happens in one thread. A question that costs ten times an ordinary one, asked by several
callers at once and over and over, would keep all others waiting for each of them, at every step of theirs.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from service.gateway.request_queue import CapacityError

T = TypeVar("T")


class _Line:
    """Callers that wait. Clients take turns, so more connections give a client no more turns."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # by client, whose is next first

    async def wait(self, client: str, seconds: float | None, release: Callable[[], None]) -> None:
        """Return in the client's turn; `release` it where that comes just as it gives up. Raises TimeoutError."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                release()
            raise

    def call_next(self) -> bool:
        """Give the turn to the client whose last one was longest ago, past all who gave up; False where none waits."""
        while self._waiting:
            client, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():
                turn.set_result(None)
                return True
        return False


class Places:
    """So many pieces of work at the same time, of clients that take turns."""

    def __init__(self, count: int) -> None:
        self._free, self._line = count, _Line()

    @contextlib.asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """Wait for a place, and have it meanwhile."""
        if self._free:
            self._free -= 1
        else:
            await self._line.wait(client, None, self._release)
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        if not self._line.call_next():
            self._free += 1


class CostlyTurns:
    """Costly work is done one piece at a time, after what is ready by then, and as much time is left after each.

    That is time as everybody waits for it, and not the processor's: where others keep the processor, a piece of five
    milliseconds lasts fifty, and five would leave next to nothing between two of them. Clients take turns.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_taken = False
        self._line = _Line()

    async def take(self, client: str, work: Callable[[], T], latest: float) -> T:
        """Return what the work does in its turn. Raises CapacityError where that has not come by `latest`.

        `latest` is on the clock. After this error the caller must do with less work: doing it without a turn, many
        callers would do all theirs at once.
        """
        await self._turn(client, latest)
        began = self._clock()
        try:
            await asyncio.sleep(0)  # tasks that are ready go first
            began = self._clock()
            return work()
        finally:
            asyncio.get_running_loop().call_later(self._clock() - began, self._release)

    async def _turn(self, client: str, latest: float) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        try:
            await self._line.wait(client, max(latest - self._clock(), 0.0), self._release)
        except TimeoutError:
            raise CapacityError("too many long questions came before", "capacity") from None

    def _release(self) -> None:
        self._is_taken = self._line.call_next()


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


_MOST_BATCHES = 8  # at the same time: each holds its questions and answers in memory
_MOST_CLIENTS = 64  # that have a batch each, where so many clients ask

GiveWay = Callable[[], None]


class BatchRoom:
    """Which batches are held, by client."""

    def __init__(self) -> None:
        self._held: dict[str, list[GiveWay]] = {}  # the newest last

    def enter(self, client: str, give_way: GiveWay) -> bool:
        """Tell whether a client's batch is taken in; `give_way` is called where its room is needed for others.

        Where there is no room, the newest batch of the client that has most gives way to one that will have fewer.
        Every client may have one.
        """
        own = len(self._held.get(client, ()))
        if sum(map(len, self._held.values())) >= _MOST_BATCHES:
            most = max(self._held, key=lambda each: len(self._held[each]))
            if len(self._held[most]) > own + 1:
                self._held[most].pop()()
            elif own or len(self._held) >= _MOST_CLIENTS:
                return False
        self._held.setdefault(client, []).append(give_way)
        return True

    def leave(self, client: str, give_way: GiveWay) -> None:
        held = self._held.get(client, [])
        if give_way in held:
            held.remove(give_way)
        if not held:
            self._held.pop(client, None)
