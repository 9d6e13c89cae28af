"""The network stack: first, and alone under everything else."""

from __future__ import annotations

from aws_cdk import CfnOutput
from constructs import Construct

from infra.constructs.network import Network
from infra.fleet.settings import FleetSettings
from infra.stacks.base import FleetStack


class NetworkStack(FleetStack):
    """The VPC of a fleet, with endpoints and flow logs."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id, settings=settings, purpose="the network of all cells")
        network = Network(self, "Network", settings=settings)
        CfnOutput(self, "VpcId", value=network.vpc.vpc_id, description="The VPC that cells live in")
