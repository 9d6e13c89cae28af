import asyncio
import time

import pytest

from service.engines.protocol import EngineError
from service.planner.single_flight import FlightLateError, SingleFlight
from tests.fake_engines import settle

pytestmark = pytest.mark.anyio


class Work:
    """Work that ends when told to; counts its starts and cancellations."""

    def __init__(self) -> None:
        self.starts = 0
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.starts += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return f"outcome {self.starts}"


async def test_the_same_key_is_worked_on_once() -> None:
    flights, work = SingleFlight[str](), Work()
    asked = [asyncio.create_task(flights.share("key", None, work)) for _ in range(5)]
    other = asyncio.create_task(flights.share("other", None, work))
    await settle()
    assert work.starts == 2
    work.gate.set()
    outcomes = [await task for task in asked]
    assert [shared for _, shared in outcomes] == [False, True, True, True, True]
    assert (await other)[1] is False
    assert (await flights.share("key", None, work))[1] is False


async def test_the_first_is_wanted_while_anybody_else_waits() -> None:
    flights, work = SingleFlight[str](), Work()
    first, *rest = asked = [asyncio.create_task(flights.share("key", None, work)) for _ in range(3)]
    await settle()
    unwanted = asyncio.create_task(flights.unwanted(first))
    for task in rest:
        await flights.unwanted(task)  # who only waits may leave at once
        assert not unwanted.done()
        task.cancel()
        await settle()
    assert unwanted.done()
    work.gate.set()
    assert await asked[0] == ("outcome 1", False)


async def test_work_whose_worker_is_cancelled_is_taken_up_by_one_of_the_rest() -> None:
    flights, work = SingleFlight[str](), Work()
    first, second, third = (asyncio.create_task(flights.share("key", None, work)) for _ in range(3))
    await settle()
    first.cancel()
    await settle()
    assert (work.starts, work.cancelled) == (2, 1)
    work.gate.set()
    assert [await second, await third] == [("outcome 2", False), ("outcome 2", True)]


async def test_work_that_is_cancelled_is_joined_by_nobody() -> None:
    flights, work = SingleFlight[str](), Work()
    first = asyncio.create_task(flights.share("key", None, work))
    await settle()
    first.cancel()
    await asyncio.wait({first})
    late = asyncio.create_task(flights.share("key", None, work))
    await settle()
    assert (work.starts, work.cancelled) == (2, 1)
    work.gate.set()
    assert await late == ("outcome 2", False)


async def test_who_joins_keeps_their_own_deadline() -> None:
    flights, work = SingleFlight[str](), Work()
    first = asyncio.create_task(flights.share("key", None, work))
    await settle()
    with pytest.raises(FlightLateError):
        await flights.share("key", time.monotonic() + 0.01, work)
    work.gate.set()
    assert (await first)[0] == "outcome 1"


async def test_a_failure_is_everybodys_but_who_has_more_time_tries_again() -> None:
    flights, work = SingleFlight[str](), Work()
    work.error = EngineError("no")
    now = time.monotonic()
    first, hasty, patient = (asyncio.create_task(flights.share("key", now + seconds, work)) for seconds in (10, 9, 20))
    await settle()
    work.gate.set()
    for task in (first, hasty, patient):
        with pytest.raises(EngineError, match="no"):
            await task
    assert work.starts == 2


@pytest.mark.parametrize(
    ("of_work", "of_other", "starts"), [(None, None, 1), (None, 10, 1), (10, 10, 1), (10, None, 2), (10, 11, 2)]
)
async def test_only_who_has_more_time_than_the_work_had_tries_again(
    of_work: float | None, of_other: float | None, starts: int
) -> None:
    flights, work = SingleFlight[str](), Work()
    work.error = EngineError("no")
    now = time.monotonic() + 1000
    deadlines = [None if seconds is None else now + seconds for seconds in (of_work, of_other)]
    asked = [asyncio.create_task(flights.share("key", deadline, work)) for deadline in deadlines]
    await settle()
    work.gate.set()
    assert {str(error) for error in await asyncio.gather(*asked, return_exceptions=True)} == {"no"}
    assert work.starts == starts
