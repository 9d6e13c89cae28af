"""A whole fleet: which stacks there are, what waits for what, and what is checked of every template."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import App, CloudFormationValidatePlugin, Tags, ValidationRuleSource, Validations
from cdk_nag import AwsSolutionsChecks

from infra.fleet.settings import FleetSettings
from infra.stacks.base import stack_arguments, tags
from infra.stacks.cell import CellStack
from infra.stacks.edge import EdgeStack
from infra.stacks.image import ImageStack
from infra.stacks.network import NetworkStack
from infra.stacks.observability import ObservabilityStack

GUARD_RULES = Path(__file__).parents[1] / "rules" / "never.guard"


def compose(app: App, settings: FleetSettings) -> list[CellStack]:
    """All stacks of the fleet in `app`; answers the cells'.

    Their ids are Network, Image, Cell-1 ... Cell-n, Edge and Observability. Cells refer to nothing; they wait for the
    network only because they read its parameters.
    """
    network = NetworkStack(app, "Network", settings=settings)
    ImageStack(app, "Image", settings=settings)
    cells = [CellStack(app, name.capitalize(), settings=settings, name=name) for name in settings.cell_names]
    edge = EdgeStack(app, "Edge", settings=settings, cells=[stack.cell for stack in cells])
    ObservabilityStack(
        app,
        "Observability",
        settings=settings,
        cells=[stack.cell.names for stack in cells],
        **stack_arguments(settings, "Observability", "alarms and dashboard of all cells"),
    )
    for stack in (*cells, edge):
        stack.add_stack_dependency(network)
    # CloudFormation tags what it makes as it tags the stack; instances and volumes are made by launch templates.
    for stack in cells:
        for key, value in tags(settings, stack.node.id).items():
            Tags.of(stack).add(key, value)
    check(app)
    return cells


def check(app: App) -> None:
    """Refuse what AWS's rules or our own forbid; findings that are meant carry their reason beside them."""
    Validations.of(app).add_plugins(
        AwsSolutionsChecks(app),
        CloudFormationValidatePlugin(
            guard_rules=[ValidationRuleSource(name="never", content=GUARD_RULES.read_text(encoding="utf-8"))]
        ),
    )
