"""Where admission, its queue, its estimates and a slot's health change their mind, worked by hand on our own clock."""

import types
from unittest.mock import ANY

import pytest

from rehearsal.simulated_gateway import Clock
from service.gateway import slot as slot_module
from service.gateway.admission import Admission, Pressure
from service.gateway.request_queue import QueuedRequest, RequestQueue
from service.gateway.service_times import ServiceTimes
from service.gateway.slot import Slot
from tests.fake_engines import FakeEngine


def admission(clock: Clock, *seconds: float, quantile: float = 0.5) -> Admission:
    """Return an admission that has seen generations take so long."""
    made = Admission(quantile=quantile, clock=clock)
    for each in seconds:
        made.times.add(each)
    return made


def crowd(made: Admission) -> None:
    """Put it under high pressure."""
    for _ in range(20):
        made.ask(QueuedRequest(1000.0), idle=False, replicas=0)


@pytest.mark.parametrize(
    ("asked", "refused", "high"), [(8, 8, True), (7, 7, False), (20, 6, False), (20, 7, True), (10, 3, False)]
)
def test_pressure_needs_eight_requests_and_more_than_three_tenths_refused(asked: int, refused: int, high: bool) -> None:
    pressure = Pressure(Clock())
    for number in range(asked):
        pressure.asked()
        if number < refused:
            pressure.refused()
    assert pressure.high is high


@pytest.mark.parametrize(("seconds", "high"), [(0.5, True), (0.6, False)])
def test_what_was_asked_counts_half_after_half_a_second(seconds: float, high: bool) -> None:
    """Of sixteen, half make nine with the next one; a tenth of a second later they are less than eight."""
    clock = Clock()
    pressure = Pressure(clock)
    for _ in range(16):
        pressure.asked()
        pressure.refused()
    clock.now = seconds
    pressure.asked()
    assert pressure.high is high


def test_a_certain_refusal_counts_as_one_and_a_question_that_may_be_asked_not_yet() -> None:
    made = admission(Clock())
    for _ in range(8):
        assert made.certain_refusal(1000.0, 0, replicas=0) is not None
    assert made._pressure.high
    for _ in range(100):
        assert made.certain_refusal(1000.0, 0, replicas=1) is None
    assert made._pressure.high, "whoever is asked about is counted when the question comes"


def test_until_something_is_known_a_generation_is_expected_to_take_150_ms() -> None:
    made = admission(Clock())
    assert made.expected_seconds == 0.15
    assert made.ask(request := QueuedRequest(1.0), idle=False, replicas=1) == []
    assert (request.seconds, request.latest_start, made.waiting) == (0.15, 0.85, 1)
    made.times.add(0.4)
    assert made.expected_seconds == pytest.approx(0.4)


@pytest.mark.parametrize(("deadline", "waits"), [(0.2, True), (0.199, False)])
def test_who_could_start_just_in_time_may_wait(deadline: float, waits: bool) -> None:
    made, request = admission(Clock(), *[0.2] * 20), QueuedRequest(deadline)
    assert made.ask(request, idle=False, replicas=1) == ([] if waits else [request])
    assert made.counts == ({} if waits else {"refused_deadline": 1})


@pytest.mark.parametrize(
    ("fast", "crowded", "is_trial"), [(5, False, False), (4, False, True), (20, True, False), (19, True, True)]
)
def test_an_idle_replica_runs_what_may_end_in_time_and_tries_the_rest(fast: int, crowded: bool, is_trial: bool) -> None:
    made, request = admission(Clock(), *[0.1] * fast, *[1.0] * (100 - fast)), QueuedRequest(0.5)
    if crowded:
        crowd(made)
    assert made.ask(request, idle=True, replicas=1) == []
    assert (request.is_trial, made.counts["trials"]) == (is_trial, int(is_trial))


@pytest.mark.parametrize(
    ("replicas", "whole", "pause"), [(1, False, 2.0), (2, False, 0.75), (1, True, 0), (5, False, 0)]
)
def test_trials_take_a_fifth_of_the_replicas_time(replicas: int, whole: bool, pause: float) -> None:
    """One that failed after half a second is followed by four times as long without; one that succeeded is a plan."""
    clock = Clock()
    made = admission(clock, *[1.0] * 100)
    first = QueuedRequest(0.5)

    def tried(at: float) -> bool:
        clock.now = at
        return not made.ask(QueuedRequest(at + 0.5), idle=True, replicas=replicas)

    assert made.ask(first, idle=True, replicas=replicas) == []
    assert not tried(0.4), "one runs at a time"
    clock.now = 0.5
    made.ended(first, 0.5, whole=whole, replicas=replicas)
    assert not pause or not tried(0.499 + pause)
    assert tried(0.5 + pause)


@pytest.mark.parametrize(("ago", "pause"), [(0.0, 24.5), (0.999, 24.5), (1.0, 2.0)])
def test_they_take_a_fiftieth_while_others_generations_end_whole(ago: float, pause: float) -> None:
    clock = Clock()
    made = admission(clock, *[1.0] * 100)
    other, tried = QueuedRequest(9.0), QueuedRequest(2.0)
    assert made.ask(other, idle=True, replicas=1) == []
    made.ended(other, 1.0, whole=True, replicas=1)
    clock.now = 1.5
    assert made.ask(tried, idle=True, replicas=1) == []
    assert tried.is_trial
    clock.now = ago
    made.ended(tried, 0.5, whole=False, replicas=1)
    for at, begins in ((ago + pause - 0.001, False), (ago + pause + 0.001, True)):
        clock.now = at
        assert made.ask(QueuedRequest(at + 0.5), idle=True, replicas=1) == ([] if begins else [ANY])


def test_nothing_is_tried_after_its_deadline() -> None:
    clock = Clock()
    clock.now = 1.0
    made, late = admission(clock, *[1.0] * 100), QueuedRequest(1.0)
    assert made.ask(late, idle=True, replicas=1) == [late]
    assert made.counts == {"refused_deadline": 1}


def test_a_generation_that_says_nothing_is_not_recorded() -> None:
    made = admission(Clock())
    made.ended(QueuedRequest(1.0), None, whole=True, replicas=1)
    assert len(made.times) == 0
    made.ended(QueuedRequest(1.0), 0.2, whole=True, replicas=1)
    assert made.times.mean == 0.2


def test_what_would_certainly_be_refused_is_known_before_it_waits() -> None:
    made = admission(Clock(), *[0.1] * 20)
    none = made.certain_refusal(1.0, 0, 0)
    assert none is not None
    assert (none.reason, made.counts["refused_engine"]) == ("engine", 1)
    crowd(made)
    assert made.certain_refusal(1.0, 0, 1) is None, "nobody waits"
    made.ask(QueuedRequest(1.0), idle=False, replicas=1)
    full = made.certain_refusal(1.0, 10, 1)
    assert full is not None
    assert (full.reason, made.counts["refused_capacity"]) == ("capacity", 1)
    assert made.certain_refusal(1.0, 10, 2) is None, "two replicas have room for two"


@pytest.mark.parametrize(("seconds", "newest"), [(0.999, True), (1.0, False)])
def test_a_refusal_is_overload_for_a_second(seconds: float, newest: bool) -> None:
    clock = Clock()
    queue = RequestQueue("adaptive", clock)
    queue.join(QueuedRequest(1.0, latest_start=0.5), 1)
    clock.now = 0.5
    assert len(queue.drop_late()) == 1
    clock.now += seconds
    assert queue.serves_newest is newest


@pytest.mark.parametrize(("latest_start", "waits"), [(5.0, True), (4.99, False)])
def test_who_comes_last_waits_where_the_others_are_done_just_in_time(latest_start: float, waits: bool) -> None:
    queue = RequestQueue("oldest", Clock())
    queue.join(QueuedRequest(99.0, seconds=5.0, latest_start=90.0), 1)
    last = QueuedRequest(99.0, seconds=7.0, latest_start=latest_start)
    assert queue.join(last, 1) == ([] if waits else [last])


def test_what_is_recent_are_128_generations_of_15_seconds_and_16_whenever_they_were() -> None:
    clock = Clock()
    times = ServiceTimes(clock)
    for _ in range(200):
        times.add(0.1)
    assert len(times) == 128
    clock.now = 15.0
    assert len(times) == 128
    clock.now = 15.001
    assert len(times) == 16


def test_a_slow_one_counts_as_four_times_the_median_in_the_fit() -> None:
    times = ServiceTimes()
    for seconds in [*[0.1] * 9, 30.0]:
        times.add(seconds, 10)
    assert times.expected(10) == pytest.approx((9 * 0.1 + 0.4) / 10)


def test_two_lengths_are_no_slope_yet_and_many_are() -> None:
    """Four imaginary ones, 40 characters from the mean and without a slope, beside two real ones at 40: a third."""
    times = ServiceTimes()
    times.add(0.1, 0)
    times.add(0.2, 80)
    assert [times.expected(length) for length in (0, 40, 80)] == pytest.approx([0.15 - 0.05 / 3, 0.15, 0.15 + 0.05 / 3])
    steep = ServiceTimes()
    for _ in range(60):
        steep.add(0.3, 100)
        steep.add(0.9, 200)
    assert [steep.expected(length) for length in (0, 150)] == pytest.approx([0, 0.6], abs=1e-5), "never below zero"


def test_what_was_cut_short_counts_past_the_median_and_just_in_time_is_in_time() -> None:
    times = ServiceTimes()
    for seconds in (0.1, 0.1, 0.1, 0.3):
        times.add(seconds)
    times.add(times.quantile(0.5, 0), whole=False)
    assert len(times) == 4
    times.add(times.quantile(0.5, 0) + 0.001, whole=False)
    assert len(times) == 5
    even = ServiceTimes()
    for _ in range(4):
        even.add(0.25)
    assert [even.chance(seconds, 0) for seconds in (0.2499, 0.25)] == [0, 1]


async def _slots(count: int) -> list[Slot]:
    slots = [Slot(FakeEngine()) for _ in range(count)]
    for slot in slots:
        await slot.engine.start()
    return slots


@pytest.mark.anyio
async def test_three_failures_in_a_row_take_a_replica_out() -> None:
    (slot,) = await _slots(1)
    for _ in range(2):
        slot.failed("lost")
    slot.succeeded()
    for _ in range(2):
        slot.failed("lost")
    assert slot.usable
    slot.failed("lost again")
    assert (slot.usable, slot.why_down) == (False, "lost again")
    slot.quarantine("another reason")
    assert slot.why_down == "lost again", "the first is why"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("factor", "count", "lags"), [(4.0, 8, False), (4.01, 8, True), (4.01, 7, False), (4.01, 9, True)]
)
async def test_a_replica_lags_where_its_last_eight_all_took_over_four_times_as_long(
    factor: float, count: int, lags: bool
) -> None:
    slow, usual, quick = slots = await _slots(3)
    for _ in range(count):
        slow.took(0.1 * factor, usual=0.1)
        usual.took(0.1, usual=0.1)
        quick.took(0.05, usual=0.1)
    assert slow.lags_behind(slots) is lags
    assert not usual.lags_behind(slots)
    assert not slow.lags_behind([slow]), "alone it is as fast as any"
    usual.quarantine("away")
    quick.quarantine("away")
    assert not slow.lags_behind(slots)


@pytest.mark.anyio
async def test_what_takes_less_than_ten_milliseconds_is_the_event_loop_s() -> None:
    (slot,) = await _slots(1)
    slot.took(0.009, usual=0.001)
    assert slot.slowness.mean == 1
    slot.took(0.03, usual=0.001)
    assert slot.slowness.quantile(1) == pytest.approx(3)


@pytest.mark.anyio
@pytest.mark.parametrize(("lived", "pause"), [(60.0, 0.1), (60.1, 0.05)])
async def test_a_replica_that_lived_for_a_minute_is_started_again_at_once(
    lived: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slot,) = await _slots(1)
    moments = iter([100.0, 100.0 + lived])
    monkeypatch.setattr(slot_module, "time", types.SimpleNamespace(monotonic=lambda: next(moments)))
    paused: list[float] = []

    class EnoughError(Exception): ...

    async def sleep(seconds: float) -> None:
        paused.append(seconds)
        raise EnoughError

    monkeypatch.setattr(slot_module.asyncio, "sleep", sleep)
    slot.quarantine("it hangs")
    with pytest.raises(EnoughError):
        await slot.keep_alive(lambda: None, lambda _: None)
    assert paused == [pause]
