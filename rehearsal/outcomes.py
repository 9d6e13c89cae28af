"""What `POST /outcomes` takes from plans: `python -m rehearsal.outcomes` writes docs/figures/outcomes_load.json.

Plans come at random times, at half of what a closed loop gets planned, to a real server with the default model. In
every second window ten events come for each plan, each a request of its own, which is the dearest way to send them.
Windows with and without alternate (without, with, with, without, ...), so that both see the same machine; latency
counts from when a request was due. Then every event that was answered for is looked for in the file. The plan cache is
off.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from rehearsal.load.arrivals import poisson
from rehearsal.load.client import LoadGenerator, Sample, Shot
from rehearsal.load.mix import body, draw, questions
from rehearsal.load.probes import closed_loop
from rehearsal.load.server import serving

FIGURE = Path("docs/figures/outcomes_load.json")
EVENTS_A_PLAN = 10
SHARE_OF_CAPACITY = 0.5
_ACTIONS = ("first_shown", *["impression"] * 6, "click", "add_to_cart", "purchase")
_ATTRIBUTES: dict[str, dict[str, object]] = {"first_shown": {"milliseconds": 210.0, "results": 24}}
_DEADLINE_MS = 300


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


async def window(url: str, plans: Sequence[Shot], events: Sequence[Shot]) -> tuple[list[Sample], list[Sample]]:
    """Fire plans, and events beside them; return what became of both."""
    planning, reporting = LoadGenerator(url), LoadGenerator(url, path="/outcomes")
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
    return found | {f"p{part}": round(times[min(int(len(times) * part / 100), len(times) - 1)], 1) for part in (50, 99)}


def by_rule(samples: Sequence[Sample]) -> int:
    """Return how many plans rules made, because the model would have been late."""
    return sum(json.loads(sample.body)["degraded"] for sample in samples if sample.status == 200)


async def measure(url: str, kept: Path, windows: int, seconds: float) -> dict[str, Any]:
    """Return the figure, without the machine."""
    asked = draw(questions(2000), 100_000, 0.0)
    most = len(await closed_loop(url, asked[:500], 2, seconds)) / seconds
    rate = SHARE_OF_CAPACITY * most
    numbers, drawn = count(), iter(asked)
    plans: dict[bool, list[Sample]] = {False: [], True: []}
    events: list[Sample] = []
    sent: list[Shot] = []
    ids: list[str] = []
    for number in range(windows):
        has_events = number % 4 in (1, 2)
        shots = [Shot(at, body(next(drawn), _DEADLINE_MS)) for at in poisson(rate, seconds, seed=number)]
        coming = (
            events_of(ids, poisson(EVENTS_A_PLAN * rate, seconds, seed=1000 + number), numbers) if has_events else []
        )
        planned, reported = await window(url, shots, coming)
        plans[has_events] += planned
        events += reported
        sent += coming
        ids = [json.loads(sample.body)["request_id"] for sample in planned if sample.status == 200]
    answered = {
        json.loads(shot.body)["event_id"] for shot, sample in zip(sent, events, strict=True) if sample.status == 202
    }
    lines = [json.loads(line)["event_id"] for line in kept.read_text(encoding="utf-8").splitlines()]
    return {
        "plans_a_second": round(rate, 1),
        "events_a_second": round(EVENTS_A_PLAN * rate, 1),
        "windows": windows,
        "seconds": seconds,
        "plans_alone": summary(plans[False]) | {"by_rule": by_rule(plans[False])},
        "plans_beside_events": summary(plans[True]) | {"by_rule": by_rule(plans[True])},
        "events": summary(events),
        "answered_for_and_lost": len(answered - set(lines)),
        "kept_twice": len(lines) - len(set(lines)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0, help="of one window")
    parser.add_argument("--shared", action="store_true", help="the machine has other work: the figure says so")
    parser.add_argument("--output", type=Path, default=FIGURE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"PEAKPLAN_CACHE_ENTRIES": 0, "PEAKPLAN_OUTCOMES_DIR": folder}
        with serving(settings) as server:
            measured = asyncio.run(measure(server.url, Path(folder) / "events.jsonl", given.windows, given.seconds))
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
