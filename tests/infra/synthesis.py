"""Both fleets that ship, synthesised once a test run, in this process and as app.py composes them."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.node import use_packaged_node

use_packaged_node()

from aws_cdk import App  # noqa: E402  # jsii starts its Node at this import

from infra.stacks import compose  # noqa: E402
from tests.infra.fleet.fleets import dev_fleet  # noqa: E402

Template = dict[str, Any]
_BY_STACK = "templates-by-stack.json"


def app_of(settings: FleetSettings, outdir: str | None = None) -> App:
    """A fleet's app, composed and not synthesised yet; CDK's feature flags are those of cdk.json."""
    context = json.loads((REPOSITORY_ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    outdir = outdir or mkdtemp(prefix=f"peakplan-{settings.name}-")
    app = App(context=context, analytics_reporting=False, outdir=outdir)
    compose(app, settings)
    return app


def templates_of(app: App) -> dict[str, Template]:
    """The templates of an app by the stacks' ids, as they lie on disk."""
    assembly = app.synth()
    return {
        stack.id: json.loads(Path(stack.template_full_path).read_text(encoding="utf-8")) for stack in assembly.stacks
    }


def changed_fleet(changes: dict[str, Any]) -> dict[str, Template]:
    """The templates of the dev fleet with changes, by dotted keys; every check is content with them.

    Synthesised in a process of its own: CDK's Node keeps every construct of every app, and grows slow with gigabytes.
    """
    with TemporaryDirectory(prefix="peakplan-changed-") as outdir:
        command = [sys.executable, "-m", "tests.infra.synthesis", json.dumps(changes), outdir]
        done = subprocess.run(command, cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert findings(outdir) == []
        found: dict[str, Template] = json.loads((Path(outdir) / _BY_STACK).read_text(encoding="utf-8"))
        return found


def findings(outdir: str) -> list[str]:
    """What the checks found in a synthesised app and nobody accepted: rule and construct."""
    report = json.loads((Path(outdir) / "validation-report.json").read_text(encoding="utf-8"))
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


def main(changes: str, outdir: str) -> None:
    """The process of `changed_fleet`."""
    found = templates_of(app_of(dev_fleet(json.loads(changes)), outdir))
    (Path(outdir) / _BY_STACK).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
