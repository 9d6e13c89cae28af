"""The live rehearsal beside the twin as a table of docs/stack.md, from docs/figures/stack.json."""

from __future__ import annotations

from typing import Any

from rehearsal.bench.serving_tables import provenance

_COLUMNS = ("scenario", "verdict", "p50 ms", "p99 ms", "by rule", "plans a second", "lost", "late")
# Of the twin's errors: shares of the live reading, points of 100, and seconds.
LIMITS = {"p99_ms": 0.10, "by_rule": 1.0, "goodput": 0.03, "alerts": 30.0}
_WORDS = {"p99_ms": "p99", "by_rule": "points by rule", "goodput": "plans a second", "alerts": "seconds of alerts"}


def render_stack(figure: dict[str, Any]) -> str:
    """Return each scenario's live readings with the twin's beside them, its alerts, and how far off the twin is."""
    rows = [f"| {' | '.join(_COLUMNS)} |", "|---|---|" + "---:|" * (len(_COLUMNS) - 2)]
    rows += [_row(scenario) for scenario in figure["scenarios"]]
    alerts = ["| scenario | alert | live, s | twin, s | cleared |", "|---|---|---:|---:|---|"]
    alerts += [line for scenario in figure["scenarios"] for line in _alerts(scenario)]
    failed = [
        f"- {each['scenario']}: {'; '.join(run['complaints'])}"
        for each in figure["scenarios"]
        for run in _runs(each)
        if run["complaints"]
    ]
    scale = (
        f"{figure['hosts']} light hosts with a replica each; plans take {figure['times']:g} times what was recorded, "
        f"and a minute of the rules lasts {60 / figure['hurry']:g} s; calm is {figure['calm_share']:.0%} of what the "
        f"replicas can plan, for {figure['seconds']:g} s; what Envoy and gateway cost the twin's answers, "
        f"{figure['overhead_ms']} ms, and its replicas, {figure['occupied_ms']} ms a plan, is fitted to a quarter "
        "and a half of the calm scenario's answers"
    )
    return "\n".join(
        [
            *rows,
            "",
            "The first number is Prometheus's, the second the twin's. Alerts, in seconds from the load's start:",
            "",
            *alerts,
            "",
            *([*failed, ""] if failed else []),
            errors(figure),
            "",
            provenance(figure, scale),
        ]
    )


def errors(figure: dict[str, Any]) -> str:
    """Return whether the twin's largest errors are within the limits.

    An alert that fired in one of the two alone is within no limit.
    """
    every = [_off(run) for each in figure["scenarios"] for run in _runs(each)]
    most = {name: max(abs(off[name]) for off in every) for name in LIMITS}
    alone = sum(len(_alone(run)) for each in figure["scenarios"] for run in _runs(each))
    held = [
        f"{_WORDS[name]} {'met' if most[name] <= limit and not (name == 'alerts' and alone) else 'NOT met'} "
        f"({_shown(name, limit).lstrip('+')}; {_shown(name, most[name]).lstrip('+')} at most"
        f"{f'; {alone} fired in one of the two alone' if name == 'alerts' and alone else ''})"
        for name, limit in LIMITS.items()
    ]
    runs = max((len(_runs(each)) for each in figure["scenarios"]), default=1)
    of = f"over {runs} runs of each scenario, of which the first is shown" if runs > 1 else "in one run of each"
    return f"The limits of the twin's errors {of}: {', '.join(held)}."


def _off(each: dict[str, Any]) -> dict[str, float]:
    """Return the twin's errors: shares of the live reading, points of 100, seconds."""
    live, twin = each["live"], each["twin"]
    off = {name: (twin[name] - live[name]) / max(live[name], 1e-9) for name in ("p99_ms", "goodput")}
    known = {alert["name"]: alert["first"] for alert in reversed(each["alerts"])}
    both = [twin["alerts"][name] - at for name, at in known.items() if name in twin["alerts"]]
    return {**off, "by_rule": 100 * (twin["by_rule"] - live["by_rule"]), "alerts": max(both, key=abs, default=0.0)}


def _runs(each: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every run of a scenario, each with the twin beside it."""
    return [each, *({**run, "twin": each["twin"]} for run in each.get("more_runs", ()))]


def _alone(each: dict[str, Any]) -> list[str]:
    """Return the alerts that fired live and not in the twin, or the other way round, with where they did."""
    live, twin = {alert["name"] for alert in each["alerts"]}, set(each["twin"]["alerts"])
    return [f"{name} ({'live' if name in live else 'twin'})" for name in sorted(live ^ twin)]


def _shown(name: str, value: float) -> str:
    return {"by_rule": f"{value:+.1f}", "alerts": f"{value:+.0f}"}.get(name, f"{value:+.1%}")


def render_balancer(figure: dict[str, Any]) -> str:
    """Return what Envoy adds to a gateway's answers, and what a core carries of each."""
    rows = ["| | p50 ms | p99 ms | processor ms a request | requests a second a core |", "|---|---:|---:|---:|---:|"]
    for part, words in (("gateway", "the gateway alone"), ("envoy", "through Envoy, over TLS")):
        found = figure[part]
        rows.append(
            f"| {words} | {found['latency_ms']['p50']} | {found['latency_ms']['p99']} | {found['processor_ms']} | "
            f"{found['per_second_a_core']} |"
        )
    asked = f"{figure['rate']:g} requests a second, answered from the gateway's cache, in turns"
    return "\n".join([*rows, "", provenance(figure, asked)])


def _row(each: dict[str, Any]) -> str:
    live, twin = each["live"], each["twin"]
    beside = [f"{live[name]:.0f} / {twin[name]:.0f}" for name in ("p50_ms", "p99_ms")]
    beside += [f"{live['by_rule']:.1%} / {twin['by_rule']:.1%}", f"{live['goodput']:.1f} / {twin['goodput']:.1f}"]
    verdict = "passed" if each["passed"] else "failed"
    counts = [f"{live['failed']:.0f} of {live['requests']:.0f}", f"{live['late']:.0f}"]
    return f"| {' | '.join([each['scenario'], verdict, *beside, *counts])} |"


def _alerts(each: dict[str, Any]) -> list[str]:
    twins: dict[str, float] = each["twin"]["alerts"]
    shown = []
    for alert in each["alerts"]:
        beside = f"{twins[alert['name']]:.0f}" if alert["name"] in twins else ""
        cleared = "yes" if alert["cleared"] else "no"
        first = f"{alert['first']:.0f}"
        shown.append(f"| {each['scenario']} | {alert['name']}, {alert['cell']} | {first} | {beside} | {cleared} |")
    fired = {alert["name"] for alert in each["alerts"]}
    alone = {name: at for name, at in twins.items() if name not in fired}
    return shown + [f"| {each['scenario']} | {name} | none | {at:.0f} | |" for name, at in alone.items()]
