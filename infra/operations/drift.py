"""`python -m infra.operations.drift FLEET` says what was changed by hand since the last deploy. It changes nothing.

CloudFormation compares every resource that it can with its template. What Auto Scaling and `peakplan fleet cell out`
change by design is no drift. The exit code is 1 where something drifted. It is tested against the shapes of
CloudFormation's API description, because moto cannot detect drift, and has not run in a real account.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infra.fleet.settings import FleetSettings
from infra.operations.command import UNUSABLE, Clients, Told, fleet_parser, operate
from infra.operations.deployed_cell import Sleep, stack_of

# Scheduled actions set a group's floor, policies its size, and `peakplan fleet cell out` the weights of names and,
# with --refuse, what a listener does.
BY_DESIGN = {
    "AWS::AutoScaling::AutoScalingGroup": ("/MinSize", "/DesiredCapacity"),
    "AWS::Route53::RecordSet": ("/Weight",),
    "AWS::ElasticLoadBalancingV2::Listener": ("/DefaultActions",),
}
LIMIT_SECONDS = 1800.0


class DriftError(Exception):
    """A stack whose drift cannot be detected. The message is written for operators."""


@dataclass(frozen=True)
class Drifted:
    stack: str
    resource: str  # its logical id, and what it is called in AWS
    changes: tuple[str, ...]  # nothing where the resource is gone

    def __str__(self) -> str:
        if not self.changes:
            return f"{self.stack}: {self.resource} was deleted"
        return "\n".join([f"{self.stack}: {self.resource}", *(f"  {change}" for change in self.changes)])


def detect(stack: str, cloudformation: Any, sleep: Sleep = time.sleep) -> Iterator[Drifted]:
    """Yield what drifted in a stack. Raise DriftError where CloudFormation cannot tell."""
    asked = cloudformation.detect_stack_drift(StackName=stack)["StackDriftDetectionId"]
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        found = cloudformation.describe_stack_drift_detection_status(StackDriftDetectionId=asked)
        if found["DetectionStatus"] != "DETECTION_IN_PROGRESS":
            break
        if time.monotonic() > end:
            raise DriftError(f"{stack}: CloudFormation has compared it for half an hour; ask again later")
        sleep(5)
    if found["DetectionStatus"] == "DETECTION_FAILED" and "StackDriftStatus" not in found:
        raise DriftError(f"{stack}: {found.get('DetectionStatusReason', 'its drift cannot be detected')}")
    asking: dict[str, Any] = {"StackName": stack, "StackResourceDriftStatusFilters": ["MODIFIED", "DELETED"]}
    while True:
        page = cloudformation.describe_stack_resource_drifts(**asking)
        for each in page["StackResourceDrifts"]:
            yield from _drifted(stack, each)
        if "NextToken" not in page:
            return
        asking["NextToken"] = page["NextToken"]


def _drifted(stack: str, drift: dict[str, Any]) -> Iterator[Drifted]:
    resource = f"{drift['LogicalResourceId']} ({drift.get('PhysicalResourceId', 'no name')})"
    if drift["StackResourceDriftStatus"] == "DELETED":
        yield Drifted(stack, resource, ())
        return
    expected = BY_DESIGN.get(drift["ResourceType"], ())
    changes = tuple(
        f"{each['PropertyPath']}: {each['ExpectedValue']} in the template, {each['ActualValue']} in the account"
        for each in drift.get("PropertyDifferences", [])
        if not each["PropertyPath"].startswith(expected)
    )
    if changes:
        yield Drifted(stack, resource, changes)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 where something drifted, 2 where the file or the account cannot be used."""
    given = fleet_parser(__doc__).parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        api = clients("cloudformation")
        parts = ("network", "image", "rollout", *settings.cell_names, "edge", "observability", "spending")
        found = [drifted for part in parts for drifted in detect(stack_of(settings, part), api)]
        words = "\n".join(map(str, found)) or f"{settings.name} is as it was deployed"
        return Told(words, {"drifted": [asdict(each) for each in found]}, code=1 if found else 0)

    return operate(given, act, {DriftError: UNUSABLE})


if __name__ == "__main__":
    sys.exit(main())
