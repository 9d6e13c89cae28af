import subprocess
import sys
from collections.abc import Iterator

import pytest

from service.engines.triton.stub import StubWatch
from service.engines.triton.wire import ProcessName

pytestmark = pytest.mark.anyio


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


async def test_the_end_of_a_process_is_noticed(process: subprocess.Popen[bytes]) -> None:
    ends: list[str] = []
    watch = StubWatch(ProcessName.of(process.pid), lambda: ends.append("ended"))
    assert watch.sees
    assert not await watch.wait(0.01)
    process.kill()  # and nobody collects it, as Triton does not
    assert await watch.wait(20)
    assert (ends, watch.sees) == (["ended"], False)


async def test_a_watched_process_can_be_killed(process: subprocess.Popen[bytes]) -> None:
    watch = StubWatch(ProcessName.of(process.pid), lambda: None)
    watch.kill()
    assert await watch.wait(20)
    watch.kill()  # once more does no harm
    watch.close()


async def test_another_process_with_the_same_number_is_not_watched(process: subprocess.Popen[bytes]) -> None:
    name = ProcessName.of(process.pid)
    assert name is not None
    for unknown in (ProcessName(name.pid, name.started - 1), ProcessName(2**22 + 1, 0), None):
        watch = StubWatch(unknown, lambda: None)
        assert not watch.sees
        watch.kill()
    assert process.poll() is None


async def test_a_closed_watch_says_nothing(process: subprocess.Popen[bytes]) -> None:
    ends: list[str] = []
    watch = StubWatch(ProcessName.of(process.pid), lambda: ends.append("ended"))
    watch.close()
    process.kill()
    assert not await watch.wait(0.05)
    assert not ends
