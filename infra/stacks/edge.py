"""The edge stack: the names callers use. It imports the cells' load balancers, so none of them can go while named."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnOutput
from constructs import Construct

from infra.constructs.cell import Cell
from infra.constructs.edge import Edge
from infra.constructs.network import imported_vpc
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
            vpc=imported_vpc(self, settings, subnets=False),
            load_balancers={cell.name: cell.load_balancer for cell in cells},
        )
        CfnOutput(
            self, "Names", value=" ".join(edge.names), description="Post /plan to any of these; callers to their own"
        )
