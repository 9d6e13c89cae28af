"""`peakplan`: every program of this project under one name. `peakplan COMMAND --help` describes each."""

import os
from collections.abc import Callable
from typing import IO, Any

import click

from peakplan.asking import ask, default_url, plan_file, show_plan, show_trace
from peakplan.bench_commands import bench, rehearse, tools
from peakplan.doctor import report
from peakplan.fleet_commands import fleet
from peakplan.passing import PASS_ON, TRAINING_ENVIRONMENT, Passing, passes_on
from peakplan.running import become, must_be_here, need


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="peakplan", message="%(package)s %(version)s")
def main() -> None:
    """Turn a shopper's words into a retrieval plan in under 300 ms, and run the fleet that does it.

    \b
    A first session:
      peakplan serve                                        # in one terminal
      peakplan plan 'nike running shoes under $100'         # in another
      peakplan trace "red dress for a wedding"              # how Medusa decoded it
      peakplan fleet cost prime-day                         # what a million plans cost

    \b
    Completion, for bash (zsh and fish likewise), and what this machine lacks:
      eval "$(peakplan completion bash)"
      peakplan doctor

    Settings are environment variables: docs/settings.md lists them all.
    """


@main.command()
@click.option("--host", metavar="ADDRESS", help="Address to listen on; default: HOST, else 127.0.0.1.")
@click.option(
    "--port",
    metavar="NUMBER",
    type=click.IntRange(0, 65535),
    help="Port to listen on; default: PORT, else 8080; 0 picks a free one.",
)
@click.option("--model", metavar="FOLDER", type=click.Path(exists=True, file_okay=False), help="The model to serve.")
@click.option("--engine", type=click.Choice(["torch", "neuron", "triton", "openai"]), help="What runs the model.")
@click.option("--strategy", type=click.Choice(["medusa", "draft", "autoregressive"]), help="Decoding strategy.")
@click.option(
    "--replicas",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    help="Copies of the model; 0 starts as many as the cores can run.",
)
def serve(**options: str | int | None) -> None:
    """Serve POST /plan and the web page until SIGTERM.

    \b
    Examples:
      peakplan serve --port 9000
      PEAKPLAN_CACHE_URL=redis://127.0.0.1:6379 peakplan serve --replicas 2

    An option here overrides its environment variable (PEAKPLAN_HOST, PEAKPLAN_MODEL_DIR, ...).
    """
    engine = str(options["engine"] or os.environ.get("PEAKPLAN_ENGINE", "torch"))
    need("service", *(extra for extra in ("torch", "triton") if extra == engine))
    names = {"model": "MODEL_DIR"}
    given = {
        f"PEAKPLAN_{names.get(key, key.upper())}": str(value) for key, value in options.items() if value is not None
    }
    become("service", variables=given)


def _asks(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of a command that asks one question."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print the whole answer as one line of JSON."),
        click.option("--local", is_flag=True, help="Load the model for this question instead of calling a service."),
        click.option("--url", help="The service to call; default: the one that `peakplan serve` starts here."),
        click.option(
            "--history", multiple=True, metavar="WORDS", help="An earlier message; repeat for more, newest last."
        ),
        click.argument("query", required=command.__name__ != "plan"),
    ):
        command = decorate(command)
    return command


@main.command()
@_asks
@click.option("--deadline-ms", type=int, help="Time limit for the answer; default: 300, or 2000 with --local.")
@click.option(
    "--file",
    type=click.File(encoding="utf-8"),
    help="Plan every line of a file instead, JSON strings or objects, and print lines of JSON; -: standard input.",
)
def plan(
    query: str | None,
    history: tuple[str, ...],
    url: str | None,
    local: bool,
    as_json: bool,
    deadline_ms: int | None,
    file: IO[str] | None,
) -> None:
    """Plan QUERY and print the plan.

    \b
    Examples:
      peakplan plan 'nike running shoes under $100'
      peakplan plan "what about in red?" --history 'nike running shoes under $100'
      peakplan plan "gift for a climber" --local
      peakplan plan --file questions.jsonl > plans.jsonl     # in batches, while no shopper needs a replica

    PEAKPLAN_API_KEY, if set, is sent as the bearer token.
    """
    if (query is None) == (file is None):
        raise click.UsageError("give either a QUERY or --file")
    if file is not None:
        if local:
            raise click.UsageError("--file needs a running service (`peakplan serve`), so it does not go with --local")
        return plan_file(file, url=url or default_url(), deadline_ms=deadline_ms, history=history)
    body: dict[str, Any] = {"query": query, "history": list(history)}
    if deadline_ms is not None or local:
        body["deadline_ms"] = deadline_ms or 2000
    answer = ask("/plan", body, url=url or default_url(), local=local)
    return _print(answer, show_plan, as_json)


@main.command()
@_asks
def trace(query: str, history: tuple[str, ...], url: str | None, local: bool, as_json: bool) -> None:
    """Decode QUERY speculatively and greedily, and show the tokens of each forward pass.

    \b
    Example:
      peakplan trace 'nike running shoes under $100' --local
    """
    body = {"query": query, "history": list(history)}
    _print(ask("/trace", body, url=url or default_url(), local=local), show_trace, as_json)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """Say what this machine has: packages, kernel, base weights, port; what it lacks, and how to get that."""
    report(as_json=as_json)


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete this command's words.

    \b
    Examples:
      eval "$(peakplan completion bash)"        # in ~/.bashrc
      eval "$(peakplan completion zsh)"         # in ~/.zshrc
      peakplan completion fish > ~/.config/fish/completions/peakplan.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None  # of click's own three
    click.echo(found(main, {}, "peakplan", "_PEAKPLAN_COMPLETE").source())


def _print(answer: dict[str, Any], show: Callable[[dict[str, Any]], str], as_json: bool) -> None:
    import json

    click.echo(json.dumps(answer, ensure_ascii=False) if as_json else show(answer))


passes_on(main, "load", "rehearsal.load", ("service", "load"), "Send open-loop load to a service and write a report.")
passes_on(main, "train", "training.recipe", ("service", "torch", "train"), "Train a model: hours on a CPU.")


@main.command(cls=Passing, module="training.own_check", **PASS_ON)
@click.pass_context
def finetune(context: click.Context) -> None:
    """Continue training a model on your own rows."""
    must_be_here("training")
    if {"-h", "--help", "--check"} & set(context.args):  # needs nothing that trains
        need("service")
        become("training.own_check", context.args)
    need("service", "torch", "train")
    become("training.own_data", context.args, variables=TRAINING_ENVIRONMENT)


passes_on(main, "outcomes-to-rows", "training.data.outcomes", ("service", "torch"), "Turn a log of outcomes into rows.")
passes_on(main, "value", "peakplan.value", ("value",), "Report what came of plans, by release and by arm of a test.")
passes_on(
    main, "eval", "rehearsal.bench.quality", ("service", "torch", "train"), "Measure the quality of a model's plans."
)
passes_on(main, "export", "service.weights", ("service", "torch"), "Write a model for vLLM, TGI or NxDI.", "export")
passes_on(main, "import", "service.weights", ("service", "torch"), "Import a checkpoint and its heads.", "import")
passes_on(main, "triton", "service.engines.triton", ("service", "triton"), "Start the configured Triton server.")
passes_on(main, "compile", "service.engines.neuron", ("service",), "Compile a model for inf2 or trn1.", "compile")


@main.group()
def shop() -> None:
    """A shop's own catalogue: what the planner and the search engine should know of it.

    \b
    Examples:
      peakplan shop learn products.jsonl --output shops/mine
      PEAKPLAN_SHOP_DIR=shops/mine peakplan serve
      peakplan shop check mapping.yaml --products products.jsonl
      peakplan shop evaluate judged.tsv --products products.jsonl --shop shops/mine --output found
    """


passes_on(shop, "learn", "peakplan.shop", ("service", "shop"), "Learn a shop folder from a catalogue.", "learn")
passes_on(shop, "check", "peakplan.shop", ("service", "shop"), "Name what of a mapping fits nothing.", "check")
passes_on(
    shop,
    "evaluate",
    "peakplan.shop",
    ("service", "torch", "shop"),
    "Measure what searches find, with your judgements.",
    "evaluate",
)


for _group in (fleet, bench, rehearse, tools):
    main.add_command(_group)


if __name__ == "__main__":
    main(prog_name="peakplan")
