"""Both fleets that ship, synthesised once a test run, each in a process of its own and as app.py composes them."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]

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
    app = App(context=context, analytics_reporting=False, stack_traces=False, outdir=outdir)
    compose(app, settings)
    return app


def templates_of(app: App) -> dict[str, Template]:
    """The templates of an app by the stacks' ids, as they lie on disk."""
    assembly = app.synth()
    return {
        stack.id: json.loads(Path(stack.template_full_path).read_text(encoding="utf-8")) for stack in assembly.stacks
    }


def changed_fleet(changes: dict[str, Any]) -> dict[str, Template]:
    """The templates of the dev fleet with changes, by dotted keys; every check is content with them."""
    with TemporaryDirectory(prefix="peakplan-changed-") as outdir:
        found = _elsewhere(json.dumps(changes), outdir)
        assert findings(outdir) == []
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
def synthesised(fleet: str) -> tuple[Path, dict[str, Template]]:
    """The folder that a fleet that ships is synthesised into, and its templates. Shared: read only."""
    outdir = mkdtemp(prefix=f"peakplan-{fleet}-")
    return Path(outdir), _elsewhere(fleet, outdir)


def _elsewhere(fleet: str, outdir: str) -> dict[str, Template]:
    """The templates of a fleet that a process of its own synthesises.

    CDK's Node keeps every construct of every app, and grows slow with gigabytes; and it runs without asserts, as a
    deploy's synthesis does: jsii's checks of types at run time are half of it.
    """
    command = [sys.executable, "-O", "-m", "tests.infra.synthesis", fleet, outdir]
    done = subprocess.run(command, cwd=REPOSITORY_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Template] = json.loads((Path(outdir) / _BY_STACK).read_text(encoding="utf-8"))
    return found


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


def told(parameter: str) -> Any:
    """The image that a stack is told, or else the one that was baked last."""
    return {"Fn::If": [f"{parameter}Left", {"Ref": f"Newest{parameter}"}, {"Ref": parameter}]}


def lint_findings(template: Template) -> list[str]:
    """What cfn-lint finds in a template."""
    # W3010 would have zones looked up; ours are named in the fleet file, because inf2 and trn1 are not in every zone.
    config = ManualArgs(regions=["us-east-1"], ignore_checks=["W3010"])
    found = lint(json.dumps(template), config=config)
    return [f"{match.rule.id} {match.message} {match.path}" for match in found]


def main(fleet: str, outdir: str) -> None:
    """Synthesise a fleet that ships, by its name, or the dev fleet with changes."""
    ships = not fleet.startswith("{")
    settings = FleetSettings.from_yaml(FLEETS / f"{fleet}.yaml") if ships else dev_fleet(json.loads(fleet))
    found = templates_of(app_of(settings, outdir))
    (Path(outdir) / _BY_STACK).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
