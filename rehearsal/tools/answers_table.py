"""What docs/figures/answers.json and rated.json say, for `rehearsal.tools.readme`."""

from typing import Any


def render_answers(figure: dict[str, Any]) -> str:
    """Return how many questions' first options meet what was asked and, where they were measured, the times."""
    meets = figure["meets"]
    bounded = meets["with_a_bound"]
    rows = [
        "| | |",
        "|---|---:|",
        f"| questions kept from tuning, {bounded} of them with a price or an exclusion | {meets['questions']} |",
        f"| all options shown first meet price and exclusions | {meets['all_meet']:.1%} |",
        f"| three options are shown | {meets['three'] / meets['questions']:.1%} |",
    ]
    if "first" in figure:
        for way, title in (
            ("answer", "`POST /answer`"),
            ("plan_then_search", "`POST /plan`, then `POST /shop/search`"),
        ):
            times = figure["first"][way]
            rows.append(f"| first options, {title}, one question at a time: p50, p99 | {_both(times)} |")
    if "load" in figure:
        load = figure["load"]
        title = f"first options at {load['share']:.0%} of {load['capacity']:g} answers a second: p50, p99"
        rows.append(f"| {title} | {_both(load['first_ms'])} |")
    beside = ", beside other work" if figure["shared"] else ""
    wrong = "; ".join(meets["wrong"])
    told = f"<sub>`{figure['command']}`, {figure['machine']['processor']}{beside}. Not met: {wrong}.</sub>"
    return "\n".join([*rows, "", told])


def render_rated(figure: dict[str, Any]) -> str:
    """Return how many questions that also ask for a rating have options which all meet everything."""
    shares = figure["rated_high_enough"]
    least, most = min(shares, key=float), max(shares, key=float)
    text = (
        f"Of {figure['questions']} questions, the first options of {figure['all_meet']:.1%} all meet price, exclusions "
        f"and rating; {figure['three'] / figure['questions']:.1%} show three. Something "
        f"rated worse than asked is shown for {figure['rated_worse']}. "
        f"From {least} stars on are {shares[least]:.0%} of the products, "
        f"from {most} on {shares[most]:.0%}."
    )
    return f"{text}\n\n<sub>`{figure['command']}`. Not met: {'; '.join(figure['wrong'])}.</sub>"


def _both(times: dict[str, float]) -> str:
    return f"{times['p50']:g} ms, {times['p99']:g} ms"
