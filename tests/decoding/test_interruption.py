import time

import pytest

from service.decoding.interruption import NEVER, Interruption


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize(("deadline", "late"), [(None, False), (100.5, False), (100.0, True), (99.0, True)])
def test_who_asked_or_the_deadline_ends_a_generation(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool, deadline: float | None, late: bool
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    assert Interruption(lambda: cancelled, deadline)() is (cancelled or late)
    assert not NEVER()
