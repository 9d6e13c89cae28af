from contextlib import ExitStack

from service.gateway.door import Door


def test_the_door_closes_when_the_work_inside_takes_too_long() -> None:
    door = Door(seconds=0.1)
    with ExitStack() as inside:
        entered = 0
        while door.is_open:
            inside.enter_context(door.inside())
            entered += 1
        assert entered == 200  # of half a millisecond each
    assert door.is_open


def test_what_a_request_costs_is_measured() -> None:
    now = 0.0
    door = Door(seconds=0.1, clock=lambda: now)
    for _ in range(64):
        with door.inside():
            now += 0.01
    with ExitStack() as inside:
        for _ in range(32):
            assert door.is_open
            inside.enter_context(door.inside())
        assert not door.is_open
