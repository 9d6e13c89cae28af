"""What was changed by hand is told; what scaling and the moves of cells change is not."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from infra.operations import drift
from infra.operations.drift import Drifted, DriftError, detect

STACK, ASKED = "peakplan-dev-cell-1", "b78ac9b0-dec1-11e7-a451-503a3example"
STACK_ID = f"arn:aws:cloudformation:us-east-1:123456789012:stack/{STACK}/1"


def difference(path: str) -> dict[str, str]:
    return {"PropertyPath": path, "ExpectedValue": "1", "ActualValue": "2", "DifferenceType": "NOT_EQUAL"}


def drifted(name: str, kind: str, status: str, *paths: str) -> dict[str, Any]:
    return {
        "StackId": STACK_ID,
        "LogicalResourceId": name,
        "PhysicalResourceId": f"its-{name}",
        "ResourceType": kind,
        "StackResourceDriftStatus": status,
        "PropertyDifferences": [difference(path) for path in paths],
        "Timestamp": "2026-11-23T00:00:00Z",
    }


class CloudFormation:
    """The client, with the shapes of its own description: moto cannot detect drift."""

    def __init__(self) -> None:
        self.client: Any = boto3.client(
            "cloudformation", region_name="us-east-1", aws_access_key_id="t", aws_secret_access_key="t"
        )
        self.stub = Stubber(self.client)
        self.stub.activate()
        self.stub.add_response("detect_stack_drift", {"StackDriftDetectionId": ASKED}, {"StackName": STACK})

    def says(self, status: str, **more: str) -> None:
        answer = {"StackId": STACK_ID, "StackDriftDetectionId": ASKED, "DetectionStatus": status, **more}
        answer["Timestamp"] = "2026-11-23T00:00:00Z"
        self.stub.add_response("describe_stack_drift_detection_status", answer, {"StackDriftDetectionId": ASKED})

    def found(self, *drifts: dict[str, Any]) -> None:
        asked = {"StackName": STACK, "StackResourceDriftStatusFilters": ["MODIFIED", "DELETED"]}
        self.stub.add_response("describe_stack_resource_drifts", {"StackResourceDrifts": list(drifts)}, asked)


@pytest.fixture
def account() -> Iterator[CloudFormation]:
    made = CloudFormation()
    yield made
    made.stub.assert_no_pending_responses()


def test_changes_by_hand_are_told_with_both_values(account: CloudFormation) -> None:
    account.says("DETECTION_IN_PROGRESS")
    account.says("DETECTION_COMPLETE", StackDriftStatus="DRIFTED")
    account.found(
        drifted("Alb", "AWS::ElasticLoadBalancingV2::LoadBalancer", "MODIFIED", "/LoadBalancerAttributes/0/Value"),
        drifted("Topic", "AWS::SNS::Topic", "DELETED"),
    )
    said = [str(each) for each in detect(STACK, account.client, sleep=lambda _: None)]
    assert said == [
        f"{STACK}: Alb (its-Alb)\n  /LoadBalancerAttributes/0/Value: 1 in the template, 2 in the account",
        f"{STACK}: Topic (its-Topic) was deleted",
    ]


def test_what_scaling_and_the_moves_of_cells_change_is_no_drift(account: CloudFormation) -> None:
    account.says("DETECTION_COMPLETE", StackDriftStatus="DRIFTED")
    group = drifted("Group", "AWS::AutoScaling::AutoScalingGroup", "MODIFIED", "/MinSize", "/MaxSize")
    account.found(group, drifted("Record", "AWS::Route53::RecordSet", "MODIFIED", "/Weight"))
    (only,) = detect(STACK, account.client)
    assert only.changes == ("/MaxSize: 1 in the template, 2 in the account",)


@pytest.mark.parametrize("changes", [(), ("/X: 1 in the template, 2 in the account",)])
def test_programs_get_what_drifted_as_json(
    changes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Drifted("peakplan-dev-edge", "Topic (t)", changes)
    monkeypatch.setattr(drift, "detect", lambda stack, _: [found] if stack.endswith("edge") else [])
    assert drift.main(["dev", "--json"]) == 1
    told = {"stack": found.stack, "resource": found.resource, "changes": list(changes)}
    assert json.loads(capsys.readouterr().out) == {"fleet": "dev", "drifted": [told]}


def test_a_stack_that_cannot_be_compared_is_an_error(account: CloudFormation) -> None:
    account.says("DETECTION_FAILED", DetectionStatusReason="the stack is in UPDATE_IN_PROGRESS")
    with pytest.raises(DriftError, match="UPDATE_IN_PROGRESS"):
        list(detect(STACK, account.client))
