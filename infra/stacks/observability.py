"""What tells people how a fleet fares: its alarms, the dashboard, and where notifications go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.constructs.alarms import CellAlarms
from infra.constructs.dashboard import FleetDashboard
from infra.constructs.names import CellNames
from infra.constructs.on_call import OnCall
from infra.fleet.settings import FleetFileError, FleetSettings

# CloudFormation takes a template of 1 MB, and a cell's alarms and graphs are some 60 kB of it.
MOST_CELLS = 15


class ObservabilityStack(Stack):
    """Stands beside the cells: it reads their names, and no cell knows of it."""

    def __init__(
        self, scope: Construct, id: str, *, settings: FleetSettings, cells: Sequence[CellNames], **kwargs: Any
    ) -> None:
        """Raises FleetFileError for more cells than one template holds."""
        if len(cells) > MOST_CELLS:
            raise FleetFileError(
                f"cells: {len(cells)} are more than the {MOST_CELLS} whose alarms one stack holds; make cells larger "
                "(maximum_cell_instances), or two fleets [source: AWS CloudFormation quotas, template size]"
            )
        super().__init__(scope, id, **kwargs)
        on_call = OnCall(self, "OnCall", settings=settings)
        for names in cells:
            alarms = "".join(word.capitalize() for word in names.cell.split("-"))
            CellAlarms(self, alarms, settings=settings, names=names, topic_arn=on_call.topic_arn)
        FleetDashboard(self, "Dashboard", settings=settings, cells=cells)
        url = f"https://{self.region}.console.aws.amazon.com/cloudwatch/home#dashboards/dashboard/peakplan-{settings.name}"
        CfnOutput(self, "DashboardUrl", value=url, description="The night's first look")
        CfnOutput(self, "OnCallTopic", value=on_call.topic_arn, description="Where notifications go")
