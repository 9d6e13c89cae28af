"""The stacks of a fleet: what each contains, the order of their deployment, and the checks of every template."""

from collections.abc import Sequence
from pathlib import Path

import jsii
from aws_cdk import (
    App,
    CfnOutput,
    CloudFormationValidatePlugin,
    Environment,
    Stack,
    Tags,
    ValidationRuleSource,
    Validations,
)
from cdk_nag import AwsSolutionsChecks
from constructs import Construct

from infra.constructs.alarms import CellAlarms
from infra.constructs.cell import Cell
from infra.constructs.dashboard import FleetDashboard, RunbookPages
from infra.constructs.edge import Edge, SyntheticPlans
from infra.constructs.image import Artifacts, ImagePipelines
from infra.constructs.names import CellNames, camel, published
from infra.constructs.network import Network, imported_vpc
from infra.constructs.on_call import OnCall, SpendingAlarms, topic_name
from infra.constructs.rollout import RolloutMachine
from infra.constructs.shopper_events import EventDelivery
from infra.fleet.parts import PART_TAG, TAG
from infra.fleet.settings import FleetSettings

GUARD_RULES = Path(__file__).parent / "rules" / "never.guard"


def tags(settings: FleetSettings, id: str) -> dict[str, str]:
    return {TAG: settings.name, PART_TAG: id.lower(), "cost-center": settings.cost_center}


class FleetStack(Stack):
    """A stack of one fleet: its name, tags, zones, and protection from accidental deletion."""

    def __init__(
        self, scope: Construct, id: str, *, settings: FleetSettings, purpose: str, dense: bool = False
    ) -> None:
        """Create the stack; `id` is its name in the CDK CLI.

        The template of a `dense` one has no indentation and no paths of constructs: CloudFormation counts them, too, in
        what it accepts.
        """
        # This precedes super().__init__, because CDK asks for the zones while it builds the stack.
        self._zones = list(settings.availability_zones)
        super().__init__(
            scope,
            id,
            stack_name=f"peakplan-{settings.name}-{id.lower()}",
            description=f"Peakplan {settings.name}: {purpose}",
            env=Environment(region=settings.region, account=settings.account),
            termination_protection=settings.deletion_protection,
            tags=tags(settings, id),
            suppress_template_indentation=dense,
        )
        if dense:
            self.node.set_context("aws:cdk:enable-path-metadata", False)

    @property
    @jsii.member(jsii_name="availabilityZones")
    def availability_zones(self) -> list[str]:
        """The fleet file's zones, so that nothing is looked up in an account at synthesis."""
        return self._zones


class NetworkStack(FleetStack):
    """The VPC of a fleet, with endpoints and flow logs. It is deployed first, and every other stack needs it."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id, settings=settings, purpose="the network of all cells")
        network = Network(self, "Network", settings=settings)
        CfnOutput(self, "VpcId", value=network.vpc.vpc_id, description="The VPC that cells live in")


class ImageStack(FleetStack):
    """The stack of machine images: the image pipeline, and the bucket of compiled models."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id, settings=settings, purpose="machine images and models")
        artifacts = Artifacts(self, "Artifacts", settings=settings)
        baked = ImagePipelines(self, "Image", settings=settings, artifacts=artifacts)
        for image, pipeline in baked.pipelines.items():
            CfnOutput(
                self, image.pipeline_output, value=pipeline.attr_arn, description="Start it to bake a machine image"
            )
        CfnOutput(self, "ModelsBucket", value=artifacts.bucket.bucket_name, description="Compiled models, build logs")


class RolloutStack(FleetStack):
    """The stack of the state machine that brings releases to the cells, which it names but never refers to."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id, settings=settings, purpose="what deploys the cells")
        rollout = RolloutMachine(self, "Rollout", settings=settings)
        CfnOutput(self, "MachineArn", value=rollout.machine.ref, description="`make deploy` starts it")


class CellStack(FleetStack):
    """The stack of one cell, `cell`, which reads the network's parameters at deploy time."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, name: str) -> None:
        super().__init__(scope, id, settings=settings, purpose=f"{name}, standing alone")
        vpc = imported_vpc(self, settings)
        self.cell = Cell(self, "Cell", settings=settings.of_cell(name), name=name, vpc=vpc)
        CfnOutput(
            self,
            "Address",
            value=f"https://{self.cell.load_balancer.load_balancer_dns_name}",
            description=f"The load balancer of {name}; callers use the edge's names",
        )


class EdgeStack(FleetStack):
    """The names that callers use, and the canaries that ask for plans as callers do.

    It reads the cells' names, and waits for the cells only because it does.
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id, settings=settings, purpose="names over the cells")
        vpc = imported_vpc(self, settings, cells=settings.synthetic_plans.enabled, load_balancers=False)
        cells = [published(self, settings, cell) for cell in settings.cell_names]
        edge = Edge(self, "Edge", settings=settings, vpc=vpc, cells=cells)
        if settings.synthetic_plans.enabled:
            SyntheticPlans(self, "Plans", settings=settings, vpc=vpc, cells=cells)
        CfnOutput(
            self, "Names", value=" ".join(edge.names), description="Post /plan to any of these; callers to their own"
        )


class ObservabilityStack(FleetStack):
    """The alarms, the dashboard, the targets of notifications, and where shoppers' events are gathered.

    This stack reads the cells' names, and no cell depends on it.
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, cells: Sequence[CellNames] = ()) -> None:
        """Create the stack; `cells` are the names of cells that publish none."""
        super().__init__(scope, id, settings=settings, purpose="alarms and dashboard of all cells", dense=True)
        cells = cells or [published(self, settings, cell) for cell in settings.cell_names]
        on_call = OnCall(self, "OnCall", settings=settings)
        for names in cells:
            CellAlarms(self, camel(names.cell), settings=settings, names=names, on_call=on_call.topics)
        FleetDashboard(self, "Dashboard", settings=settings, cells=cells)
        if settings.shopper_events.bucket:
            EventDelivery(self, "Events", settings=settings)
        url = f"https://{self.region}.console.aws.amazon.com/cloudwatch/home#dashboards/dashboard/peakplan-{settings.name}"
        CfnOutput(self, "DashboardUrl", value=url, description="The night's first look")
        RunbookPages(self, "Runbooks", settings=settings)
        CfnOutput(self, "PagesTopic", value=on_call.topics.page, description="Where what wakes somebody goes")
        CfnOutput(self, "TicketsTopic", value=on_call.topics.ticket, description="Where what can wait goes")


class SpendingStack(FleetStack):
    """The budget and the monitor of unusual cost: alone and last, for an account may be refused them."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id, settings=settings, purpose="what it may cost")
        told = settings.on_call.ticket
        ours = self.format_arn(service="sns", resource=topic_name(settings, "tickets"))
        topic = told if told.startswith("arn:") else ours
        SpendingAlarms(self, "Spending", settings=settings, topic=topic)
        CfnOutput(self, "TicketsTopic", value=topic, description="Where it is told that a month costs more")


def compose(app: App, settings: FleetSettings) -> list[CellStack]:
    """Create all stacks of the fleet in `app`, and return those of the cells.

    The ids are Network, Image, Rollout, Cell-1 ... Cell-n, Edge, Observability and Spending. None refers to another:
    each waits for those whose parameters it reads, and CDK deploys them in that order.
    """
    under = [NetworkStack(app, "Network", settings=settings), ImageStack(app, "Image", settings=settings)]
    RolloutStack(app, "Rollout", settings=settings)
    cells = [CellStack(app, name.capitalize(), settings=settings, name=name) for name in settings.cell_names]
    edge = EdgeStack(app, "Edge", settings=settings)
    watching = ObservabilityStack(app, "Observability", settings=settings)
    waiting = [(stack, under) for stack in cells] + [(stack, cells) for stack in (edge, watching)]
    for stack, others in (*waiting, (SpendingStack(app, "Spending", settings=settings), [watching])):
        for other in others:
            stack.add_stack_dependency(other)
    # CloudFormation applies the stack's tags to its resources; launch templates must tag instances and volumes.
    for stack in cells:
        for key, value in tags(settings, stack.node.id).items():
            Tags.of(stack).add(key, value)
    check(app)
    return cells


def check(app: App) -> None:
    """Refuse what AWS's rules or our own forbid; accepted findings carry their reason beside them."""
    Validations.of(app).add_plugins(
        AwsSolutionsChecks(app),
        CloudFormationValidatePlugin(
            guard_rules=[ValidationRuleSource(name="never", content=GUARD_RULES.read_text(encoding="utf-8"))]
        ),
    )
