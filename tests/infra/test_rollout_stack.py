"""The stack of the state machine that deploys from inside the account: what ships is what is tested."""

import json
from pathlib import Path
from typing import Any

from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.rollout_machine import definition
from infra.fleet.settings import FLEETS, FleetSettings
from infra.stacks import RolloutStack
from tests.infra.synthesis import lint_findings, only, templates_of


def test_the_machine_of_the_template_is_the_one_that_tests_interpret(tmp_path: Path) -> None:
    """A null says that a result is dropped; without it the result takes the place of all that the machine knows."""
    from aws_cdk import App

    settings = FleetSettings.from_yaml(FLEETS / "prime-day.yaml")
    context = json.loads((REPOSITORY_ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=context, analytics_reporting=False, outdir=str(tmp_path / "cdk.out"))
    RolloutStack(app, "Rollout", settings=settings)
    template = templates_of(app)["Rollout"]
    shipped: Any = only(template, "AWS::StepFunctions::StateMachine")["DefinitionString"]
    assert json.loads(shipped) == json.loads(json.dumps(definition(settings)))
    assert lint_findings(template) == []
