"""The edge stack: the names that callers use. It imports the cells' balancers, so none of them can go while named."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnOutput
from constructs import Construct

from infra.constructs.cell import Cell
from infra.constructs.edge import Edge
from infra.constructs.network import published_vpc
from infra.fleet.settings import FleetSettings
from infra.stacks.base import FleetStack


class EdgeStack(FleetStack):
    """Private DNS over the cells."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, cells: Sequence[Cell]) -> None:
        super().__init__(scope, id, settings=settings, purpose="names over the cells")
        edge = Edge(
            self,
            "Edge",
            settings=settings,
            vpc=published_vpc(self, settings, subnets=False),
            balancers={cell.name: cell.load_balancer for cell in cells},
        )
        CfnOutput(
            self, "Names", value=" ".join(edge.names), description="Post /plan to any of these; callers to their own"
        )
