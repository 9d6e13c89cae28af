"""The table of docs/figures/siege.json, for `rehearsal.tools.readme`."""

from collections.abc import Iterator, Sequence
from typing import Any

from rehearsal.bench.serving_tables import provenance


def render_siege(figure: dict[str, Any]) -> str:
    """Return what each attack tried and what came of it, then health, memory and fresh connections."""
    columns = ("attack", "attempts", "answered", "of which 429 or 503", "wrong", "hung", "lost")
    rows = [f"| {' | '.join(columns)} |", "|---|" + "---:|" * (len(columns) - 1)]
    for name, tally in figure["attacks"].items():
        wrong = sum(tally["wrong"].values())
        numbers = (tally["tried"], tally["answered"], tally["refused"], wrong, tally["hangs"], tally["lost"])
        rows.append(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |")
    fresh, memory, health = figure["fresh"], figure["memory_mib"], figure["health"]
    schema, lost = figure["schemathesis"], figure["lost_for_good"]
    worst = {
        path: f"the slowest of {asked['asked']:,} `{path}` checks took {asked['worst_ms']} ms"
        for path, asked in health.items()
    }
    return "\n".join(
        [
            *rows,
            "",
            f"Meanwhile, replicas were killed and stopped, and the model was reloaded. Health checks used a fresh "
            f"connection each: {' and '.join(worst.values())}. At {fresh['rate']} fresh connections per second, "
            f"{fresh['in_time']:.2%} of {fresh['asked']:,} plans met the deadline, with a p99 of {fresh['p99_ms']} ms. "
            f"The gateway's memory went from {memory['settled']} MiB to {memory['end']} MiB and peaked at "
            f"{memory['most']} MiB. schemathesis {'found nothing' if schema['passed'] else 'found something'} "
            f"({schema['examples']} examples). Lost permanently: {', '.join(lost) or 'nothing'}.",
            *_fresh_control(fresh),
            *render_neighbours(figure),
            *_crossfire(figure),
            "",
            _verdict(figure["given_way"]),
            "",
            provenance(
                figure,
                f"{figure['seconds']:.0f} s, seed {figure['seed']}, attackers on the same cores, "
                f"{figure['stolen_share']:.1%} of whose time the hypervisor gave to other guests",
            ),
        ]
    )


def _crossfire(figure: dict[str, Any]) -> Iterator[str]:
    """Yield what honest callers lost to hostile ones, where the figure has it."""
    for name, each in figure.get("crossfire", {}).items():
        beside = each["beside"]
        yield ""
        yield (
            f"Eight callers, told apart {name}, beside eight hostile ones: of {beside['asked']:,} requests "
            f"{beside['changed']} were answered with another's plan, {beside['refused']} refused and "
            f"{beside['forgotten']} purchases not kept; p99 went from {each['quiet']['p99_ms']} to "
            f"{beside['p99_ms']} ms."
        )


def render_neighbours(figure: dict[str, Any]) -> Iterator[str]:
    """Yield what others noticed of costly callers, and how long stops took, where the figure has them."""
    if (found := figure.get("bystanders")) is not None:
        alone, beside = found["alone"], found["beside"]
        yield ""
        yield (
            f"Beside {found['callers']} callers who send nothing but the costliest questions, without a pause, others' "
            f"p50 went from {alone['p50_ms']} to {beside['p50_ms']} ms and their p99 from {alone['p99_ms']} to "
            f"{beside['p99_ms']} ms; rules planned {beside['by_rule']} of {beside['asked']}, and {alone['by_rule']} "
            "without them."
        )
        yield from _control(found)
        yield from _each(found)
    if stops := figure.get("stops"):
        slowest = max(stops, key=lambda name: float(stops[name]["seconds"]))
        yield ""
        yield f"SIGTERM during attacks ({len(stops)} stops): at most {stops[slowest]['seconds']} s, during {slowest}."


def _fresh_control(fresh: dict[str, Any]) -> Iterator[str]:
    if (control := fresh.get("control")) is not None:
        yield (
            f"As many at a server that does nothing: {control['in_time']:.2%}, p99 {control['p99_ms']} ms. One in a "
            f"hundred was sent {fresh['sent_late_ms']} ms late or later; {fresh['refused']:,} were refused with 503."
        )


def _control(found: dict[str, Any]) -> Iterator[str]:
    """Yield what the attackers cost the others without the service: the machine's part."""
    if (control := found.get("control")) is not None:
        yield (
            f"Where the same callers send {found['attacks_a_second']} of their questions a second to a server that "
            f"does nothing, others' p50 here is {control['p50_ms']} ms and their p99 is {control['p99_ms']} ms; rules "
            f"plan {control['by_rule']} of {control['asked']}: that is the machine's part, the rest is ours."
        )


def _each(found: dict[str, Any]) -> Iterator[str]:
    """Yield a table of what the others notice of each attack alone, and of all at once."""
    if not (each := found.get("each")):
        return
    yield ""
    quiet, control = "others' p99, quiet", "where a server that does nothing is attacked"
    yield f"| attack | callers | attacks a second | {quiet} | {control} | attacked | by rule |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, row in each.items():
        machine, beside = row.get("control", {}).get("p99_ms", "-"), row["beside"]
        numbers = (row["callers"], row["attacks_a_second"], found["alone"]["p99_ms"], machine, beside["p99_ms"])
        yield f"| {name} | {' | '.join(map(str, numbers))} | {beside['by_rule']} |"


def _verdict(given_way: Sequence[str]) -> str:
    return f"This run failed: {'; '.join(given_way)}." if given_way else "This run passed: nothing gave way."
