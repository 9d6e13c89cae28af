"""`peakplan bench neuron-day`: run every part in order, write the figure, and say what to put into the fleet file.

    machine   the host
    compile   seconds, bytes and lengths of each graph: by rows of a step, plans together, NeuronCores
    order     the device's tokens beside those of a CPU, and beside its own greedy ones
    steps     milliseconds of a step, and of a prompt by the length compiled for, by graph
    plans     forwards, milliseconds and plans a second of a core, plain and with Medusa, by graph
    triton    whether a Triton stub can host a replica: libnrt beside the stubs' numpy; seconds to its first plan
    boot      the same without Triton, on the graph that is advised

Graphs that read trees come first; where none of them plans, the day begins again with NxDI's plain graph, which reads a
chain. on-host.sh finds which rights the runtime needs and how long cores stay taken; parts wait for them, too. A part
that fails is written down with its reason, and the next is tried. Run again, it goes on: what has a result is not
measured twice (`--again` does). Not run on hardware.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.fleet.instances import catalogue
from rehearsal.bench.machine import write_figure
from rehearsal.bench.neuron_day.day import (
    BATCHES,
    BOOT_SECONDS,
    KINDS,
    ROWS,
    Day,
    Graph,
    boot,
    graphs,
    keep,
    result_file,
    run_task,
    tasks,
    with_free_cores,
)
from service.settings import Settings

# A replica's slowest plans may take so much of the SLO: the rest is for the line before it (infra/fleet/sizing.py).
OF_THE_SLO = 0.5
# What NeuronCores may take to become free, and so the fleet file's lost_replica_seconds at the least.
CORES_SECONDS = 300
OUTPUT = Path(__file__).parents[3] / "docs" / "figures" / "neuron_day.json"
DEVICES = Path("/dev")


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


def lines(settings: Mapping[str, Any], indent: str = "  ") -> str:
    """Return settings as lines of a fleet file's model, one level deep."""
    written = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            written += [f"{indent}{name}:", *(f"{indent}  {key}: {json.dumps(each)}" for key, each in value.items())]
        else:
            written.append(f"{indent}{name}: {value if isinstance(value, str) else json.dumps(value)}")
    return "\n".join(written) + "\n"


def run(day: Day, python: Sequence[str], cores: int, given: argparse.Namespace) -> dict[str, Any]:
    """Run every part, each after the process of the one before has ended; return the figures."""
    waited = [given.cores_waited]
    found: dict[str, Any] = {"command": "peakplan bench neuron-day", "chip": day.chip}

    def said(name: str, part: str, graph: Graph | None, result: dict[str, Any]) -> None:
        found.setdefault(part, {}) if graph else None
        (found[part] if graph else found)[graph.name if graph else part] = result
        waited.append(result.get("waited_seconds", 0))
        print(name, json.dumps(result), flush=True)

    for kind in KINDS:
        day = day.of_kind(kind)
        for task in tasks(day):
            said(task.name, task.part, task.graph, run_task(day, task, python, given.cores_seconds))
        if (chosen := best(day.graphs, found["plans"], given.slo_ms)) is not None:
            break
        print(f"no graph that reads a {kind} plans here", flush=True)
    for part, engine in (("triton", "triton"), ("boot", "neuron")):
        graph = chosen[0] if chosen and engine == "neuron" else day.graphs[0]  # Triton decodes one plan at a time
        said(part, part, None, _booted(day, graph, engine, max(1, cores // graph.cores), given))
    if chosen:
        today = datetime.now(UTC).date()
        source = (
            f"measured: peakplan bench neuron-day on {day.chip}, {today}, a replica of {chosen[0].cores} NeuronCore(s)"
        )
        found["deploy"] = model_settings(found, *chosen, source) | host_settings(given.device_rights, max(waited))
    return found


def _booted(day: Day, graph: Graph, engine: str, replicas: int, given: argparse.Namespace) -> dict[str, Any]:
    name = f"{engine}:{graph.name}"
    if (known := keep(day, name)) is not None:
        return known
    if engine == "triton" and Settings().triton.home is None:
        return {"skipped": "there is no Triton here; the service's image has one"}

    def attempt() -> dict[str, Any]:
        try:
            return boot(day, graph, engine, replicas, given.boot_seconds)
        except Exception as error:  # the next part may say something all the same
            return {"failed": f"{type(error).__name__}: {error}"}

    found = with_free_cores(attempt, given.cores_seconds)
    return keep(day, name, found) or found


def _has_failed(found: dict[str, Any]) -> bool:
    return any(
        isinstance(part, dict)
        and ("failed" in part or any("failed" in each for each in part.values() if isinstance(each, dict)))
        for part in found.values()
    )


def _parser(settings: Settings) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal.bench.neuron_day", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", type=Path, default=settings.model_dir)
    parser.add_argument(
        "--chip", choices=[chip for chip in catalogue().tensor_parallel if chip != "cpu"], default="inf2"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/neuron-day"), help="keeps artifacts, results and logs"
    )
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--steps", type=int, default=200, help="steps of each graph that are timed")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="rows of a step; 0: the tree's own")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES), help="plans decoded together")
    parser.add_argument("--cores", type=int, nargs="+", default=[1], help="NeuronCores that a replica spans")
    parser.add_argument("--weight-layout", action="store_true", help="let the compiler choose the weights' layout")
    parser.add_argument("--device-rights", choices=["none", "memory", "aws"], default="", help=argparse.SUPPRESS)
    parser.add_argument("--cores-waited", type=float, default=0, help=argparse.SUPPRESS)
    parser.add_argument(
        "--cores-seconds", type=float, default=CORES_SECONDS, help="how long a part waits for cores that are taken"
    )
    parser.add_argument("--slo-ms", type=float, default=300, help="the promise that a choice has to leave room for")
    parser.add_argument("--boot-seconds", type=float, default=BOOT_SECONDS, help="what a boot may take")
    parser.add_argument("--again", action="store_true", help="forget results, and keep what was compiled")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Measure and write; return 1 where a part failed."""
    settings = Settings()
    arguments = _parser(settings).parse_args(words)
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    compared = graphs(
        tuple(arguments.rows), tuple(arguments.batches), tuple(arguments.cores), layout=arguments.weight_layout
    )
    day = Day(
        arguments.model.absolute(), settings.cache_dir.absolute(), folder, arguments.chip, arguments.questions,
        arguments.steps, compared,
    )  # fmt: skip
    if arguments.again:
        for file in result_file(day, "any").parent.glob(f"{day.chip}-*.json"):
            file.unlink()
    python = str(settings.replica_python or sys.executable)
    chips = len(list(DEVICES.glob("neuron[0-9]*")))
    found = run(
        day,
        [python],
        max(1, chips * catalogue().cores_per_chip[arguments.chip]),
        arguments,
    )
    write_figure(arguments.output, found)
    if "deploy" in found:
        print(f"\nTo be put into the fleet file:\n\nmodel:\n{lines(found['deploy'])}")
    return int("deploy" not in found or _has_failed(found))


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
