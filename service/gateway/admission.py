"""Who gets which replica when: an idle one at once, a place in line, or a refusal before anything is wasted."""

import math
import time
from collections import Counter
from collections.abc import Sequence

from service.gateway.pressure import Pressure
from service.gateway.request_queue import CapacityError, Order, RequestQueue
from service.gateway.slot import Slot
from service.gateway.times import ServiceTimes

_FIRST_EXPECTATION = 0.15  # seconds; replaced by the first generation
_HOPELESS_QUANTILE = 0.05  # an idle replica is not even tried when so few generations are that fast


class Admission:
    """Gives out slots. It knows what generations take and what deadlines leave, not what is done in between."""

    def __init__(self, slots: Sequence[Slot], order: Order, quantile: float) -> None:
        self._slots = slots
        self._idle: list[Slot] = []  # longest idle first
        self._line: RequestQueue[Slot] = RequestQueue(order)
        self._order = order
        self._pressure = Pressure()
        self._quantile = quantile
        self.times = ServiceTimes()  # of all replicas
        self.closing = False
        self.counts: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    @property
    def usable_count(self) -> int:
        """Replicas that are up and trusted."""
        return sum(slot.usable for slot in self._slots)

    @property
    def expected_seconds(self) -> float:
        """How long a generation takes on average, from those before it."""
        return self.times.mean or _FIRST_EXPECTATION

    async def acquire(self, deadline: float | None, length: int = 0, avoid: Slot | None = None) -> Slot:
        """The next free replica for a prompt of `length` characters, another than `avoid` if there is one.

        The caller must `release` it. Raises CapacityError as soon as it is known that the deadline would pass.
        """
        self._pressure.asked()
        try:
            return await self._admit(math.inf if deadline is None else deadline, length, avoid)
        except CapacityError as error:
            self._count(error)
            raise

    def refusal(self, length: int = 0) -> CapacityError | None:
        """Why a request that came now would get no replica, where that is certain at once; counted as its refusal."""
        error = self._down() or self._crowded(length)
        if error is not None:
            self._pressure.asked()
            self._count(error)
        return error

    def release(self, slot: Slot) -> None:
        """Give a replica back."""
        slot.free()
        self.offer(slot)

    def offer(self, slot: Slot) -> None:
        """Hand a free replica to whose turn it is."""
        if self.closing or not slot.usable or slot.busy or slot in self._idle:
            return
        if (turn := self._line.next()) is None:
            self._idle.append(slot)
        else:
            slot.take()
            turn.set_result(slot)

    def lost_one(self) -> None:
        """With no replica left, who waits had better know now."""
        if not self.usable_count:
            self._line.refuse_all(CapacityError("no replica is up", "down"))

    def close(self) -> None:
        """Give out nothing more; send everybody in line away."""
        self.closing = True
        self._line.refuse_all(CapacityError("the service is shutting down", "closing"))

    async def _admit(self, deadline: float, length: int, avoid: Slot | None) -> Slot:
        if (error := self._down()) is not None:
            raise error
        if (slot := self._take_idle(avoid)) is not None:
            if deadline - time.monotonic() >= slot.times.quantile(_HOPELESS_QUANTILE):
                return slot
            self.release(slot)
            raise CapacityError("there is too little time left for any generation", "late")
        if (error := self._crowded(length)) is not None:
            raise error
        if self._is_full():
            self._line.give_up_longest()
        needed = self.times.quantile(self._quantile) or _FIRST_EXPECTATION
        waiter = self._line.join(deadline - needed, self.expected_seconds / self.usable_count, length)
        try:
            return await waiter.turn
        except BaseException:
            self._line.leave(waiter)
            if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self.release(waiter.turn.result())  # handed over in the very moment of giving up
            raise

    def _down(self) -> CapacityError | None:
        if self.closing or not self.usable_count:
            return CapacityError("no replica is up", "closing" if self.closing else "down")
        return None

    def _is_full(self) -> bool:
        """Under high pressure one waits for each replica: the next comes long before it is free, so more only age."""
        return self._order == "adaptive" and self._pressure.high and len(self._line) >= self.usable_count

    def _crowded(self, length: int) -> CapacityError | None:
        """A full line takes only a request that is much shorter than one that waits: it takes that one's place."""
        if self._is_full() and not self._line.would_yield_to(length):
            return CapacityError("far more is asked than all replicas can do", "busy")
        return None

    def _count(self, error: CapacityError) -> None:
        self.counts[error.refusal] += 1
        self._pressure.refused()

    def _take_idle(self, avoid: Slot | None) -> Slot | None:
        """The longest idle replica that is not markedly slow, else any."""
        self._idle = [slot for slot in self._idle if slot.usable]
        usual = self.times.mean
        chosen = min(self._idle, key=lambda slot: (slot is avoid, slot.times.mean > 2 * usual), default=None)
        if chosen is not None:
            self._idle.remove(chosen)
            chosen.take()
        return chosen
