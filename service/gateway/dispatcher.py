"""Assigns replicas as admission decides: the futures, timers and idle replicas around its decisions."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from service.gateway.admission import Admission
from service.gateway.request_queue import CapacityError, QueuedRequest
from service.gateway.slot import Slot

T = TypeVar("T")

_SLOW = 2  # times what all replicas take; another idle one is preferred


@dataclass(eq=False, slots=True, kw_only=True)
class _Waiter(QueuedRequest):
    """A waiting request and the replica that it is assigned."""

    turn: asyncio.Future[Slot]
    timer: asyncio.TimerHandle | None = None
    stop: Callable[[], None] = field(default=lambda: None)  # its generation, for somebody who has used less


class Dispatcher:
    """Gives a request an idle replica at once, one when its turn comes, or the reason why none is free in time."""

    def __init__(self, slots: Sequence[Slot], admission: Admission) -> None:
        self._slots = slots
        self._admission = admission
        self._idle: list[Slot] = []  # longest idle first
        self._lent: dict[Slot, asyncio.Task[Any]] = {}  # replicas lent to work that can wait
        self._closing = False
        self._again: asyncio.TimerHandle | None = None  # when a generation has to give way, as far as is known
        self.on_idle: Callable[[], None] = lambda: None  # called when a replica is free and the queue does not take it

    @property
    def closing(self) -> bool:
        """Whether nothing more is assigned."""
        return self._closing

    @property
    def can_lend(self) -> bool:
        """Whether a replica is idle that no request waits for."""
        return not self._closing and not self._admission.waiting and self._find_idle(None) is not None

    @property
    def usable_count(self) -> int:
        """Number of replicas that are up and trusted."""
        return 0 if self._closing else sum(slot.usable for slot in self._slots)

    async def acquire(
        self,
        deadline: float | None,
        length: int = 0,
        avoid: Slot | None = None,
        worth: float = 0.0,
        client: str = "",
        prefers: Callable[[Slot], bool] = lambda _: False,
    ) -> Slot:
        """Wait for a free replica for a prompt of `length` characters, preferably not `avoid`.

        Of several idle ones it takes one that `prefers` accepts, without waiting for one. The caller must `release` it.
        Raises CapacityError as soon as the deadline is known to be missed.
        """
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(_endless(deadline), length, worth, client=client, turn=turn)
        idle = self._find_idle(avoid, prefers) or self._find_lent()
        self._refuse(self._admission.ask(waiter, idle=idle is not None, replicas=self.usable_count))
        if waiter.refusal is not None:
            raise waiter.refusal
        if idle is None:
            self._make_way()
            return await self._turn(waiter)
        idle.take(waiter)
        if idle in self._idle:
            self._idle.remove(idle)
        else:
            await self._take_back(idle, waiter.deadline)
        return idle

    def lend(self, start: Callable[[Slot], asyncio.Task[T]]) -> asyncio.Task[T] | None:
        """Start work that can wait on an idle replica, until a request needs the replica; None if none is idle."""
        slot = self._find_idle(None) if self.can_lend else None
        if slot is None:
            return None
        self._idle.remove(slot)
        task = self._lent[slot] = start(slot)
        task.add_done_callback(lambda _: self._returned(slot))
        return task

    def refusal(self, deadline: float | None, length: int, worth: float, client: str) -> CapacityError | None:
        """Return why a request would certainly get no replica now, else None; counted as its refusal."""
        return self._admission.certain_refusal(_endless(deadline), length, self.usable_count, worth, client)

    def began(self, slot: Slot, stop: Callable[[], None]) -> None:
        """Note that the request which holds a replica generates on it; `stop` ends that, so that it gives way."""
        if isinstance(slot.request, _Waiter):
            slot.request.stop = stop
            self._admission.began(slot.request)
            self._make_way()

    def release(self, slot: Slot, seconds: float | None = None, *, whole: bool = False) -> None:
        """Give a replica back after `seconds` of a generation, `whole` or not; None records nothing."""
        if (request := slot.free()) is not None:
            self._admission.ended(request, seconds, whole=whole, replicas=self.usable_count)
        self.offer(slot)

    def offer(self, slot: Slot) -> None:
        """Give a free replica to the next waiter."""
        if self._closing or not slot.usable or slot.busy or slot in self._lent:
            return
        if slot in self._idle:  # it was restarted meanwhile
            self.on_idle()
            return
        while (request := self._admission.next()) is not None:
            assert isinstance(request, _Waiter)
            if not request.turn.done():
                slot.take(request)
                request.turn.set_result(slot)
                return
        self._idle.append(slot)
        self.on_idle()

    def lost_one(self) -> None:
        """Refuse all waiters at once when no replica is left."""
        if not self.usable_count:
            self._refuse(self._admission.drop_all("no replica is up"))

    def close(self) -> None:
        """Assign nothing more, and refuse every waiter."""
        self._closing = True
        if self._again is not None:
            self._again.cancel()
        self._refuse(self._admission.drop_all("the service is shutting down"))
        self.on_idle()  # who waits for an idle one learns that there is none to come

    def _make_way(self) -> None:
        """Stop the generations that have to give way now, and look again when the next one may."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        stopped, again = self._admission.give_way()
        for request in stopped:
            assert isinstance(request, _Waiter)
            request.stop()
        if again < math.inf:
            self._again = asyncio.get_running_loop().call_later(max(again - time.monotonic(), 0.0), self._make_way)

    async def _take_back(self, slot: Slot, deadline: float) -> None:
        """Return once the work on a lent replica has ended. Raises CapacityError where it does not by the deadline."""
        task = self._lent[slot]
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=None if deadline == math.inf else max(deadline - time.monotonic(), 0.0))
            if not task.done():
                raise CapacityError("the replica did not come free in time", "engine")
        except BaseException:  # this request leaves, and the replica stays lent until it is free
            self.release(slot)
            raise

    def _returned(self, slot: Slot) -> None:
        task = self._lent.pop(slot)
        if not task.cancelled():
            task.exception()  # who started the work may have left
        self.offer(slot)

    async def _turn(self, waiter: _Waiter) -> Slot:
        self._watch(waiter)
        try:
            return await waiter.turn
        except BaseException:
            self._admission.leave(waiter)
            if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self.release(waiter.turn.result())  # a replica was assigned just as the waiter gave up
            raise
        finally:
            if waiter.timer is not None:
                waiter.timer.cancel()

    def _watch(self, waiter: _Waiter) -> None:
        """Refuse the waiter as soon as it can no longer finish in time."""
        if waiter.latest_start < math.inf and not waiter.turn.done():
            seconds = max(waiter.latest_start - time.monotonic(), 0.0)
            waiter.timer = asyncio.get_running_loop().call_later(seconds, self._on_late, waiter)

    def _on_late(self, waiter: _Waiter) -> None:
        self._refuse(self._admission.drop_late())
        self._watch(waiter)  # the event loop's clock is slightly coarser than ours

    def _refuse(self, refused: Sequence[QueuedRequest]) -> None:
        for waiter in refused:
            assert isinstance(waiter, _Waiter)
            if not waiter.turn.done() and waiter.refusal is not None:
                waiter.turn.set_exception(waiter.refusal)
                waiter.turn.exception()  # the waiter may have raised it already, or have left

    def _find_idle(self, avoid: Slot | None, prefers: Callable[[Slot], bool] = lambda _: False) -> Slot | None:
        """Return an idle replica that is not markedly slow, else any: one that is preferred, or the longest idle."""
        self._idle = [slot for slot in self._idle if slot.usable]

        def rank(slot: Slot) -> tuple[bool, bool, bool]:
            return slot is avoid, slot.slowness.mean > _SLOW, not prefers(slot)

        return min(self._idle, key=rank, default=None)

    def _find_lent(self) -> Slot | None:
        """Return a replica lent to work that can wait."""
        return next((slot for slot in self._lent if slot.usable and not slot.busy), None)


def _endless(deadline: float | None) -> float:
    return math.inf if deadline is None else deadline
