"""Tests of background work in a process that may be forked."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from service.engines.side_thread import SideThread

# A fork in a process of its own: pytest's has threads that are not ours.
FORK = """
import os, sys, threading
from service.engines.side_thread import SideThread

side = SideThread()
assert side.submit(lambda: 1).result(10) == 1
if sys.argv[1] == "rested":
    side.rest()
    assert threading.active_count() == 1
child = os.fork()
if child == 0:
    os._exit(0 if side.submit(os.getpid).result(10) == os.getpid() else 1)
assert side.submit(lambda: 2).result(10) == 2
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def side() -> Iterator[SideThread]:
    made = SideThread()
    yield made
    made.rest()


def test_it_works_on_another_thread_and_hands_over_what_comes_of_it(side: SideThread) -> None:
    assert side.submit(threading.get_ident).result(10) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        side.submit(lambda: 1 // 0).result(10)
    assert side.submit(os.getpid).result(10) == os.getpid()


def test_it_rests_and_goes_on(side: SideThread) -> None:
    first = side.submit(threading.current_thread).result(10)
    side.rest()

    assert not first.is_alive()
    assert side.submit(lambda: "awake").result(10) == "awake"


@pytest.mark.parametrize("before", ["rested", "working"])
def test_a_forked_process_has_its_own(before: str) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, before], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
