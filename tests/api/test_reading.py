"""Tests of the load that the service reports: all requests for the model count, not only admitted ones."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from service.api.app import _reading
from service.planner.spot_checks import SpotCheckCounts


def reading(**counts: int) -> Any:
    pool: Any = SimpleNamespace(
        counts=Counter(counts), expected_seconds=0.05, outstanding=3, usable_count=2, version="v1"
    )
    planner: Any = SimpleNamespace(counts=Counter(hits=4, misses=9))
    return _reading(pool, planner, SpotCheckCounts(), None)


def test_refused_requests_were_asked_for_too() -> None:
    found = reading(admitted=5, refused_capacity=7, refused_deadline=2, refused_engine=2)
    assert found.asked == 16
    assert found.service_seconds == 0.05


def test_a_second_try_is_not_a_second_request() -> None:
    assert reading(admitted=5, retried=2).asked == 3
