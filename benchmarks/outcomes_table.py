"""What docs/value.md says of docs/figures/outcomes_load.json and value_speed.json, for `benchmarks.readme`."""

from typing import Any


def render_outcomes(figure: dict[str, Any]) -> str:
    """Return plans' times with and without events beside them, and what was lost."""
    rows = ["| | plans | p50 | p99 | by rule | not answered |", "|---|---:|---:|---:|---:|---:|"]
    events = f"beside {figure['events_a_second']:g} events a second"
    for key, title in (("plans_alone", "alone"), ("plans_beside_events", events)):
        row = figure[key]
        times = f"{row['p50']:g} ms | {row['p99']:g} ms"
        rows.append(f"| {title} | {row['requests']} | {times} | {row['by_rule']} | {row['not_answered']} |")
    sent = figure["events"]
    beside = ", beside other work" if figure["shared"] else ""
    lost = figure["answered_for_and_lost"]
    told = [
        f"<sub>`{figure['command']}`: {figure['plans_a_second']:g} plans a second, windows of {figure['seconds']:g} s",
        f"in turn. {sent['requests']} events, each a request of its own, were answered in {sent['p50']:g} ms (p50) and",
        f"{sent['p99']:g} ms (p99), {sent['not_answered']} of them not; of those answered for, {lost} are in no file.",
        f"{figure['machine']['processor']}{beside}.</sub>",
    ]
    return "\n".join([*rows, "", " ".join(told)])


def render_value_speed(figure: dict[str, Any]) -> str:
    """Return how long a report takes, and its memory."""
    return (
        f"{figure['events']:,} events ({figure['gigabytes']:g} GB) took {figure['seconds']:g} s, "
        f"{figure['processor_seconds']:g} s of processor time, and {figure['memory_mb']} MB of memory.\n\n"
        f"<sub>`python -m benchmarks.value_speed`, {figure['machine']['processor']}, two threads, "
        f"load {figure['load_before']:g} before it.</sub>"
    )
