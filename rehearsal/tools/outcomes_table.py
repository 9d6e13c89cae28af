"""What docs/value.md says of docs/figures/outcomes_load.json, value_speed.json and interleaving.json."""

from typing import Any

_WAYS = {"in_lists": "in lists", "one_by_one": "each a request of its own"}


def render_outcomes(figure: dict[str, Any]) -> str:
    """Return plans' times with and without events beside them, by the way events are sent, and what was lost."""
    rows = ["| | plans | p50 | p99 | by rule | not answered |", "|---|---:|---:|---:|---:|---:|"]
    rows.append(_row("alone", figure["plans_alone"]))
    ways = {key: said for key, said in _WAYS.items() if key in figure}
    for key, said in ways.items():
        events = f"beside {figure['events_a_second']:g} events a second, {said}"
        rows.append(_row(f"{events}, that another server gets", figure[key]["plans_beside_events_elsewhere"]))
        rows.append(_row(f"**{events}**", figure[key]["plans_beside_events"]))
    taken = ["| what events take from plans | p50 | p99 | of a processor, an event |", "|---|---:|---:|---:|"]
    for key, said in ways.items():
        for name, than in (("later_than_beside_events_elsewhere", "the same elsewhere"), ("later_than_alone", "none")):
            own = f"{figure[key]['processor_ms_an_event']:g} ms" if than != "none" else ""
            late = figure[key][name]
            taken.append(f"| {said}, beside {than} | {_interval(late['p50'])} | {_interval(late['p99'])} | {own} |")
    told = [
        "Intervals of 95% by a bootstrap over blocks of windows with the same questions. The sender shares the cores",
        "with the service, which counts in the rows beside none.",
    ]
    return "\n".join([*rows, "", *taken, "", " ".join(told), "", _small_print(figure, ways)])


def _row(title: str, met: dict[str, Any]) -> str:
    times = f"{met['p50']:g} ms | {met['p99']:g} ms"
    return f"| {title} | {met['requests']} | {times} | {met['by_rule']} | {met['not_answered']} |"


def _interval(given: list[float]) -> str:
    middle, low, high = given
    return f"{middle:+g} ms ({low:+g} to {high:+g})"


def _small_print(figure: dict[str, Any], ways: dict[str, str]) -> str:
    """Return how it was measured, and what became of the events."""
    told = [
        f"<sub>`{figure['command']}`: {figure['plans_a_second']:g} plans a second, windows of {figure['seconds']:g} s",
        "in turn.",
    ]
    if "in_lists" in ways:
        told.append(f"Lists as {figure['senders']} senders send them that linger {figure['linger_ms']:g} ms.")
    for key, said in ways.items():
        sent = figure[key]["requests"]
        told.append(
            f"{figure[key]['events']} events, {said}, were answered in {sent['p50']:g} ms (p50) and {sent['p99']:g} ms "
            f"(p99) after they were sent, {sent['not_answered']} requests not."
        )
    told.append(f"Of the events answered for, {figure['answered_for_and_lost']} are in no file.")
    beside = ", beside other work" if figure["shared"] else ""
    return " ".join([*told, f"{figure['machine']['processor']}{beside}.</sub>"])


def render_value_speed(figure: dict[str, Any]) -> str:
    """Return how long a report takes, and its memory."""
    return (
        f"{figure['events']:,} events ({figure['gigabytes']:g} GB) took {figure['seconds']:g} s, "
        f"{figure['processor_seconds']:g} s of processor time, and {figure['memory_mb']} MB of memory.\n\n"
        f"<sub>`python -m rehearsal.bench.value_speed`, {figure['machine']['processor']}, two threads, "
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
