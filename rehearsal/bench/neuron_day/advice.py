"""What to deploy of what was measured, and a fleet file that says it."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rehearsal.bench.neuron_day.day import Graph

# A replica's slowest plans may take so much of the SLO: the rest is for the line before it (infra/fleet/sizing.py).
OF_THE_SLO = 0.5
# What NeuronCores may take to become free, and so the fleet file's lost_replica_seconds at the least.
CORES_SECONDS = 300


def best(graphs: Sequence[Graph], found: Mapping[str, Any], slo_ms: float) -> tuple[Graph, str] | None:
    """Return the graph and the strategy with most plans a second a core among those whose p99 leaves room in the SLO.

    Where none leaves it, the pair with the lowest p99; None where nothing was measured.
    """
    timed = {
        (graph, strategy): figures
        for graph in graphs
        for strategy, figures in found.get(graph.name, {}).items()
        if isinstance(figures, Mapping) and figures["finished"] == figures["questions"]
    }
    if not timed:
        return None
    quick = {pair: figures for pair, figures in timed.items() if figures["p99_ms"] <= OF_THE_SLO * slo_ms}
    if not quick:
        return min(timed, key=lambda pair: float(timed[pair]["p99_ms"]))
    return max(quick, key=lambda pair: float(quick[pair]["plans_a_second_a_core"]))


def model_settings(found: Mapping[str, Any], graph: Graph, strategy: str, source: str) -> dict[str, Any]:
    """Return what the `model` of a fleet file says of a graph that was compiled and timed, by its keys."""
    compiled, timed = found["compile"][graph.name], found["plans"][graph.name][strategy]
    return {
        "strategy": strategy,
        "tensor_parallel": graph.cores,
        "batch_size": graph.batch,
        "speculation_length": compiled["rows"],
        "graph": graph.kind,
        "weight_layout": graph.layout,
        "sequence_length": compiled["sequence_length"],
        "context_buckets": compiled["context_buckets"],
        "service_time": {"mean_ms": timed["mean_ms"], "p99_ms": timed["p99_ms"], "source": source},
    }


def host_settings(rights: str, waited: float) -> dict[str, Any]:
    """Return what it says of hosts: the container's rights, and when one whose cores stay taken is replaced.

    Cores that become free by themselves are waited for twice as long as was seen.
    """
    late = {"lost_replica_seconds": max(CORES_SECONDS, math.ceil(2 * waited))} if waited else {}
    return ({"device_rights": rights} if rights else {}) | late


def fleet_text(text: str, settings: Mapping[str, Any]) -> str:
    """Return a fleet file whose model says `settings`; its comments and all else stay.

    Raises ValueError where the file has no `service_time` in its model.
    """
    block = re.compile(r"^model:\n(?:(?: +.*)?\n)*?(?P<indent> +)service_time:\n(?:(?P=indent) +.*\n)+", re.MULTILINE)
    if (found := block.search(text)) is None:
        raise ValueError("the fleet file has no model.service_time to replace")
    indent, model = found["indent"], found[0]
    model = model[: model.index(f"{indent}service_time:\n")]
    for name in settings:
        model = re.sub(rf"^{indent}{name}: .*\n", "", model, flags=re.MULTILINE)
    after = text[found.end() :]
    # A setting may stand below the service time, too, where the model's block goes on.
    rest = re.match(rf"(?:{indent}.*\n)*", after)
    below, after = (rest[0], after[rest.end() :]) if rest else ("", after)
    for name in settings:
        below = re.sub(rf"^{indent}{name}: .*\n", "", below, flags=re.MULTILINE)
    return text[: found.start()] + model + lines(settings, indent) + below + after


def lines(settings: Mapping[str, Any], indent: str = "  ") -> str:
    """Return settings as lines of a fleet file's model, one level deep."""
    written = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            written += [f"{indent}{name}:", *(f"{indent}  {key}: {json.dumps(each)}" for key, each in value.items())]
        else:
            written.append(f"{indent}{name}: {value if isinstance(value, str) else json.dumps(value)}")
    return "\n".join(written) + "\n"
