"""What docs/value.md says of docs/figures/outcomes_load.json, value_speed.json and interleaving.json."""

from typing import Any


def render_outcomes(figure: dict[str, Any]) -> str:
    """Return plans' times with and without events beside them, and what was lost."""
    rows = ["| | plans | p50 | p99 | by rule | not answered |", "|---|---:|---:|---:|---:|---:|"]
    events = f"beside {figure['events_a_second']:g} events a second"
    titles = {
        "plans_alone": "alone", "plans_beside_events_elsewhere": f"{events} that another server gets",
        "plans_beside_events": events,
    }  # fmt: skip
    for key, title in titles.items():
        if (row := figure.get(key)) is not None:
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
    return "\n".join([*rows, "", *_differences(figure), " ".join(told)])


def _differences(figure: dict[str, Any]) -> list[str]:
    """Return what the service's work for events takes from plans, with its interval, where that was measured."""
    if (later := figure.get("later_than_beside_events_elsewhere")) is None:
        return []

    def said(part: str, than: dict[str, Any]) -> str:
        middle, low, high = than[part]
        return f"{middle:+g} ms ({low:+g} to {high:+g})"

    alone = figure["later_than_alone"]
    told = [
        f"What the service does for an event takes {figure['processor_ms_an_event']:g} ms of a processor, and from",
        f"plans {said('p50', later)} at p50 and {said('p99', later)} at p99: beside events that another server gets,",
        f"so that the sender, on the same cores, does not count. With the sender it is {said('p50', alone)} and",
        f"{said('p99', alone)}. Intervals of 95% by a bootstrap over blocks of three windows with the same questions.",
    ]
    return [" ".join(told), ""]


def render_value_speed(figure: dict[str, Any]) -> str:
    """Return how long a report takes, and its memory."""
    return (
        f"{figure['events']:,} events ({figure['gigabytes']:g} GB) took {figure['seconds']:g} s, "
        f"{figure['processor_seconds']:g} s of processor time, and {figure['memory_mb']} MB of memory.\n\n"
        f"<sub>`python -m benchmarks.value_speed`, {figure['machine']['processor']}, two threads, "
        f"load {figure['load_before']:g} before it.</sub>"
    )


def render_interleaving(figure: dict[str, Any]) -> str:
    """Return how often the report is right about two searches in one list."""
    equal, planted = figure["no_preference"], figure["planted"]
    least = min(each["covered_at_every_look"] for each in (equal, planted))
    said = [
        f"Simulated with real drafts and the cascade model, {equal['runs']:,} tests with {figure['looks']} looks each:",
        f"of two equal searches {equal['a_verdict']:.1%} end with a verdict, with {equal['shoppers']:,} shoppers; a",
        f"planted preference of {planted['preference']:+.1%} is found in {planted['preferred']:.1%} and taken for its",
        f"contrary in {planted['worse']:.1%}, with the {planted['shoppers']:,} that one of its size asks for, after",
        f"{planted['median_shoppers_to_the_verdict']:,} in the median; and intervals cover the truth at every look in",
        f"at least {least:.1%}. As with arms, that proves the instrument.",
    ]
    return " ".join(said) + "\n\n<sub>`python -m rehearsal.interleaving`</sub>"
