"""`python -m infra.operations.cells out|in|show FLEET [CELL]` moves callers away, and back: `peakplan fleet cell`.

Names are weighted records of the fleet's private zone: out sets this cell's weights to 0, in puts back those of the
fleet file. New connections follow within the answer's minute, and kept ones as they end. A move is refused where a name
would have no cell left (Route 53 treats weights that are all 0 as equal), and, unless --force, where the others cannot
carry the load.

Callers with PrivateLink endpoints choose a cell themselves: `out --refuse` has the cell's balancer answer 503 to
everybody, on which their clients go on to the next cell. `in` gives the balancer back its former actions, which a
parameter keeps meanwhile.

This is tested against moto and has not run in a real account.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from infra.fleet.settings import FleetSettings
from infra.operations.access import NothingToJoinError, zone_of
from infra.operations.command import Clients, Told, fleet_parser, operate, parameter
from infra.operations.deployed_cell import resources_of, stack_of

CALLERS_LISTENER = ("HTTPS", 443)
_REFUSAL = {
    "Type": "fixed-response",
    "FixedResponseConfig": {
        "StatusCode": "503",
        "ContentType": "application/json",
        "MessageBody": '{"title": "This cell is out of service", "status": 503}',
    },
}


class CellShiftError(Exception):
    """A move that would do harm or that names an unknown cell. The message is written for operators."""


@dataclass(frozen=True)
class Load:
    in_service: int
    maximum: int


class Cells:
    def __init__(self, settings: FleetSettings, clients: Callable[[str], Any]) -> None:
        """Create the cells' controller; `clients` returns the boto3 client of a service."""
        self._settings, self._clients = settings, clients
        self._route53, self._autoscaling = clients("route53"), clients("autoscaling")

    def weights(self) -> dict[str, dict[str, int]]:
        """Return each name's weights by cell. Raise CellShiftError where the fleet has no zone in this account."""
        found: dict[str, dict[str, int]] = {}
        for record in self._records(self._zone()):
            found.setdefault(record["Name"].rstrip("."), {})[record["SetIdentifier"]] = record["Weight"]
        return found

    def loads(self) -> dict[str, Load]:
        found = {}
        for cell in self._settings.cell_names:
            names = [f"peakplan-{self._settings.name}-{cell}-{group.chip}" for group in self._settings.groups]
            groups = self._autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
            serving = sum(each["LifecycleState"] == "InService" for group in groups for each in group["Instances"])
            found[cell] = Load(serving, sum(group["MaxSize"] for group in groups))
        return found

    def move_out(self, cell: str, *, force: bool = False) -> None:
        """Send new callers to the other cells.

        Raise CellShiftError where there is no such cell, a name would be left without one, or the others are too small.
        """
        self._must_exist(cell)
        for name, weights in self.weights().items():
            if cell in weights and not any(weight for other, weight in weights.items() if other != cell):
                raise CellShiftError(
                    f"{name} would have no cell left: move another one in first (peakplan fleet cell in FLEET CELL)"
                )
        loads = self.loads()
        needed = sum(load.in_service for load in loads.values())
        room = sum(load.maximum for other, load in loads.items() if other != cell)
        if needed > room and not force:
            raise CellShiftError(
                f"{needed} instances serve now, and the other cells may have {room} at most: the reader would plan. "
                "Move it all the same with --force"
            )
        self._set(cell, 0)

    def move_in(self, cell: str) -> None:
        """Give the cell its share of callers again. Raise CellShiftError where there is no such cell."""
        self._must_exist(cell)
        self._serve_again(cell)
        self._set(cell, self._settings.weights[cell])

    def refuse(self, cell: str) -> None:
        """Make the cell's balancer answer 503 itself.

        Its present actions are saved first, so that nothing is lost half way.
        """
        listener = self._listener(cell)
        ssm, name = self._clients("ssm"), self._kept_in(cell)
        actions = json.dumps(listener["DefaultActions"])
        with suppress(ssm.exceptions.ParameterAlreadyExists):  # the cell refuses already, and its actions are saved
            ssm.put_parameter(Name=name, Value=actions, Type="String", Overwrite=False)
        self._clients("elbv2").modify_listener(ListenerArn=listener["ListenerArn"], DefaultActions=[_REFUSAL])

    def _serve_again(self, cell: str) -> None:
        ssm, name = self._clients("ssm"), self._kept_in(cell)
        if saved := parameter(ssm, name):
            listener = self._listener(cell)["ListenerArn"]
            self._clients("elbv2").modify_listener(ListenerArn=listener, DefaultActions=json.loads(saved["Value"]))
            ssm.delete_parameter(Name=name)

    def _kept_in(self, cell: str) -> str:
        return f"/peakplan/{self._settings.name}/{cell}/listener-before-it-refused"

    def _listener(self, cell: str) -> dict[str, Any]:
        """Return the listener of the cell's stack that callers reach.

        Another listener may answer PrivateLink's health checks.
        """
        stack = stack_of(self._settings, cell)
        found = resources_of(stack, self._clients("cloudformation"), "AWS::ElasticLoadBalancingV2::Listener")
        listeners = self._clients("elbv2").describe_listeners(ListenerArns=found)["Listeners"] if found else []
        https: list[dict[str, Any]] = [one for one in listeners if (one["Protocol"], one["Port"]) == CALLERS_LISTENER]
        if len(https) != 1:
            raise CellShiftError(f"{len(https)} listeners for callers in the stack {stack}: was the cell deployed?")
        return https[0]

    def _must_exist(self, cell: str) -> None:
        if cell not in (cells := self._settings.cell_names):
            raise CellShiftError(f"{cell!r} is no cell of {self._settings.name}: {', '.join(cells)}")

    def _zone(self) -> str:
        try:
            return zone_of(self._settings, self._route53)
        except NothingToJoinError as error:
            raise CellShiftError(f"{error}; or are these the fleet's credentials?") from error

    def _records(self, zone: str) -> Iterator[dict[str, Any]]:
        pages = self._route53.get_paginator("list_resource_record_sets").paginate(HostedZoneId=zone)
        for page in pages:
            for record in page["ResourceRecordSets"]:
                if "Weight" in record and record.get("SetIdentifier") in self._settings.cell_names:
                    yield record

    def _set(self, cell: str, weight: int) -> None:
        """Set the weights of all names at once: Route 53 applies a batch whole or not at all."""
        zone = self._zone()
        changes = [
            {"Action": "UPSERT", "ResourceRecordSet": {**record, "Weight": weight}}
            for record in self._records(zone)
            if record["SetIdentifier"] == cell
        ]
        if not changes:
            raise CellShiftError(f"no name leads to {cell} in the fleet's zone: was the Edge stack deployed?")
        self._route53.change_resource_record_sets(HostedZoneId=zone, ChangeBatch={"Changes": changes})


def describe(cells: Cells) -> str:
    lines = [
        f"{name}: " + ", ".join(f"{cell} {weight}" + (" (out)" if not weight else "") for cell, weight in each.items())
        for name, each in sorted(cells.weights().items())
    ]
    lines += [f"{cell}: {load.in_service} of at most {load.maximum} serve" for cell, load in cells.loads().items()]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 where a move is refused, 2 where a file or AWS cannot be used."""
    parser = fleet_parser(__doc__, ("out", "in", "show"))
    parser.add_argument("cell", nargs="?", default="", help="cell-1 ...")
    parser.add_argument("--refuse", action="store_true", help="out: the cell answers 503 to every request")
    parser.add_argument("--force", action="store_true", help="although the other cells are too small")
    given = parser.parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        cells = Cells(settings, clients)
        if given.action == "out":
            cells.move_out(given.cell, force=given.force)
            if given.refuse:
                cells.refuse(given.cell)
            elif settings.access.privatelink:
                print(f"Callers with PrivateLink endpoints still ask {given.cell}; --refuse answers them 503.")
        elif given.action == "in":
            cells.move_in(given.cell)
        loads = {cell: asdict(load) for cell, load in cells.loads().items()}
        return Told(describe(cells), {"weights": cells.weights(), "cells": loads})

    return operate(given, act, {CellShiftError: 1})


if __name__ == "__main__":
    sys.exit(main())
