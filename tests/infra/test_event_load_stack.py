"""The stack of an event's load test: every check is content, and what it may do is what its bounds say."""

import json
from pathlib import Path

import pytest

from infra.fleet.event_load import EventLoad
from infra.fleet.event_load_bundle import HANDLER
from infra.fleet.event_load_file import CallerNetwork
from infra.fleet.event_load_machine import definition
from infra.fleet.parts import REPOSITORY_ROOT
from infra.fleet.settings import FLEETS, FleetSettings
from infra.stacks import compose_load
from tests.infra.synthesis import Template, findings, only, resources, templates_of

pytestmark = pytest.mark.slow  # CDK starts Node, and every check runs


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Template:
    from aws_cdk import App

    folder: Path = tmp_path_factory.mktemp("load")
    authority = folder / "authority.pem"
    authority.write_text("of a test", encoding="utf-8")
    context = json.loads((REPOSITORY_ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(context=context, analytics_reporting=False, outdir=str(folder / "cdk.out"))
    network = CallerNetwork("vpc-0a1b2c3d4e5f67890", ("subnet-0a1b2c3d4e5f67890",), str(authority), "load/identity")
    compose_load(app, EventLoad(FleetSettings.from_yaml(FLEETS / "prime-day.yaml"), multiplier=4), network)
    found = templates_of(app)
    assert findings(str(folder / "cdk.out")) == []
    assert set(found) == {"Load"}
    return found["Load"]


def test_no_more_workers_run_than_the_bound_counts_and_none_is_started_again(stack: Template) -> None:
    function, once = only(stack, "AWS::Lambda::Function"), only(stack, "AWS::Lambda::EventInvokeConfig")

    assert function["Handler"] == HANDLER
    assert function["ReservedConcurrentExecutions"] == 2 * 67
    assert function["Timeout"] == 90
    assert function["VpcConfig"]["SubnetIds"] == ["subnet-0a1b2c3d4e5f67890"]
    assert (once["MaximumRetryAttempts"], once["MaximumEventAgeInSeconds"]) == (0, 60)
    variables = function["Environment"]["Variables"]
    assert (variables["METHOD"], variables["IDENTITY"]) == ("mtls", "load/identity"), (
        "where the key is, and not the key"
    )
    assert "resolve:secretsmanager" not in json.dumps(variables)
    assert variables["URL"] == "https://plan.planner.internal"


def test_the_machine_may_start_its_one_function_and_look_and_nothing_else(stack: Template) -> None:
    machine = only(stack, "AWS::StepFunctions::StateMachine")
    assert machine["StateMachineName"] == "peakplan-prime-day-load"
    shipped = "".join(
        part if isinstance(part, str) else "function" for part in machine["DefinitionString"]["Fn::Join"][1]
    )
    tested = definition(EventLoad(FleetSettings.from_yaml(FLEETS / "prime-day.yaml"), multiplier=4), "function")
    assert json.loads(shipped) == json.loads(json.dumps(tested)), "a null that is left out keeps what it drops"
    allowed = {
        action
        for policy in resources(stack, "AWS::IAM::Policy").values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        for action in (statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]])
    }
    assert {action for action in allowed if action.split(":")[0] in ("lambda", "ssm", "autoscaling", "iam")} == {
        "lambda:InvokeFunction"
    }


def test_it_stands_beside_the_fleet_and_goes_without_a_trace(stack: Template) -> None:
    assert "Fn::ImportValue" not in json.dumps(stack)
    assert not resources(stack, "AWS::EC2::SecurityGroupIngress"), "the fleet opens nothing for it"
    assert only(stack, "AWS::EC2::SecurityGroup")["VpcId"] == "vpc-0a1b2c3d4e5f67890"
