"""`peakplan`: every program of this project under one name. `peakplan COMMAND --help` describes each."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from peakplan.asking import ask, default_url, show_plan, show_trace
from peakplan.running import CHECKOUT, become, execute, need

# A module's own command line gets its words unread, --help included.
_PASS_ON: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
    "add_help_option": False,
}
# With its defaults the allocator returns big tensors to the system at every training step, a third of its time.
_TRAINING_ENVIRONMENT = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="peakplan", message="%(package)s %(version)s")
def main() -> None:
    """Turn a shopper's words into a retrieval plan in under 300 ms, and run the fleet that does it.

    \b
    A first session:
      peakplan serve                                        # in one terminal
      peakplan plan "nike running shoes under $100"         # in another
      peakplan trace "red dress for a wedding"              # how Medusa decoded it
      peakplan fleet cost prime-day                         # what a million plans cost

    \b
    Completion, for bash (zsh and fish likewise):
      eval "$(_PEAKPLAN_COMPLETE=bash_source peakplan)"

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
            "--history",
            multiple=True,
            metavar="WORDS",
            help="An earlier message; repeat for more, newest last.",
        ),
        click.argument("query"),
    ):
        command = decorate(command)
    return command


@main.command()
@_asks
@click.option("--deadline-ms", type=int, help="Time limit for the answer; default: 300, or 2000 with --local.")
def plan(
    query: str, history: tuple[str, ...], url: str | None, local: bool, as_json: bool, deadline_ms: int | None
) -> None:
    """Plan QUERY and print the plan.

    \b
    Examples:
      peakplan plan "nike running shoes under $100"
      peakplan plan "what about in red?" --history "nike running shoes under $100"
      peakplan plan "gift for a climber" --local

    PEAKPLAN_API_KEY, if set, is sent as the bearer token.
    """
    body: dict[str, Any] = {"query": query, "history": list(history)}
    if deadline_ms is not None or local:
        body["deadline_ms"] = deadline_ms or 2000
    answer = ask("/plan", body, url=url or default_url(), local=local)
    _print(answer, show_plan, as_json)


@main.command()
@_asks
def trace(query: str, history: tuple[str, ...], url: str | None, local: bool, as_json: bool) -> None:
    """Decode QUERY speculatively and greedily, and show the tokens of each forward pass.

    \b
    Example:
      peakplan trace "nike running shoes under $100" --local
    """
    body = {"query": query, "history": list(history)}
    _print(ask("/trace", body, url=url or default_url(), local=local), show_trace, as_json)


def _print(answer: dict[str, Any], show: Callable[[dict[str, Any]], str], as_json: bool) -> None:
    import json

    click.echo(json.dumps(answer, ensure_ascii=False) if as_json else show(answer))


def _passes_on(group: click.Group, name: str, module: str, extras: tuple[str, ...], text: str, *first: str) -> None:
    """Add a command to `group` that becomes `module`, with the words `first` before the user's."""

    @group.command(name, help=text, short_help=text.partition("\n")[0], **_PASS_ON)
    @click.pass_context
    def run(context: click.Context) -> None:
        need(*extras)
        trains = module in ("training.recipe", "training.own_data")
        become(module, [*first, *context.args], variables=_TRAINING_ENVIRONMENT if trains else None)


_passes_on(
    main,
    "bench",
    "benchmarks.decoding",
    ("service", "torch", "train"),
    "Measure the decoding strategies.",
)
_passes_on(main, "load", "rehearsal.load", ("service", "load"), "Send open-loop load to a service and write a report.")
_passes_on(
    main,
    "rehearse",
    "rehearsal.twin",
    ("service", "fleet", "load"),
    "Simulate a fleet's day, with every request and fault: run, search, validate.",
)
_passes_on(main, "train", "training.recipe", ("service", "torch", "train"), "Train a model: hours on a CPU.")
_passes_on(
    main, "finetune", "training.own_data", ("service", "torch", "train"), "Continue training a model on your own rows."
)
_passes_on(
    main,
    "outcomes-to-rows",
    "training.data.outcomes",
    ("service", "torch"),
    "Turn a log of outcomes into rows.",
)
_passes_on(main, "eval", "benchmarks.quality", ("service", "torch", "train"), "Measure the quality of a model's plans.")
_passes_on(main, "export", "service.weights", ("service", "torch"), "Write a model for vLLM, TGI or NxDI.", "export")
_passes_on(main, "import", "service.weights", ("service", "torch"), "Import a checkpoint and its heads.", "import")
_passes_on(
    main,
    "triton",
    "service.engines.triton",
    ("service", "triton"),
    "Start the configured Triton server.",
)
_passes_on(main, "compile", "service.engines.neuron", ("service",), "Compile a model for inf2 or trn1.", "compile")


@main.group()
def shop() -> None:
    """A shop's own catalogue: what the planner and the search engine should know of it.

    \b
    Examples:
      peakplan shop learn products.jsonl --output shops/mine
      PEAKPLAN_SHOP_DIR=shops/mine peakplan serve
      peakplan shop check mapping.yaml --products products.jsonl
    """


_passes_on(shop, "learn", "shops", ("service", "shop"), "Learn a shop folder from a catalogue.", "learn")
_passes_on(shop, "check", "shops", ("service", "shop"), "Name what of a mapping fits nothing.", "check")


@main.group()
def fleet() -> None:
    """The AWS fleet: FLEET is dev, prime-day, or the path of a YAML file.

    \b
    Examples:
      peakplan fleet check my-fleet.yaml
      peakplan fleet cost prime-day
      peakplan fleet synth dev          # CloudFormation into cdk.out, offline
      peakplan fleet preflight dev      # what the account lacks; needs AWS credentials, like all below
      peakplan fleet deploy dev         # docs/fleet.md has the steps
      peakplan fleet rollback dev       # every cell back to its previous release
      peakplan fleet cell out dev cell-1

    The fleet has not been deployed to a real AWS account yet.
    """


for _name, _text in {
    "check": "Validate a fleet file.",
    "cost": "Print a fleet's cost per hour and per million plans, with the arithmetic.",
    "vllm": "Print how to run a fleet's model with vLLM on its instances.",
    "schema": "Write the JSON Schema that editors use to validate fleet files.",
}.items():
    _passes_on(fleet, _name, "infra.fleet", ("fleet",), _text, _name)
_passes_on(
    fleet, "preflight", "infra.operations.preflight", ("fleet",), "Report what a fleet needs and the account lacks."
)
_passes_on(
    fleet,
    "rollback",
    "infra.operations.rollback",
    ("fleet",),
    "Return every cell to its previous release at once.",
)
_passes_on(
    fleet, "destroy", "infra.operations.teardown", ("fleet",), "Delete every stack of a fleet; say what is kept."
)
_passes_on(fleet, "drift", "infra.operations.drift", ("fleet",), "Say what was changed by hand since the last deploy.")
_passes_on(fleet, "cell", "infra.operations.cells", ("fleet",), "Move a cell out of service, and back in.")
_passes_on(
    fleet,
    "certificate",
    "infra.operations.certificate",
    ("fleet",),
    "Make or renew a certificate by your own authority.",
)
_passes_on(
    fleet,
    "access",
    "infra.operations.access",
    ("fleet",),
    "Connect the callers that the fleet file names: their endpoints and VPCs.",
)


# Without asserts: jsii would check every argument's type once more at run time, which is half of a synth, and mypy has.
_APP = "python -O app.py"


def _cdk() -> list[str]:
    """Return the path of the pinned CDK CLI. Raises ClickException where it is not installed."""
    need("cdk")
    command = CHECKOUT / "node_modules" / ".bin" / "cdk"
    if not command.exists():
        raise click.ClickException("the CDK CLI is not installed: `make synth` in the checkout installs it")
    return [str(command), "--no-notices"]


def _in_checkout(command: list[str]) -> None:
    """Run a command where cdk.json is, with the Node that Python's package brings: the machine needs none."""
    os.chdir(CHECKOUT)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    execute(command, variables={"PATH": path, "CDK_DISABLE_CLI_TELEMETRY": "true"})


def _fleet_file(name: str) -> str:
    """Make the path of a fleet file or a trace absolute, so that it stays valid in another working directory."""
    return str(Path(name).absolute()) if name.endswith((".yaml", ".yml", ".csv")) else name


@fleet.command(context_settings=_PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET")
@click.pass_context
def synth(context: click.Context, fleet_name: str) -> None:
    """Write the fleet's CloudFormation into cdk.out: offline, no account."""
    offline = ["synth", "--app", _APP, "--quiet", "--no-lookups"]
    _in_checkout([*_cdk(), *offline, "--context", f"fleet={_fleet_file(fleet_name)}", *context.args])


@fleet.command(context_settings=_PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET")
@click.pass_context
def diff(context: click.Context, fleet_name: str) -> None:
    """Show what a deploy would change. Needs AWS credentials."""
    context_of_fleet = ["--context", f"fleet={_fleet_file(fleet_name)}"]
    _in_checkout([*_cdk(), "diff", "--app", _APP, *context_of_fleet, *context.args])


@fleet.command(context_settings=_PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET")
@click.pass_context
def bootstrap(context: click.Context, fleet_name: str) -> None:
    """Prepare an empty account and region for the fleet. Needs AWS credentials."""
    _with_cdk("bootstrap", fleet_name, *context.args)


@fleet.command(context_settings=_PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET")
@click.pass_context
def bake(context: click.Context, fleet_name: str) -> None:
    """Bake a release: a machine image of this checkout. Needs AWS credentials."""
    _with_cdk("baking", fleet_name, *context.args)


@fleet.command(context_settings=_PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET")
@click.pass_context
def deploy(context: click.Context, fleet_name: str) -> None:
    """Rehearse the fleet, then deploy the newest release cell by cell, stopping if one is harmed.

    Needs AWS credentials. --force "reason" deploys a fleet that fails its rehearsal; the reason is logged.
    """
    need("service", "fleet", "load")  # the rehearsal's
    _with_cdk("rollout", fleet_name, *map(_fleet_file, context.args))


def _with_cdk(module: str, fleet_name: str, *words: str) -> None:
    """Run a module of infra/operations that calls the CDK CLI."""
    line = [_fleet_file(fleet_name), *words, "--", *_cdk()]
    _in_checkout([sys.executable, "-m", f"infra.operations.{module}", *line])


if __name__ == "__main__":
    main(prog_name="peakplan")
