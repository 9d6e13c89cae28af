"""What `POST /outcomes` takes from plans: `python -m rehearsal.outcomes` writes docs/figures/outcomes_load.json.

Plans come at random times, at half of what a closed loop gets planned, to a real server with the default model. A block
is three windows with the same questions at the same times, in an order that changes from block to block: plans alone;
beside ten events for each plan, each a request of its own, which is the dearest way to send them; and beside the same
events to a server that does nothing with them. The sender shares the cores with the service, as a shop does not: what
the service's own work takes from plans is the difference of the last two. Its 95% interval is a bootstrap over blocks.
Latency counts from when a request was due. Then every event that was answered for is looked for in the file. The plan
cache is off.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from rehearsal.load.arrivals import poisson
from rehearsal.load.client import LoadGenerator, Sample, Shot
from rehearsal.load.mix import body, draw, questions
from rehearsal.load.probes import closed_loop
from rehearsal.load.server import serving
from rehearsal.load.sink import sink
from service.planner.question import Question

FIGURE = Path("docs/figures/outcomes_load.json")
EVENTS_A_PLAN = 10
SHARE_OF_CAPACITY = 0.5
_ACTIONS = ("first_shown", *["impression"] * 6, "click", "add_to_cart", "purchase")
_ATTRIBUTES: dict[str, dict[str, object]] = {"first_shown": {"milliseconds": 210.0, "results": 24}}
_DEADLINE_MS = 300
ALONE, ELSEWHERE, HERE = "plans_alone", "plans_beside_events_elsewhere", "plans_beside_events"
WINDOWS = (ALONE, ELSEWHERE, HERE)
_PARTS = (50, 99)
_RESAMPLES = 2000


def events_of(query_ids: Sequence[str], at: Sequence[float], numbers: Iterator[int]) -> list[Shot]:
    """Return an event for each time, some for each plan, none of them like another."""
    shots = []
    for place, due in enumerate(at):
        action = _ACTIONS[place % len(_ACTIONS)]
        known = {"action_name": action, "query_id": query_ids[place // EVENTS_A_PLAN % len(query_ids)]}
        where = _ATTRIBUTES.get(action) or {"object": {"object_id": f"B{place}"}, "position": {"ordinal": 1}}
        who = {"event_id": f"event-{next(numbers)}", "client_id": "browser"}
        event: dict[str, object] = {**known, **who, "event_attributes": where}
        shots.append(Shot(due, json.dumps(event).encode()))
    return shots


async def window(
    url: str, plans: Sequence[Shot], events: Sequence[Shot], taker: str
) -> tuple[list[Sample], list[Sample]]:
    """Fire plans, and events beside them; return what became of both."""
    planning, reporting = LoadGenerator(url), LoadGenerator(taker, path="/outcomes")
    async with asyncio.TaskGroup() as firing:
        planned = firing.create_task(planning.fire(plans))
        reported = firing.create_task(reporting.fire(events))
    return planned.result(), reported.result()


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return how many were answered and how late, in milliseconds; and the share of plans that rules made in time."""
    times = sorted(sample.latency * 1000 for sample in samples)
    found: dict[str, Any] = {
        "requests": len(samples),
        "not_answered": sum(sample.status >= 400 or not sample.status for sample in samples),
    }
    return found | {f"p{part}": round(times[min(int(len(times) * part / 100), len(times) - 1)], 1) for part in _PARTS}


def by_rule(samples: Sequence[Sample]) -> int:
    """Return how many plans rules made, because the model would have been late."""
    return sum(json.loads(sample.body)["degraded"] for sample in samples if sample.status == 200)


def difference(blocks: Sequence[Sequence[Sample]], others: Sequence[Sequence[Sample]]) -> dict[str, list[float]]:
    """Return by how many milliseconds plans of these windows are later than those of the others, block by block.

    Of each percentile the difference and its 95% interval, by a seeded bootstrap over blocks.
    """
    ours, theirs = (
        [np.array([each.latency * 1000 for each in block]) for block in given] for given in (blocks, others)
    )

    def later(chosen: Sequence[int]) -> list[float]:
        both = [np.concatenate([windows[number] for number in chosen]) for windows in (ours, theirs)]
        first, second = (np.percentile(latencies, _PARTS) for latencies in both)
        return [float(each) for each in first - second]

    rng, number = np.random.default_rng(1), len(ours)
    drawn = np.array([later(list(rng.integers(number, size=number))) for _ in range(_RESAMPLES)])
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    found = zip(_PARTS, later(range(number)), low, high, strict=True)
    return {
        f"p{part}": [round(float(each), 1) for each in (middle, least, most)] for part, middle, least, most in found
    }


def processor_seconds(pid: int) -> float:
    """Return what a process has used of processors, all of its threads together, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Measured:
    """What the windows were, one list a block."""

    def __init__(self) -> None:
        self.plans: dict[str, list[list[Sample]]] = {name: [] for name in WINDOWS}
        self.seconds = dict.fromkeys(WINDOWS, 0.0)  # of processors, that the service's process took
        self.events: list[Sample] = []
        self.sent: list[Shot] = []

    def figure(self, kept: Path) -> dict[str, Any]:
        """Return what plans and events met with, and which events are in the file."""
        answered = {
            json.loads(shot.body)["event_id"]
            for shot, sample in zip(self.sent, self.events, strict=True)
            if sample.status == 202
        }
        lines = [json.loads(line)["event_id"] for line in kept.read_text(encoding="utf-8").splitlines()]
        whole = {name: [sample for block in self.plans[name] for sample in block] for name in WINDOWS}
        return {
            **{name: summary(whole[name]) | {"by_rule": by_rule(whole[name])} for name in WINDOWS},
            "events": summary(self.events),
            "later_than_beside_events_elsewhere": difference(self.plans[HERE], self.plans[ELSEWHERE]),
            "later_than_alone": difference(self.plans[HERE], self.plans[ALONE]),
            "processor_ms_an_event": round(
                (self.seconds[HERE] - self.seconds[ELSEWHERE]) * 1000 / max(len(self.events), 1), 2
            ),
            "answered_for_and_lost": len(answered - set(lines)),
            "kept_twice": len(lines) - len(set(lines)),
        }


async def measure(url: str, pid: int, elsewhere: str, kept: Path, blocks: int, seconds: float) -> dict[str, Any]:
    """Return the figure, without the machine. Take the service's process, and a server that does nothing."""
    asked = draw(questions(2000), 100_000, 0.0)
    closed = await closed_loop(url, asked[:500], 2, seconds)
    rate = SHARE_OF_CAPACITY * len(closed) / seconds
    numbers, drawn, found = count(), iter(asked), Measured()
    ids = [await _planned(url, next(drawn))]
    for block in range(blocks):
        shots = [Shot(at, body(next(drawn), _DEADLINE_MS)) for at in poisson(rate, seconds, seed=block)]
        times = poisson(EVENTS_A_PLAN * rate, seconds, seed=1000 + block)
        for place in range(len(WINDOWS)):
            name = WINDOWS[(block + place) % len(WINDOWS)]
            coming = events_of(ids, times, numbers) if name != ALONE else []
            before = processor_seconds(pid)
            planned, reported = await window(url, shots, coming, url if name == HERE else elsewhere)
            found.seconds[name] += processor_seconds(pid) - before
            found.plans[name].append(planned)
            if name == HERE:
                found.events += reported
                found.sent += coming
            ids = [json.loads(sample.body)["request_id"] for sample in planned if sample.status == 200] or ids
    return {
        "plans_a_second": round(rate, 1),
        "events_a_second": round(EVENTS_A_PLAN * rate, 1),
        "windows": blocks * len(WINDOWS),
        "seconds": seconds,
        **found.figure(kept),
    }


async def _planned(url: str, question: Question) -> str:
    """Return the id of a plan, of which the first events are."""
    (sample,) = await LoadGenerator(url).fire([Shot(0.0, body(question, 2000), 2.0)])
    return str(json.loads(sample.body)["request_id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help="of three windows")
    parser.add_argument("--seconds", type=float, default=10.0, help="of one window")
    parser.add_argument("--shared", action="store_true", help="the machine has other work: the figure says so")
    parser.add_argument("--output", type=Path, default=FIGURE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"PEAKPLAN_CACHE_ENTRIES": 0, "PEAKPLAN_OUTCOMES_DIR": folder}
        with serving(settings) as server, sink() as elsewhere:
            kept = Path(folder) / "events.jsonl"
            measured = asyncio.run(
                measure(server.url, server.process.pid, elsewhere, kept, given.blocks, given.seconds)
            )
    figure = {
        "command": " ".join(["python -m rehearsal.outcomes", *sys.argv[1:]]),
        "machine": describe_machine(),
        "shared": given.shared,
        **measured,
    }
    given.output.write_text(json.dumps(figure, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figure, indent=1))


if __name__ == "__main__":
    main()
