import asyncio
import errno
import json
import logging
import threading

import pytest

from service.telemetry.emf import EmfCollector
from service.telemetry.metrics import Metrics, Reading

pytestmark = pytest.mark.anyio


def counting_metrics() -> Metrics:
    return Metrics(Reading, 300.0, EmfCollector({"Fleet": "dev", "Cell": "cell-1"}))


async def test_lines_are_published_while_it_runs_and_once_more_at_the_end() -> None:
    metrics, written = counting_metrics(), []
    publishing = asyncio.create_task(metrics.publish_for_ever(written.append, seconds=0.01))
    async with asyncio.timeout(20):
        while len(written) < 2:
            await asyncio.sleep(0.005)
    metrics.arrived()
    publishing.cancel()
    await asyncio.wait({publishing})
    lines = b"".join(written).decode().splitlines()
    assert sum(json.loads(line).get("Requests", 0) for line in lines) == 1


async def test_a_full_disk_costs_metrics_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def full(_: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    publishing = asyncio.create_task(counting_metrics().publish_for_ever(full, seconds=0.005))
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(0.1)
    assert not publishing.done()
    assert "metrics not written" in caplog.text
    publishing.cancel()
    await asyncio.wait({publishing})


async def test_metrics_that_nobody_reads_neither_hold_up_the_service_nor_pile_up() -> None:
    stalled, written = threading.Event(), []

    def write(data: bytes) -> None:
        written.append(data)
        stalled.wait(60)

    metrics = counting_metrics()
    publishing = asyncio.create_task(metrics.publish_for_ever(write, seconds=0.01))
    async with asyncio.timeout(20):
        while not written:
            await asyncio.sleep(0.005)
        metrics.arrived()
        while '"Requests":1' in "".join(metrics.lines()):
            await asyncio.sleep(0.005)
    assert len(written) == 1
    threads = threading.active_count()
    await asyncio.sleep(0.1)
    assert threading.active_count() == threads
    publishing.cancel()
    await asyncio.wait({publishing}, timeout=20)
    assert publishing.done()
    stalled.set()
