"""Both fleets that ship, synthesised once a test run, in this process and as app.py composes them."""

import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.node import use_packaged_node

use_packaged_node()

from aws_cdk import App  # noqa: E402  # jsii starts its Node at this import

from infra.stacks import compose  # noqa: E402

Template = dict[str, Any]


def app_of(settings: FleetSettings) -> App:
    """A fleet's app, composed and not synthesised yet; CDK's feature flags are those of cdk.json."""
    context = json.loads((REPOSITORY_ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=context, analytics_reporting=False, outdir=mkdtemp(prefix=f"peakplan-{settings.name}-"))
    compose(app, settings)
    return app


def templates_of(app: App) -> dict[str, Template]:
    """The templates of an app by the stacks' ids, as they lie on disk."""
    assembly = app.synth()
    return {
        stack.id: json.loads(Path(stack.template_full_path).read_text(encoding="utf-8")) for stack in assembly.stacks
    }


def findings(app: App) -> list[str]:
    """What the checks found in a synthesised app and nobody accepted: rule and construct."""
    report = json.loads((Path(app.outdir) / "validation-report.json").read_text(encoding="utf-8"))
    return [
        f"{violation['ruleName']} at {place['constructPath']}"
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for place in violation["violatingConstructs"]
    ]


@cache
def synthesised(fleet: str) -> tuple[App, dict[str, Template]]:
    """A fleet that ships, and its templates. Shared: read only."""
    app = app_of(FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml"))
    return app, templates_of(app)


def templates(fleet: str) -> dict[str, Template]:
    """The templates of a fleet that ships. Shared: read only."""
    return synthesised(fleet)[1]


def resources(template: Template, kind: str) -> dict[str, Any]:
    """The resources of one type by logical id."""
    return {name: each for name, each in template["Resources"].items() if each["Type"] == kind}


def only(template: Template, kind: str) -> Any:
    """The properties of the one resource of its type."""
    (found,) = resources(template, kind).values()
    return found["Properties"]
