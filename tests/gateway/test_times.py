import pytest

from service.gateway.times import MAX_AGE_SECONDS, WINDOW, ServiceTimes


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_quantiles_and_mean_of_what_was_seen() -> None:
    times = ServiceTimes()
    for milliseconds in range(1, 101):
        times.add(milliseconds / 1000)
    assert times.quantile(0.5) == pytest.approx(0.051)
    assert times.quantile(0.9) == pytest.approx(0.091)
    assert times.quantile(1.0) == pytest.approx(0.1)
    assert times.mean == pytest.approx(0.0505)


def test_nothing_is_known_at_first_and_after_clearing() -> None:
    times = ServiceTimes()
    assert (times.quantile(0.9), times.mean, times.fastest_of_last(1)) == (0.0, 0.0, 0.0)
    times.add(1.0)
    times.clear()
    assert (len(times), times.quantile(0.9), times.mean) == (0, 0.0, 0.0)


def test_the_window_is_bounded_in_number_and_age() -> None:
    clock = Clock()
    times = ServiceTimes(clock)
    for _ in range(WINDOW + 10):
        times.add(9.0)
    assert len(times) == WINDOW
    clock.now = MAX_AGE_SECONDS / 2
    times.add(1.0)
    clock.now = MAX_AGE_SECONDS + 0.1
    assert (len(times), times.quantile(0.5), times.mean) == (1, 1.0, pytest.approx(1.0))


def test_work_that_was_cut_short_counts_only_when_it_was_long() -> None:
    times = ServiceTimes()
    for _ in range(10):
        times.add(0.1)
    times.add(0.05, whole=False)
    assert len(times) == 10
    times.add(0.3, whole=False)
    assert times.quantile(1.0) == 0.3


def test_the_fastest_of_the_last_says_whether_all_were_slow() -> None:
    times = ServiceTimes()
    for seconds in (0.01, 0.3, 0.2, 0.4):
        times.add(seconds)
    assert times.fastest_of_last(3) == 0.2
    assert times.fastest_of_last(4) == 0.01
    assert times.fastest_of_last(5) == 0.0
