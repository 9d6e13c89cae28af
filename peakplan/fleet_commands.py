"""`peakplan fleet`: the commands of the AWS fleet."""

import os
import sys
from pathlib import Path

import click

from peakplan.environment import have
from peakplan.passing import PASS_ON, fleets, passes_on
from peakplan.running import CHECKOUT, execute, must_be_here, need


@click.group()
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
    passes_on(fleet, _name, "infra.fleet", ("fleet",), _text, _name)
passes_on(
    fleet, "preflight", "infra.operations.preflight", ("fleet",), "Report what a fleet needs and the account lacks."
)
passes_on(
    fleet, "rollback", "infra.operations.rollback", ("fleet",), "Return every cell to its previous release at once."
)
passes_on(fleet, "destroy", "infra.operations.teardown", ("fleet",), "Delete every stack of a fleet; say what is kept.")
passes_on(fleet, "drift", "infra.operations.drift", ("fleet",), "Say what was changed by hand since the last deploy.")
passes_on(fleet, "cell", "infra.operations.cells", ("fleet",), "Move a cell out of service, and back in.")
passes_on(
    fleet,
    "certificate",
    "infra.operations.certificate",
    ("fleet",),
    "Make or renew a certificate by your own authority.",
)
passes_on(
    fleet,
    "access",
    "infra.operations.access",
    ("fleet",),
    "Connect the callers that the fleet file names: their endpoints and VPCs.",
)


# Without asserts: jsii would check every argument's type once more at run time, which is half of a synth, and mypy has.
_APP = "python -O app.py"


def _cdk() -> list[str]:
    """Return the path of the pinned CDK CLI, which is installed where it is not there yet."""
    must_be_here("infra")
    need("cdk")
    command = CHECKOUT / "node_modules" / ".bin" / "cdk"
    if not command.exists():
        have("cdk")
    return [str(command), "--no-notices"]


def _in_checkout(command: list[str]) -> None:
    """Run a command where cdk.json is, with the Node that Python's package brings: the machine needs none."""
    os.chdir(CHECKOUT)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    execute(command, variables={"PATH": path, "CDK_DISABLE_CLI_TELEMETRY": "true"})


def _fleet_file(name: str) -> str:
    """Make the path of a fleet file or a trace absolute, so that it stays valid in another working directory."""
    return str(Path(name).absolute()) if name.endswith((".yaml", ".yml", ".csv")) else name


@fleet.command(context_settings=PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET", shell_complete=fleets)
@click.pass_context
def synth(context: click.Context, fleet_name: str) -> None:
    """Write the fleet's CloudFormation into cdk.out: offline, no account."""
    offline = ["synth", "--app", _APP, "--quiet", "--no-lookups"]
    _in_checkout([*_cdk(), *offline, "--context", f"fleet={_fleet_file(fleet_name)}", *context.args])


@fleet.command(context_settings=PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET", shell_complete=fleets)
@click.pass_context
def diff(context: click.Context, fleet_name: str) -> None:
    """Show what a deploy would change. Needs AWS credentials."""
    context_of_fleet = ["--context", f"fleet={_fleet_file(fleet_name)}"]
    _in_checkout([*_cdk(), "diff", "--app", _APP, *context_of_fleet, *context.args])


@fleet.command(context_settings=PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET", shell_complete=fleets)
@click.pass_context
def bootstrap(context: click.Context, fleet_name: str) -> None:
    """Prepare an empty account and region for the fleet. Needs AWS credentials."""
    _with_cdk("bootstrap", fleet_name, *context.args)


@fleet.command(context_settings=PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET", shell_complete=fleets)
@click.pass_context
def bake(context: click.Context, fleet_name: str) -> None:
    """Bake a release: a machine image of this checkout. Needs AWS credentials."""
    _with_cdk("baking", fleet_name, *context.args)


@fleet.command(context_settings=PASS_ON["context_settings"])
@click.argument("fleet_name", metavar="FLEET", shell_complete=fleets)
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
