import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal.simulated_gateway import Clock
from service.gateway.service_times import KEPT, MAX_AGE_SECONDS, WINDOW, ServiceTimes


def test_quantiles_and_mean_of_what_was_seen() -> None:
    times = ServiceTimes()
    for milliseconds in range(1, 102):
        times.add(milliseconds / 1000)
    assert times.quantile(0.5) == pytest.approx(0.051)
    assert times.quantile(0.9) == pytest.approx(0.091)
    assert times.quantile(1.0) == pytest.approx(0.101)
    assert times.mean == pytest.approx(0.051)


def test_nothing_is_known_at_first_and_after_clearing() -> None:
    times = ServiceTimes()
    assert (times.quantile(0.9), times.quantile(0.9, 40), times.mean, times.fastest_of_last(1)) == (0, 0, 0, 0)
    assert (times.expected(40), times.chance(0.001, 40)) == (0, 1)
    times.add(1.0)
    times.clear()
    assert (len(times), times.quantile(0.9), times.mean, times.expected(40)) == (0, 0, 0, 0)


def test_the_window_is_bounded_in_number_and_age() -> None:
    clock = Clock()
    times = ServiceTimes(clock)
    for _ in range(WINDOW + 10):
        times.add(9.0)
    assert len(times) == WINDOW
    clock.now = MAX_AGE_SECONDS / 2
    for _ in range(KEPT):
        times.add(1.0)
    clock.now = MAX_AGE_SECONDS + 0.1
    assert len(times) == KEPT
    assert times.quantile(0.5) == times.mean == pytest.approx(1.0)


def test_a_quiet_hour_leaves_the_last_ones() -> None:
    clock = Clock()
    times = ServiceTimes(clock)
    for _ in range(100):
        times.add(0.2, 30)
    clock.now = 3600.0
    assert times.expected(30) == pytest.approx(0.2)
    assert len(times) == KEPT


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
    times.add(0.1)
    assert [times.fastest_of_last(count) for count in (1, 2, 4, 5)] == [0.1, 0.1, 0.1, 0.01]


def test_what_nobody_asks_for_is_forgotten_as_well() -> None:
    times = ServiceTimes()
    for _ in range(WINDOW + 10):
        times.add(1.0)
    assert len(times._window) == len(times._sorted) == WINDOW


def test_long_prompts_say_little_of_short_ones() -> None:
    times = ServiceTimes()
    for length in (10, 20, 40, 80, 160, 320):
        times.add(0.05 + length * 0.001, length)
    assert times.expected(20) == pytest.approx(0.07, rel=0.15)
    assert times.expected(300) == pytest.approx(0.35, rel=0.15)
    assert times.chance(0.1, 20) > 0.9
    assert times.chance(0.1, 300) == 0


def test_one_slow_outlier_moves_the_expectation_little() -> None:
    times = ServiceTimes()
    for length in (10, 20, 30, 40, 50, 60, 70, 80):
        times.add(0.1, length)
    times.add(30.0, 500)
    assert times.expected(30) < 0.2
    assert times.quantile(0.7, 30) < 0.2
    assert times.chance(0.25, 30) > 0.8


@given(st.lists(st.tuples(st.floats(1e-4, 60.0), st.integers(0, 4000)), min_size=1, max_size=200), st.integers(0, 4000))
def test_whatever_was_seen_longer_prompts_take_no_less(seen: list[tuple[float, int]], length: int) -> None:
    times = ServiceTimes()
    for seconds, of in seen:
        times.add(seconds, of)
    assert 0 < times.expected(length) <= times.expected(length + 100)
    assert 0 < times.quantile(0.05, length) <= times.quantile(0.7, length) <= times.quantile(1.0, length)
    assert times.chance(times.quantile(0.5, length) * 1.001, length) >= 0.4
    assert times.chance(times.quantile(1.0, length) * 1.001, length) == 1


def test_what_is_always_late_has_no_chance_and_says_nothing_of_less() -> None:
    """Remembered as lasting until its deadline alone, it seemed to end just in time."""
    times = ServiceTimes()
    for _ in range(20):
        times.add(0.1, 40)
    for _ in range(4):
        times.add(0.3, 600, whole=False, late=True)
    assert times.chance(0.3, 600) == 0.0
    assert times.chance(0.3, 480) == 0.0, "about as long"
    assert times.chance(0.3, 479) > 0.0, "shorter"
    assert times.chance(0.376, 600) > 0.0, "with far more time"
    assert times.chance(0.3, 40) == 1.0
    times.add(0.25, 700)
    assert times.chance(0.3, 600) == pytest.approx(1 / 5), "one that ended tells as well"
    times.add(0.25, 479)
    assert times.chance(0.3, 600) == pytest.approx(1 / 5), "not a shorter one"


def test_what_was_late_is_forgotten_in_time_and_when_everything_is() -> None:
    clock = Clock()
    times = ServiceTimes(clock)
    for forget in (times.clear, lambda: setattr(clock, "now", MAX_AGE_SECONDS + 0.1)):
        times.add(0.1, 600)
        times.add(0.1, 600, whole=False, late=True)
        assert times.chance(0.1, 600) == pytest.approx(0.5)
        forget()
        assert times.chance(0.1, 600) == 1.0


def test_where_only_longer_ones_were_cut_short_nothing_is_known() -> None:
    times = ServiceTimes()
    times.add(0.3, 600, whole=False)
    assert (times.chance(0.2, 600), times.chance(0.2, 40)) == (0.0, 1.0)
