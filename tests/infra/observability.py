"""The observability stack of prime-day with two cells, for the tests of its alarms and of its dashboard."""

from functools import cache
from typing import Any

import aws_cdk
from aws_cdk.assertions import Template

from infra.constructs.names import CellNames
from infra.fleet.parts import OnCall
from infra.fleet.settings import FLEETS, FleetSettings
from infra.stacks import ObservabilityStack

Resource = dict[str, Any]


@cache
def fleet() -> FleetSettings:
    return FleetSettings.from_yaml(FLEETS / "prime-day.yaml")


def names() -> list[CellNames]:
    """Two cells as their stacks would name them."""
    return [
        CellNames(
            cell,
            f"app/{cell}/1",
            (f"targetgroup/{cell}/1",),
            tuple(f"{cell}-{group.chip}" for group in fleet().groups),
            network_load_balancer=f"net/{cell}/1",
            network_target_group=f"targetgroup/{cell}-front/1",
            cache_nodes=(f"{cell}-001", f"{cell}-002"),
            log_group=f"/peakplan/prime-day/{cell}/1a2b3c4d",
        )
        for cell in ("cell-1", "cell-2")
    ]


TOLD = ("night@example.com", "desk@example.com")


@cache
def stack(page: str = TOLD[0], ticket: str = TOLD[1]) -> ObservabilityStack:
    settings = fleet().model_copy(update={"on_call": OnCall(page=page, ticket=ticket)})
    app = aws_cdk.App(analytics_reporting=False)
    return ObservabilityStack(app, "Observability", settings=settings, cells=names())


@cache
def template(page: str = TOLD[0], ticket: str = TOLD[1]) -> dict[str, Any]:
    found: dict[str, Any] = Template.from_stack(stack(page, ticket)).to_json()
    return found


def resources(page: str = TOLD[0], ticket: str = TOLD[1]) -> dict[str, Resource]:
    found: dict[str, Resource] = template(page, ticket)["Resources"]
    return found


def of_type(kind: str) -> list[Resource]:
    return [found["Properties"] for found in resources().values() if found["Type"] == f"AWS::{kind}"]


def alarms() -> dict[str, Resource]:
    return {
        found["AlarmName"]: found for kind in ("Alarm", "CompositeAlarm") for found in of_type(f"CloudWatch::{kind}")
    }
