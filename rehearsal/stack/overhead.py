"""`python -m rehearsal.stack.overhead`: what Envoy and TLS add to a gateway's answers, and what a core carries of each.

One question is asked again and again, which the gateway's cache answers, so that a request costs as little as it can.
Turns through Envoy and turns past it alternate. What a core carries is the processor time of a request turned over.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop

from rehearsal.bench.machine import describe_machine
from rehearsal.load import arrivals
from rehearsal.load.client import LoadGenerator, Shot
from rehearsal.load.result import latency_summary
from rehearsal.stack.__main__ import host_variables, make_folder
from rehearsal.stack.folder import CELLS, HOST_PORT, Shape, StackError
from rehearsal.stack.parts_here import MissingPartError, missing
from rehearsal.stack.processes import Programs, running, trusting

FIGURE = Path("docs/figures/balancer.json")
RATE, TURN_SECONDS, TURNS = 100.0, 5.0, 6
_BODY = b'{"query": "red shoes"}'


def main() -> int:
    """Measure, print and write the figure; return 1 where no stack starts."""
    options = _options()
    if lacking := missing():
        print("a stack needs programs that are not installed:\n  " + "\n  ".join(lacking), file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the stack is stopped before this ends
    try:
        folder = make_folder(options.folder, Shape(1))
        with running(folder, host_variables(recorded=True), light=True) as programs:
            figure = {
                "command": "python -m rehearsal.stack.overhead",
                "machine": describe_machine(),
                "rate": RATE,
                **measure(programs, options.seconds),
            }
    except (StackError, MissingPartError) as error:
        print(f"nothing measured: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(figure, indent=1))
    options.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(programs: Programs, seconds: float) -> dict[str, Any]:
    """Return latencies in milliseconds with Envoy and without, and processor milliseconds a request of each part."""
    folder = programs.folder
    ways = {"envoy": folder.url, "gateway": f"http://{folder.hosts(CELLS[0])[0]}:{HOST_PORT}"}
    parts = {"envoy": ["envoy"], "gateway": [f"{cell}/{folder.hosts(cell)[0]}" for cell in CELLS]}
    latencies: dict[str, list[float]] = {way: [] for way in ways}
    spent = dict.fromkeys(parts, 0.0)
    for turn in range(TURNS + 1):
        for way, url in ways.items():
            shots = [Shot(at, _BODY) for at in arrivals.poisson(RATE, seconds, seed=turn + 1)]
            generator = LoadGenerator(url, trust=trusting(folder) if way == "envoy" else None)
            before = _processor(programs, parts)
            samples = uvloop.run(generator.fire(shots))
            if turn == 0:  # it warms up
                continue
            latencies[way] += [sample.latency for sample in samples if sample.status == 200]
            if way == "envoy":
                after = _processor(programs, parts)
                spent = {part: spent[part] + after[part] - before[part] for part in parts}
    answered = max(len(latencies["envoy"]), 1)
    found: dict[str, Any] = {way: {"latency_ms": latency_summary(each)} for way, each in latencies.items()}
    for part, seconds in spent.items():
        found[part]["processor_ms"] = round(1000 * seconds / answered, 3)
        found[part]["per_second_a_core"] = round(answered / max(seconds, 1e-9))
    return found


def _processor(programs: Programs, parts: dict[str, list[str]]) -> dict[str, float]:
    return {part: sum(map(programs.processor_seconds, names)) for part, names in parts.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rehearsal.stack.overhead", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/stack-overhead"))
    parser.add_argument("--seconds", type=float, default=TURN_SECONDS, help=f"of each of {TURNS} turns of each way")
    parser.add_argument("--output", type=Path, default=FIGURE)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
