"""A stack of real parts answers through Envoy and leaves no process."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import uvloop

from rehearsal.client import LoadGenerator, Shot
from rehearsal.stack.__main__ import host_variables, make_folder
from rehearsal.stack.folder import CELLS, FLOODER, HOST_PORT, ROOT, Shape, limit_callers
from rehearsal.stack.monitor import Monitor
from rehearsal.stack.processes import running, trusting
from rehearsal.stack.shop_database import ShopDatabase, why_none
from tests.processes import PATIENCE, eventually
from tests.rehearsal.stack.parts import needs_parts

pytestmark = pytest.mark.slow


def _running_in(folder: Path) -> list[str]:
    """Return the command lines of processes that were started for this stack's folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words and b"pytest" not in words.partition(b"\0\0")[0]:
            found.append(words[:200].replace(b"\0", b" ").decode(errors="replace"))
    return found


def command(folder: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "rehearsal.stack", "--recorded", "--hosts", "1", "--folder", str(folder), *more]


@needs_parts
def test_the_command_answers_a_plan_through_envoy_and_leaves_nothing_running(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    done = subprocess.run(
        command(folder, "--once"), cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE
    )

    assert done.returncode == 0, done.stderr
    assert "by model:" in done.stdout
    assert '"intent": "find_product"' in done.stdout
    assert "nothing of it is left running" in done.stderr
    assert _running_in(folder) == []


@needs_parts
@pytest.mark.skipif(bool(why_none()), reason=why_none())
def test_every_host_searches_the_one_shop_in_postgresql(tmp_path: Path) -> None:
    import psycopg

    folder = make_folder(tmp_path / "stack", Shape(1))
    shop = ShopDatabase(folder)
    with running(folder, host_variables(recorded=True), light=True, shop=shop):
        with psycopg.connect(shop.url, autocommit=True) as database:
            database.execute("UPDATE products SET price = 12345 WHERE style = 'sneaker'")
        plan = {"mode": "keyword", "intent": "find_product", "queries": ["sneakers"], "price": {"min": 12000}}
        asked = json.dumps({"query": "sneakers", "plan": plan}).encode()
        for url in (folder.url, *(f"http://{folder.hosts(cell)[0]}:{HOST_PORT}" for cell in CELLS)):
            request = urllib.request.Request(f"{url}/shop/search", asked, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=PATIENCE, context=trusting(folder)) as response:
                found = json.loads(response.read())
            assert found["reason"] is None
            assert {hit["price"] for hit in found["by_plan"]} == {12345.0}, url

    assert _running_in(folder.path) == []


@needs_parts
def test_a_caller_that_floods_is_limited_and_prometheus_has_counted_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "stack", Shape(1, hurry=15))
    limit_callers(folder, 20)
    with running(folder, host_variables(recorded=True), light=True):
        flooder = LoadGenerator(folder.url, trust=trusting(folder), source=folder.address(FLOODER))
        asked = [Shot(number / 100, json.dumps({"query": "red shoes"}).encode()) for number in range(200)]
        monitor, began = Monitor(folder), time.time()
        # What a counter has at its first scrape is no growth: every part is scraped before the flood, too.
        eventually(lambda: monitor.has_seen(began), "Prometheus has not scraped every part")
        refused = sum(sample.status == 429 for sample in uvloop.run(flooder.fire(asked)))
        ended = time.time()
        eventually(lambda: monitor.has_seen(ended), "Prometheus has not scraped every part after the flood")
        told = monitor.readings(began, time.time(), 2.0).limited

    assert refused > 100
    assert refused / 2 < told < 2 * refused  # Prometheus reads on beyond its last scrape


@needs_parts
def test_a_stack_whose_host_does_not_start_says_which_and_why(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    variables = {"PATH": "/usr/bin:/bin", "PEAKPLAN_BACKLOG_MS": "none"}

    done = subprocess.run(
        command(folder, "--once"),
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )

    assert done.returncode == 1
    assert "no stack: cell-" in done.stderr
    assert "PEAKPLAN_BACKLOG_MS" in done.stderr
    assert "Traceback" not in done.stderr
    assert _running_in(folder) == []


@needs_parts
def test_a_stack_that_is_told_to_stop_while_it_starts_leaves_nothing_running(tmp_path: Path) -> None:
    folder = tmp_path / "stack"

    with subprocess.Popen(command(folder), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        eventually((folder / "logs" / "prometheus.log").exists, "it started nothing")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0, said
    assert "nothing of it is left running" in said
    assert _running_in(folder) == []
