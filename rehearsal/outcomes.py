"""What `POST /outcomes` takes from plans: `python -m rehearsal.outcomes` writes docs/figures/outcomes_load.json.

Plans come at random times, at half of what a closed loop gets planned, to a real server with the default model. A block
is five windows with the same questions at the same times, in an order that changes from block to block: plans alone;
beside ten events for each plan in lists, as a shop's processes with the Python client send them; beside the same
events, each a request of its own, which is the dearest way; and beside either to a server that does nothing with them.
The sender shares the cores with the service, as a shop does not: what the service's own work takes from plans is the
difference from the window with the same events elsewhere. Its 95% interval is a bootstrap over blocks. Latency counts
from when a request was due. Then every event that was answered for is looked for in the file. The plan cache is off.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from peakplan_client.events import LINGER_MS, MOST_BYTES, MOST_OF_A_REQUEST

from rehearsal.bench.machine import describe_machine
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
LISTS, ONE_BY_ONE = "in_lists", "one_by_one"
WAYS = (LISTS, ONE_BY_ONE)
WINDOWS = ((ALONE, ""), *((where, way) for way in WAYS for where in (ELSEWHERE, HERE)))
SENDERS = 4  # processes of a shop, each with a sender of its own, which take events in turn
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


def lists_of(events: Sequence[Shot]) -> list[Shot]:
    """Return the requests in which senders send these events: each when it is full, or when its first has lingered."""
    lists: list[Shot] = []
    for number in range(SENDERS):
        waiting: list[Shot] = []
        for event in events[number::SENDERS]:
            if waiting and event.at > waiting[0].at + LINGER_MS / 1000:
                lists.append(_list(waiting[0].at + LINGER_MS / 1000, waiting))
                waiting = []
            if waiting and sum(len(each.body) + 1 for each in [*waiting, event]) + 1 > MOST_BYTES:
                lists.append(_list(event.at, waiting))
                waiting = []
            waiting.append(event)
            if len(waiting) == MOST_OF_A_REQUEST:
                lists.append(_list(event.at, waiting))
                waiting = []
        if waiting:
            lists.append(_list(waiting[-1].at, waiting))  # it closes
    return sorted(lists, key=lambda each: each.at)


def _list(at: float, events: Sequence[Shot]) -> Shot:
    return Shot(at, b"[" + b",".join(event.body for event in events) + b"]")


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


@dataclass(slots=True)
class Window:
    """What plans and events met with in all windows of a kind; `plans` has a list for each block."""

    plans: list[list[Sample]] = field(default_factory=list)
    seconds: float = 0.0  # of processors, that the service's process took
    sent: list[Shot] = field(default_factory=list)
    reported: list[Sample] = field(default_factory=list)

    def plans_met(self) -> dict[str, Any]:
        whole = [sample for block in self.plans for sample in block]
        return summary(whole) | {"by_rule": by_rule(whole)}

    def events(self, *, answered: bool = False) -> list[str]:
        """Return the ids of all events, or of those that were answered for."""
        told = zip(self.sent, self.reported, strict=True)
        bodies = [json.loads(shot.body) for shot, sample in told if sample.status == 202 or not answered]
        return [event["event_id"] for body in bodies for event in (body if isinstance(body, list) else [body])]


def figure_of(windows: dict[tuple[str, str], Window], kept: Path) -> dict[str, Any]:
    """Return what plans and events met with, by the way events were sent, and which events are in the file."""
    alone = windows[ALONE, ""]
    figure: dict[str, Any] = {ALONE: alone.plans_met()}
    answered: set[str] = set()
    for way in WAYS:
        here, elsewhere = windows[HERE, way], windows[ELSEWHERE, way]
        answered.update(here.events(answered=True))
        number = len(here.events())
        figure[way] = {
            ELSEWHERE: elsewhere.plans_met(),
            HERE: here.plans_met(),
            "events": number,
            "requests": summary(here.reported),
            "later_than_beside_events_elsewhere": difference(here.plans, elsewhere.plans),
            "later_than_alone": difference(here.plans, alone.plans),
            "processor_ms_an_event": round((here.seconds - elsewhere.seconds) * 1000 / max(number, 1), 3),
        }
    lines = [json.loads(line)["event_id"] for line in kept.read_text(encoding="utf-8").splitlines()]
    lost, twice = len(answered - set(lines)), len(lines) - len(set(lines))
    return figure | {"answered_for_and_lost": lost, "kept_twice": twice}


async def measure(url: str, pid: int, elsewhere: str, kept: Path, blocks: int, seconds: float) -> dict[str, Any]:
    """Return the figure, without the machine. Take the service's process, and a server that does nothing."""
    asked = draw(questions(2000), 100_000, 0.0)
    closed = await closed_loop(url, asked[:500], 2, seconds)
    rate = SHARE_OF_CAPACITY * len(closed) / seconds
    numbers, drawn = count(), iter(asked)
    windows = {kind: Window() for kind in WINDOWS}
    ids = [await _planned(url, next(drawn))]
    for block in range(blocks):
        shots = [Shot(at, body(next(drawn), _DEADLINE_MS)) for at in poisson(rate, seconds, seed=block)]
        times = poisson(EVENTS_A_PLAN * rate, seconds, seed=1000 + block)
        for place in range(len(WINDOWS)):
            where, way = WINDOWS[(block + place) % len(WINDOWS)]
            coming = events_of(ids, times, numbers) if way else []
            coming = lists_of(coming) if way == LISTS else coming
            found, before = windows[where, way], processor_seconds(pid)
            planned, reported = await window(url, shots, coming, url if where == HERE else elsewhere)
            found.seconds += processor_seconds(pid) - before
            found.plans.append(planned)
            found.reported += reported
            found.sent += coming
            ids = [json.loads(sample.body)["request_id"] for sample in planned if sample.status == 200] or ids
    return {
        "plans_a_second": round(rate, 1),
        "events_a_second": round(EVENTS_A_PLAN * rate, 1),
        "senders": SENDERS,
        "linger_ms": LINGER_MS,
        "windows": blocks * len(WINDOWS),
        "seconds": seconds,
        **figure_of(windows, kept),
    }


async def _planned(url: str, question: Question) -> str:
    """Return the id of a plan, of which the first events are."""
    (sample,) = await LoadGenerator(url).fire([Shot(0.0, body(question, 2000), 2.0)])
    return str(json.loads(sample.body)["request_id"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help=f"of {len(WINDOWS)} windows")
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
