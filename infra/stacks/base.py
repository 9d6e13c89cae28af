"""What every stack of a fleet has: its name, tags, zones, and protection from a careless delete."""

from __future__ import annotations

from typing import Any

import jsii
from aws_cdk import Environment, Stack
from constructs import Construct

from infra.fleet.settings import FleetSettings


def stack_arguments(settings: FleetSettings, id: str, purpose: str) -> dict[str, Any]:
    """The keyword arguments of a stack of this fleet. In AWS it is called peakplan-<fleet>-<id>."""
    return {
        "stack_name": f"peakplan-{settings.name}-{id.lower()}",
        "description": f"Peakplan {settings.name}: {purpose}",
        "env": Environment(region=settings.region, account=settings.account),
        "termination_protection": settings.deletion_protection,
        "tags": tags(settings, id),
    }


def tags(settings: FleetSettings, id: str) -> dict[str, str]:
    """What a stack and everything in it is tagged with: bills and searches are split by these."""
    return {"peakplan:fleet": settings.name, "peakplan:part": id.lower(), "cost-center": settings.cost_center}


class FleetStack(Stack):
    """A stack of one fleet. Its id is what the CDK CLI calls it."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, purpose: str) -> None:
        # Before super: CDK asks for the zones while it builds the stack.
        self._zones = list(settings.availability_zones)
        super().__init__(scope, id, **stack_arguments(settings, id, purpose))

    @property
    @jsii.member(jsii_name="availabilityZones")
    def availability_zones(self) -> list[str]:
        """The fleet file's zones: nothing is looked up in an account at synth."""
        return self._zones
