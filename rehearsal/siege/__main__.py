"""`make siege`: attack a service on loopback from all sides, seeded and bounded; write docs/figures/siege.json.

Its parts: schemathesis; 500 fresh connections a second; every attack at once, while replicas are killed and stopped,
and the model is reloaded; what others notice of callers whose questions cost most, and of the same callers at a server
that does nothing; what eight callers notice of eight hostile ones (`crossfire.py`); SIGTERM during the attacks. A
process of its own asks for the service's health, because this program's own loop would delay it. The attackers yield a
core to the service, as they would not be on its machine: at its own priority they would measure how the kernel shares
two cores among four.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import uvloop

from rehearsal.bench.machine import describe_machine, processor_time, write_figure
from rehearsal.bench.questions import own_questions
from rehearsal.server import Server, serving
from rehearsal.siege import bystanders, crossfire, probes
from rehearsal.siege.attacks import ATTACKS, Attack, Tally

FIGURE = Path("docs/figures/siege.json")
_STOLEN = 0.02  # of the machine's time: with more its hypervisor is what was measured
_HEALTH_MS = 1000 * probes.MOST_SECONDS
_GROWTH = 1.05  # of the gateway's memory, from a quarter of the storm on
_FAULT_PAUSE = 5.0
_EACH_SECONDS = 300.0  # a siege as long as this has stops and bystanders of each attack alone, too
_BACK_SECONDS = 30.0  # after the last attack, for everything to be as before
_NICENESS = 5  # of the attackers, as of the service's replicas
_EXAMPLES_A_MINUTE = 10  # of schemathesis, for each operation
_MOST_EXAMPLES = 100
_LONGEST_SCHEMATHESIS = 900.0  # seconds
_LONGEST_FRESH = 60.0  # seconds
_OUTCOME_MEGABYTES = 1  # a file
_OUTCOME_FILES = 2
_ENVIRONMENT = {
    "PEAKPLAN_HEADER_TIMEOUT_SECONDS": 5,
    "PEAKPLAN_BODY_TIMEOUT_SECONDS": 5,
    "PEAKPLAN_LOG_LEVEL": "error",
    "PEAKPLAN_CORS_ORIGINS": "https://shop.example",
    "PEAKPLAN_OUTCOMES_FILE_MEGABYTES": _OUTCOME_MEGABYTES,
    "PEAKPLAN_OUTCOMES_FILES": _OUTCOME_FILES,
}


class Siege:
    """One siege of one service."""

    def __init__(self, server: Server, seconds: float, seed: int, *, has_control: bool = True) -> None:
        """Take whether what the attackers cost without the service is measured, too."""
        self._server = server
        self._has_control = has_control
        self._port = int(server.url.rpartition(":")[2])
        self._seconds = seconds
        self._seed = seed
        self._replicas = len(server.replicas())
        self._memory: list[float] = []

    def run(self) -> dict[str, Any]:
        """Return the results of all parts."""
        end = time.monotonic() + self._seconds
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        watch = multiprocessing.get_context("spawn").Process(target=probes.watch_health, args=(self._port, theirs))
        watch.start()
        os.nice(_NICENESS)
        schema = self._schemathesis()
        fresh_seconds = min(self._seconds / 6, _LONGEST_FRESH)
        opened = uvloop.run(probes.fresh_connections(self._port, fresh_seconds, self._seed))
        if self._has_control:
            with bystanders.control_server() as port:
                opened["control"] = uvloop.run(probes.fresh_connections(port, fresh_seconds / 4, self._seed))
        tallies = uvloop.run(self._storm(max(self._seconds / 2, end - time.monotonic())))
        lost = self._lost_for_good()
        ours.send("end")
        seconds, failed = ours.recv()
        watch.join()
        settled = self._memory[len(self._memory) // 4 :]
        return {
            "schemathesis": schema,
            "fresh": opened,
            "attacks": {name: vars(tally) for name, tally in tallies.items()},
            "health": {
                path: {
                    "asked": len(taken),
                    "p99_ms": round(sorted(taken)[int(len(taken) * 0.99)] * 1000, 1),
                    "worst_ms": round(max(taken) * 1000, 1),
                }
                for path, taken in seconds.items()
            },
            "health_failed": failed,
            "memory_mib": {
                "settled": round(settled[0], 1),
                "end": round(settled[-1], 1),
                "most": round(max(settled), 1),
            },
            "lost_for_good": lost,
        }

    def _schemathesis(self) -> dict[str, Any]:
        examples = min(max(int(self._seconds / 60 * _EXAMPLES_A_MINUTE), 3), _MOST_EXAMPLES)
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", f"{self._server.url}/openapi.json",
            "--max-examples", str(examples), "--checks", "not_a_server_error", "--seed", str(self._seed),
            "--request-timeout", "60", "--generation-database", "none", "--no-color",
            "--suppress-health-check", "too_slow",  # a busy machine thinks of requests slowly; all are sent
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = subprocess.run(
                    command, cwd=folder, capture_output=True, text=True, timeout=_LONGEST_SCHEMATHESIS, check=False
                )
            except subprocess.TimeoutExpired:
                print(f"schemathesis did not end within {_LONGEST_SCHEMATHESIS:g} s", file=sys.stderr)
                return {"examples": examples, "passed": False}
        if done.returncode:
            print(done.stdout[-3000:], file=sys.stderr)
        return {"examples": examples, "passed": done.returncode == 0}

    async def _storm(self, seconds: float) -> dict[str, Tally]:
        """Run every attack at once, faults included."""
        tallies = {name: Tally() for name in ATTACKS}
        end = time.monotonic() + seconds

        async def repeat(attack: Attack, tally: Tally, seed: int) -> None:
            rng = random.Random(seed)
            while time.monotonic() < end:
                await attack(self._port, rng, tally)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._harm(end))
            for name, (attack, count) in ATTACKS.items():
                for number in range(count):
                    group.create_task(repeat(attack, tallies[name], hash((self._seed, number)) ^ len(name)))
        return tallies

    async def _harm(self, end: float) -> None:
        """Kill or stop a replica, or reload, every few seconds; note the memory."""
        rng = random.Random(self._seed)
        while time.monotonic() < end:
            await asyncio.sleep(min(_FAULT_PAUSE, max(end - time.monotonic(), 0)))
            self._memory.append(self._server.memory_mib())
            number = rng.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGHUP])
            if number == signal.SIGHUP:
                self._server.process.send_signal(number)
            elif replicas := self._server.replicas():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(replicas), number)

    def _lost_for_good(self) -> list[str]:
        """Return what has not come back half a minute after the last attack, when a reload may still be under way."""
        end = time.monotonic() + _BACK_SECONDS
        body = json.dumps({"query": "red shoes afterwards", "deadline_ms": 2000}).encode()
        while time.monotonic() < end and not (self._server.is_ready() and self._missing() <= 0):
            time.sleep(0.2)
        time.sleep(2)
        self._memory.append(self._server.memory_mib())
        lost = [] if self._server.is_ready() else ["readiness"]
        request = urllib.request.Request(f"{self._server.url}/plan", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as response:
            plan = json.loads(response.read())
        lost += [] if plan["source"] == "model" else [f"plans by the model: {plan['reason']}"]
        missing = self._missing()
        return lost + ([f"{missing} replicas"] if missing > 0 else [])

    def _missing(self) -> int:
        """Return how many replicas fewer than at the start are in service."""
        return self._replicas - int(self._server.metric("peakplan_replicas_in_service"))


def given_way(result: dict[str, Any], outcome_bytes: int, *, shared: bool) -> list[str]:
    """Return what gave way. On a `shared` machine times are its neighbours' too, and none is judged."""
    health, memory = result["health"], result["memory_mib"]
    bad = ("wrong", "hangs", "lost")
    found = [f"{name}: {tally}" for name, tally in result["attacks"].items() if any(tally[each] for each in bad)]
    found += [f"lost for good: {lost}" for lost in result["lost_for_good"]]
    found += [f"health: {failed}" for failed in [result["health_failed"]] if failed]
    found += [] if result["schemathesis"]["passed"] else ["schemathesis found something"]
    found += [] if result["exit_code"] == 0 else [f"it ended with {result['exit_code']}"]
    if outcome_bytes > 2 * (_OUTCOME_FILES + 1.5) * _OUTCOME_MEGABYTES * 1_000_000:
        found.append(f"plans and outcomes take {outcome_bytes} bytes")
    if not shared and result["stolen_share"] > _STOLEN:
        found.append(f"void: the hypervisor gave {result['stolen_share']:.0%} of this machine's time to others")
    found += bystanders.given_way(result["bystanders"], shared=shared) + bystanders.stops_given_way(result["stops"])
    found += crossfire.given_way(result["crossfire"], shared=shared)
    if not shared:
        found += [f"{path}: {asked['worst_ms']} ms" for path, asked in health.items() if asked["worst_ms"] > _HEALTH_MS]
        found += probes.fresh_given_way(result["fresh"])
    if not shared and memory["end"] > memory["settled"] * _GROWTH:
        found.append(f"memory went from {memory['settled']} to {memory['end']} MiB")
    return found


def main() -> int:
    """Run a siege and write its figure; return 1 where something gave way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", default="service", help="what is besieged: a module that serves")
    parser.add_argument("--output", type=Path, default=FIGURE)
    parser.add_argument("--shared", action="store_true", help="others use this machine: judge counts alone")
    arguments = parser.parse_args()
    stolen, ticks = processor_time()
    is_long = arguments.seconds >= _EACH_SECONDS
    with tempfile.TemporaryDirectory() as kept:
        environment = _ENVIRONMENT | {"PEAKPLAN_OUTCOMES_DIR": kept}
        with serving(environment, arguments.module) as server:
            result = Siege(server, arguments.seconds, arguments.seed, has_control=not arguments.shared).run()
            code = server.stop()
        outcome_bytes = sum(path.stat().st_size for path in Path(kept).iterdir())
        with serving(environment, arguments.module) as server:
            others = bystanders.Bystanders(server, own_questions(), arguments.seed, has_control=not arguments.shared)
            result["bystanders"] = others.beside_costly_callers(arguments.seconds / 6)
            if is_long and not arguments.shared:
                result["bystanders"]["each"] = others.beside_each(arguments.seconds)
        result["crossfire"] = crossfire.run(_ENVIRONMENT, arguments.module, arguments.seconds)
        result["stops"] = bystanders.stop_during_attacks(environment, arguments.module, each=is_long)
    stolen, ticks = (after - before for after, before in zip(processor_time(), (stolen, ticks), strict=True))
    result |= {
        "stolen_share": round(stolen / max(ticks, 1), 4),
        "command": "make siege",
        "seconds": arguments.seconds,
        "seed": arguments.seed,
        "exit_code": code,
        "machine": describe_machine(),
    }
    result["given_way"] = given_way(result, outcome_bytes, shared=arguments.shared)
    write_figure(arguments.output, result)
    print(json.dumps(result, indent=1))
    return 1 if result["given_way"] else 0


if __name__ == "__main__":
    sys.exit(main())
