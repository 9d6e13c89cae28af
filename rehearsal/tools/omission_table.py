"""Our load generator beside Locust as a table of docs/stack.md, from docs/figures/omission.json."""

from __future__ import annotations

from typing import Any

from rehearsal.bench.serving_tables import provenance


def render_omission(figure: dict[str, Any]) -> str:
    """Return what each generator says of the same stalls, beside what they do to requests that nobody holds back."""
    rows = ["| | answers | p50 ms | p95 ms | p99 ms |", "|---|---:|---:|---:|---:|"]
    users = figure["users"]
    words = {
        "expected": "by arithmetic: every request is sent when it is due",
        "ours": "our generator",
        "locust_open": f"Locust, {users['open']} users, none of whom waits for another",
        "locust_closed": f"Locust, users: {users['closed']}, which waits for each answer first",
    }
    for name, said in words.items():
        found = figure[name]
        rows.append(f"| {said} | {found.get('answers', '')} | {' | '.join(f'{each:.0f}' for each in found['ms'])} |")
    load = (
        f"{figure['rate']:g} requests a second for {figure['seconds']:g} s to a server that freezes for "
        f"{1000 * figure['stall_s']:g} ms every {figure['every_s']:g} s, Locust {figure['locust']}"
    )
    return "\n".join([*rows, "", provenance(figure, load)])
