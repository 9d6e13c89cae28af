"""`make event-load FLEET=...`: a load test of a deployed fleet, from its plan to its removal. Not run in AWS.

plan    writes the stack of its workers into runs/event-load/FLEET, and says what it sends and costs at most
deploy  deploys that stack, in the fleet's region and account; it loads nothing yet
start   begins the load a minute later, unless an alarm of harm is on or an event is near
stop    ends it: what is sent already is at most the minute that runs
remove  deletes the stack
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.fleet.cost import Prices
from infra.fleet.event_load import MINUTE, SETTLING_MINUTES, EventLoad, EventLoadError, read_curve
from infra.fleet.event_load_file import CallerNetwork, check_identity, read, write
from infra.fleet.settings import FleetSettings
from infra.fleet.sizing import peak_multiplier
from infra.operations.command import Clients, Told, fleet_parser, operate
from infra.operations.command_lines import Call, deploy_line, synthesis

FOLDER = Path("runs") / "event-load"
MOST_DOLLARS = 500.0
STACK = "Load"


def planned(settings: FleetSettings, given: argparse.Namespace) -> tuple[EventLoad, CallerNetwork]:
    """Return the load that the command line asks for. Raises EventLoadError, also where it may cost too much."""
    events = {event.name: event.multiplier for event in settings.events}
    if given.event and given.event not in events:
        raise EventLoadError(f"{given.event}: no event of {settings.name}; it has {', '.join(events) or 'none'}")
    load = EventLoad(
        settings,
        multiplier=events.get(given.event) or peak_multiplier(settings),
        share=given.peak,
        minutes=given.minutes,
        fresh=given.fresh,
        caller=given.caller,
        curve=read_curve(given.curve, given.minutes) if given.curve else (),
    )
    network = CallerNetwork(given.vpc, tuple(filter(None, given.subnets.split(","))), given.authority, given.identity)
    check_identity(settings, network)
    bound = load.bound(Prices.from_json())
    if bound.total > given.dollars:
        raise EventLoadError(
            f"at most {bound.total:,.0f} dollars, of which {bound.fleet:,.0f} for the fleet's own hosts: allow it with "
            f"DOLLARS={bound.total + 1:.0f}, or lower PEAK or MINUTES"
        )
    return load, network


def said(load: EventLoad) -> str:
    """Return what a load sends and costs, for the operator."""
    bound = load.bound(Prices.from_json())
    return "\n".join(
        [
            f"{load.url} for {load.minutes} minutes, up to {max(load.rates):,.0f} plans a second by "
            f"{load.workers} workers",
            f"at most {bound.workers:.2f} dollars for them, and {bound.fleet:,.2f} for hosts that the fleet starts "
            f"within {load.minutes} + {SETTLING_MINUTES} minutes",
            f"it ends by itself where {', '.join(load.harm)} fires in any cell, and at the latest "
            f"{load.timeout_seconds // MINUTE} minutes after its start",
        ]
    )


def _numbers(load: EventLoad) -> dict[str, float]:
    """Return what `said` says, for programs."""
    bound = load.bound(Prices.from_json())
    dollars = {"workers_dollars": bound.workers, "fleet_dollars": bound.fleet}
    return {"minutes": load.minutes, "plans_a_second": max(load.rates), "workers": load.workers, **dollars}


def start(load: EventLoad, clients: Clients, now: datetime) -> str:
    """Start the load; return the execution's ARN. Raises EventLoadError where it must not begin."""
    load.refuse_near_an_event(now)
    found = clients("cloudwatch").describe_alarms(
        AlarmNames=load.alarms, AlarmTypes=["CompositeAlarm", "MetricAlarm"], StateValue="ALARM"
    )
    if fired := [each["AlarmName"] for kind in ("MetricAlarms", "CompositeAlarms") for each in found.get(kind, [])]:
        raise EventLoadError(f"{', '.join(fired)} is on: see to it first")
    states, machine = clients("stepfunctions"), _machine(load.settings, clients)
    if running := _running(machine, states):
        raise EventLoadError(f"{running[0]} runs already: `make event-load DO=stop` ends it")
    name = f"load-{now:%Y%m%dT%H%M%SZ}"
    started = states.start_execution(stateMachineArn=machine, name=name, input=json.dumps(load.input(now)))
    return str(started["executionArn"])


def stop(settings: FleetSettings, clients: Clients) -> list[str]:
    """End every load that runs; return their ARNs. What has been started sends its minute to the end."""
    states = clients("stepfunctions")
    running = _running(_machine(settings, clients), states)
    for execution in running:
        states.stop_execution(executionArn=execution, error="Stopped", cause="by an operator")
    return running


def _machine(settings: FleetSettings, clients: Clients) -> str:
    account = clients("sts").get_caller_identity()
    partition = account["Arn"].split(":")[1]
    name = f"peakplan-{settings.name}-load"
    return f"arn:{partition}:states:{settings.region}:{account['Account']}:stateMachine:{name}"


def _running(machine: str, states: Any) -> list[str]:
    try:
        found = states.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]
    except states.exceptions.StateMachineDoesNotExist as error:
        raise EventLoadError("there is nothing to start or stop: `make event-load DO=deploy` first") from error
    return [str(each["executionArn"]) for each in found]


def _call(line: list[str]) -> int:
    return subprocess.run(line, check=False).returncode


def _act(settings: FleetSettings, clients: Clients, given: argparse.Namespace, call: Call) -> Told:
    folder = FOLDER / settings.name
    file, assembly = folder / "load.json", folder / "cdk.out"
    if given.do == "plan":
        load, network = planned(settings, given)
        write(file, load, network)
        line = [
            *synthesis(given.fleet, given.cdk, str(assembly)),
            "--context",
            f"load={file.absolute()}",
            "--no-lookups",
        ]
        if code := call(line):
            return Told(data={"planned": False}, code=code)
        words = f"{said(load)}\nthe stack is in {assembly}; next: make event-load FLEET={given.fleet} DO=deploy"
        return Told(words, {"planned": True, "assembly": str(assembly), **_numbers(load)})
    if given.do == "stop":
        stopped = stop(settings, clients)
        return Told("\n".join(f"stopped {each}" for each in stopped) or "no load runs", {"stopped": stopped})
    load, _ = read(file, settings)
    if given.do == "deploy":
        code = call([*deploy_line(given.cdk, assembly), STACK])
        return Told(data={"deployed": code == 0}, code=code)
    if given.do == "remove":
        code = call([*given.cdk, "--app", str(assembly), "destroy", "--force", STACK])
        return Told(data={"removed": code == 0}, code=code)
    execution = start(load, clients, datetime.now(UTC))
    words = f"{said(load)}\n{execution}\nto end it: make event-load FLEET={given.fleet} DO=stop"
    return Told(words, {"execution": execution, **_numbers(load)})


def main(words: Sequence[str] | None = None, call: Callable[[list[str]], int] = _call) -> int:
    """Run the command line. Return 1 where the load cannot be had, or not now."""
    parser = fleet_parser(__doc__)
    parser.add_argument("do", nargs="?", default="plan", choices=("plan", "deploy", "start", "stop", "remove"))
    parser.add_argument("--event", default="", help="of the fleet file; otherwise its greatest")
    parser.add_argument("--peak", type=float, default=1.0, help="of that event's traffic; above 1: past capacity")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--fresh", type=float, default=0.5, help="share of questions that no cache can know")
    parser.add_argument("--curve", type=Path, help="a recorded course, CSV with the columns second,requests")
    parser.add_argument("--caller", default="", help="ask this caller's cells instead of all")
    parser.add_argument("--vpc", default="", help="a caller's network, which the workers stand in")
    parser.add_argument("--subnets", default="", help="of it, separated by commas")
    parser.add_argument("--authority", default="", help="PEM file that verifies the fleet, where it is your own")
    parser.add_argument("--identity", default="", help="name of the workers' secret, where the fleet verifies callers")
    parser.add_argument("--dollars", type=float, default=MOST_DOLLARS, help="refuse what may cost more")
    parser.add_argument("cdk", nargs="*", default=["cdk"], help="after --: the CDK CLI and its options")
    given = parser.parse_intermixed_args(words)
    return operate(given, lambda settings, clients: _act(settings, clients, given, call), {EventLoadError: 1})


if __name__ == "__main__":
    sys.exit(main())
