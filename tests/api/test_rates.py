from service.api.rates import RateLimiter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_second_and_fills_at_its_rate() -> None:
    clock = Clock()
    limiter = RateLimiter(clock)
    assert [limiter.wait_seconds("a", 2.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    clock.now = 0.5
    assert limiter.wait_seconds("a", 2.0) == 0.0
    assert limiter.wait_seconds("a", 2.0) == 0.5
    clock.now = 100.0
    assert [limiter.wait_seconds("a", 2.0) for _ in range(3)] == [0.0, 0.0, 0.5]


def test_callers_do_not_share() -> None:
    limiter = RateLimiter(Clock())
    assert limiter.wait_seconds("a", 1.0) == 0.0
    assert limiter.wait_seconds("a", 1.0) > 0.0
    assert limiter.wait_seconds("b", 1.0) == 0.0


def test_a_slow_rate_lets_one_through_and_none_means_any_number() -> None:
    limiter = RateLimiter(Clock())
    assert limiter.wait_seconds("a", 0.1) == 0.0
    assert limiter.wait_seconds("a", 0.1) == 10.0
    assert {limiter.wait_seconds("b", 0.0) for _ in range(100)} == {0.0}


def test_the_table_of_callers_is_bounded() -> None:
    limiter = RateLimiter(Clock())
    for number in range(10_050):
        limiter.wait_seconds(str(number), 1.0)
    assert limiter.wait_seconds("0", 1.0) == 0.0
