"""The stack of one cell, which refers to no other stack: it reads the network's parameters at deploy."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from infra.constructs.cell import Cell
from infra.constructs.network import imported_vpc
from infra.fleet.settings import FleetSettings
from infra.stacks.base import FleetStack


class CellStack(FleetStack):
    """`cell` is the one it holds."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, name: str) -> None:
        super().__init__(scope, id, settings=settings, purpose=f"{name}, standing alone")
        self.cell = Cell(self, "Cell", settings=settings, name=name, vpc=imported_vpc(self, settings))
        CfnOutput(
            self,
            "Address",
            value=f"https://{self.cell.load_balancer.load_balancer_dns_name}",
            description=f"The load balancer of {name}; callers use the edge's names",
        )
