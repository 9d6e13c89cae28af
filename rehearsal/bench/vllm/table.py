"""vLLM beside our replicas as a table of docs/models.md, from docs/figures/vllm.json."""

from __future__ import annotations

from typing import Any

from rehearsal.bench.serving_tables import provenance


def render_vllm(figure: dict[str, Any]) -> str:
    """Return a table for each machine: milliseconds a plan, and how many plans have our float32 replica's tokens."""
    parts = []
    for machine, found in figure["machines"].items():
        rows = ["| | p50 ms | mean ms | plans a second | tokens as our float32 |", "|---|---:|---:|---:|---:|"]
        for name, run in found["runs"].items():
            same = f"{run['identical_to_our_float32']} of {run['plans']}"
            rows.append(f"| {name} | {run['p50_ms']} | {run['mean_ms']} | {run['plans_a_second']} | {same} |")
        about = f"{found['package']}, one thread each, one request at a time"
        parts.append("\n".join([f"**{machine}**", "", *rows, "", provenance(found, about)]))
    return "\n\n".join(parts)
