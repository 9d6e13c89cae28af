"""Write the figures of docs/figures and the service's settings into the documents that show them.

`--check` fails where one is stale.

A block starts with a line `<!-- figure: NAME -->` and ends with `<!-- end of figure -->`.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from rehearsal.bench.conversations import render_conversations
from rehearsal.bench.kinds_table import render_kinds
from rehearsal.bench.peers.table import render_peers
from rehearsal.bench.serving_tables import (
    provenance,
    render_neighbour,
    render_neuron_loop,
    render_passed,
    render_question_cost,
    render_routing,
    render_scaling,
    render_serving,
    render_triton,
    render_turns,
)
from rehearsal.bench.vllm.table import render_vllm
from rehearsal.tools.answers_table import render_answers, render_rated
from rehearsal.tools.architectures_table import table as architectures_table
from rehearsal.tools.cost_table import at_full_use, ordinary_peak, planner_sizes, routing, seed_fleet
from rehearsal.tools.first_answer import render as render_first_answer
from rehearsal.tools.gallery import render as render_gallery
from rehearsal.tools.licences import table as licence_table
from rehearsal.tools.omission_table import render_omission
from rehearsal.tools.outcomes_table import render_interleaving, render_outcomes, render_value_speed
from rehearsal.tools.quality_tables import FIGURES, behaviour_classes, render_precision, render_quality
from rehearsal.tools.rehearsals_table import render_rehearsals
from rehearsal.tools.retrieval_table import render_retrieval
from rehearsal.tools.siege_table import render_siege
from rehearsal.tools.stack_table import render_balancer, render_stack
from rehearsal.tools.wheels import render_wheels
from service.environment import Variable, variables
from service.settings import Settings

README = Path("README.md")
DOCS = Path("docs")
COMMON_SETTINGS = (
    "HOST",
    "PORT",
    "PEAKPLAN_MODEL_DIR",
    "PEAKPLAN_ENGINE",
    "PEAKPLAN_REPLICAS",
    "PEAKPLAN_CACHE_URL",
    "PEAKPLAN_API_KEYS_FILE",
    "PEAKPLAN_FLEET",
)
_BLOCK = re.compile(r"(<!-- figure: (\w+) -->\n).*?(<!-- end of figure -->)", re.DOTALL)


def render_decoding(figure: dict[str, Any]) -> str:
    """Return the table of the machine that the plot beside it is of, the last that `make bench` ran on."""
    name = figure["plotted"]
    return _machines({name: {**figure["machines"][name], "breakdown": None}})


def every_decoding() -> str:
    """Return the tables of the machines that README.md does not show, and what a plan's time is spent on."""
    figure: dict[str, Any] = json.loads((FIGURES / "decoding.json").read_text(encoding="utf-8"))
    others = {name: one for name, one in figure["machines"].items() if name != figure["plotted"]}
    plotted = "\n".join(_breakdown(figure["machines"][figure["plotted"]]))
    return f"**{figure['plotted']}** (strategies: README.md)\n\n{plotted}\n{_machines(others)}"


def _machines(machines: dict[str, dict[str, Any]]) -> str:
    return "\n\n".join(f"**{name}**\n\n{_decoding(one)}" for name, one in machines.items())


def _decoding(figure: dict[str, Any]) -> str:
    """Return the table of strategies and Medusa's speed-up."""
    medusa, service = figure["medusa"], figure["service"]
    rows = [
        "| strategy | p50 ms | p99 ms | forwards per plan | tokens per forward | Medusa speedup |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, row in figure["strategies"].items():
        gain = medusa["speedup_p50"].get(name)
        rows.append(
            f"| {name} | {row['p50_ms']} | {row['p99_ms']} | {row['forwards']} | {row['tokens_per_forward']} "
            f"| {'' if gain is None else f'{gain}x'} |"
        )
    one, two = service["concurrency_1"], service["concurrency_2"]
    return "\n".join(
        [
            *rows,
            "",
            f"Medusa needs {medusa['forwards_share_of_greedy']:.0%} of the forward passes of greedy with fast-forward, "
            f"and {medusa['identical_to_greedy']:.1%} of its plans are token-for-token identical in {figure['dtype']}. "
            f"Over HTTP, p50 is {one['p50_ms']} ms and p99 {one['p99_ms']} ms with one request at a time; "
            f"p99 is {two['p99_ms']} ms with two. A replica uses {service['replica_rss_mb']} MB of memory.",
            "",
            *_breakdown(figure),
            provenance(
                figure,
                f"{figure['questions']['count']} questions ({figure['questions']['from']}), {figure['threads']} thread",
            ),
        ]
    )


def _breakdown(figure: dict[str, Any]) -> list[str]:
    """Return the breakdown of a plan's time, where the figure has it."""
    if (breakdown := figure.get("breakdown")) is None:
        return []
    columns = {
        "prompt_forward_ms": "prompt's forward",
        "other_forwards_ms": "other forwards",
        "drafting_ms": "drafting",
        "verifying_ms": "verifying",
        "grammar_and_rest_ms": "grammar, rest",
        "prompt_rows": "rows in the prompt's forward",
        "rows_an_other_forward": "rows in each other forward",
    }
    rows = [f"| mean ms per plan | {' | '.join(columns.values())} |", "|---|" + "---:|" * len(columns)]
    rows += [f"| {name} | {' | '.join(str(row[key]) for key in columns)} |" for name, row in breakdown.items()]
    return [*rows, ""]


def settings_table(names: Sequence[str] = ()) -> str:
    """Return the settings of these names as a table; README.md shows those that most people set."""
    by_name = {variable.name: variable for variable in variables(Settings)}
    return "\n".join([*_SETTINGS_HEAD, *(_setting(by_name[name]) for name in names)])


def every_setting() -> str:
    """Return all environment variables of the service by group."""
    lines = ["## General", "", *_SETTINGS_HEAD]
    lines += [_setting(variable) for variable in variables(Settings) if len(variable.path) == 1]
    for name, field in Settings.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            continue
        purpose = (field.annotation.__doc__ or "").partition("\n")[0]
        lines += ["", f"## {name}", "", purpose, "", *_SETTINGS_HEAD]
        lines += [_setting(variable) for variable in variables(Settings) if variable.path[0] == name]
    return "\n".join(lines)


def decisions() -> str:
    """Return the list of docs/decisions, by number."""
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    headings = [(page.name, page.read_text(encoding="utf-8").partition("\n")[0]) for page in pages]
    return "\n".join(f"- [{heading.removeprefix('# ')}]({name})" for name, heading in headings)


_SETTINGS_HEAD = ("| variable | default | what |", "|---|---|---|")


def _setting(variable: Variable) -> str:
    return f"| `{variable.name}` | {_default(variable.field.default)} | {variable.field.description} |"


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "`~/.cache/peakplan`"
    if isinstance(value, Path):
        return f"`{value.relative_to(Path(__file__).parents[2])}`"
    if isinstance(value, bool):
        return str(int(value))
    return "" if value in (None, "") or isinstance(value, SecretStr) else f"`{value}`"


def measured(name: str, command: str, render: Callable[[dict[str, Any]], str]) -> str:
    """Return the table of a figure that takes minutes of a machine that does nothing else, once there is one."""
    path = FIGURES / f"{name}.json"
    if not path.is_file():
        return f"`{command}` has not been run on this tree yet."
    return render(json.loads(path.read_text(encoding="utf-8")))


RENDERERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "conversations": render_conversations,
    "decoding": render_decoding,
    "first_answer": render_first_answer,
    "gallery": render_gallery,
    "kinds": render_kinds,
    "neuron_loop": render_neuron_loop,
    "neuron_graphs": render_neuron_loop,
    "peers": render_peers,
    "quality": render_quality,
    "scaling": render_scaling,
    "question_cost": render_question_cost,
    "rehearsals": render_rehearsals,
    "retrieval": render_retrieval,
    "serving": render_serving,
    "triton": render_triton,
}


TABLES: dict[str, Callable[[], str]] = {
    "licences": licence_table,
    "architectures": architectures_table,
    "siege": lambda: measured("siege", "make siege", render_siege),
    "precision": lambda: measured("precision", "peakplan bench precisions", render_precision),
    "turns": lambda: measured("turns", "python -m rehearsal.bench.breakdown", render_turns),
    "neighbour": lambda: measured("neighbour", "peakplan bench neighbour", render_neighbour),
    "settings": lambda: settings_table(COMMON_SETTINGS),
    "every_setting": every_setting,
    "decisions": decisions,
    "every_decoding": every_decoding,
    "behaviour_classes": behaviour_classes,
    "ordinary_peak": ordinary_peak,
    "at_full_use": at_full_use,
    "planner_sizes": planner_sizes,
    "seed_fleet": seed_fleet,
    "routing_bill": routing,
    "answers": lambda: measured("answers", "peakplan bench answers", render_answers),
    "rated": lambda: measured("rated", "python -m rehearsal.rated", render_rated),
    "outcomes_load": lambda: measured("outcomes_load", "python -m rehearsal.outcomes", render_outcomes),
    "value_speed": lambda: measured("value_speed", "python -m rehearsal.bench.value_speed", render_value_speed),
    "interleaving": lambda: measured("interleaving", "python -m rehearsal.interleaving", render_interleaving),
    "routing": lambda: measured("routing", "python -m rehearsal.bench.routing", render_routing),
    "vllm": lambda: measured("vllm", "peakplan bench vllm", render_vllm),
    "omission": lambda: measured("omission", "peakplan bench omission", render_omission),
    "balancer": lambda: measured("balancer", "python -m rehearsal.stack.overhead", render_balancer),
    "stack": lambda: measured("stack", "peakplan rehearse live", render_stack),
    "wheels": lambda: measured("wheels", "python -m rehearsal.tools.wheels", render_wheels),
    "passed": lambda: measured("passed", "peakplan bench passed rehearsal/bench/cases/*.jsonl", render_passed),
}


def rewrite(text: str, figures: Path = FIGURES) -> str:
    """Return a document with every block rewritten. Raises FileNotFoundError or KeyError for a missing figure."""

    def block(match: re.Match[str]) -> str:
        name = match.group(2)
        if name in TABLES:
            return f"{match.group(1)}{TABLES[name]()}\n{match.group(3)}"
        figure = json.loads((figures / f"{name}.json").read_text(encoding="utf-8"))
        return f"{match.group(1)}{RENDERERS[name](figure)}\n{match.group(3)}"

    return _BLOCK.sub(block, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a document is stale")
    arguments = parser.parse_args()
    for document in (README, *sorted(DOCS.rglob("*.md"))):
        current = document.read_text(encoding="utf-8")
        wanted = rewrite(current)
        if current == wanted:
            continue
        if arguments.check:
            sys.exit(
                f"{document} does not show its figures or settings as they are: run `python -m rehearsal.tools.readme`"
            )
        document.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
