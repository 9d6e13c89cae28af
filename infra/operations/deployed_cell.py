"""A deployed cell: the release that its stack runs, and its return to another."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.fleet.images import COMPANION, MAIN, NEWEST, NEWEST_OF
from infra.fleet.settings import FleetSettings

LIMIT_SECONDS = 6 * 3600.0  # a careful refresh of a full cell takes hours
Sleep = Callable[[float], None]
SETTLED_WELL = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")
FAILED_CREATION = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED")
# CloudFormation has the stack and nothing of it runs: its creation failed, or was prepared and never begun.
NEVER_RAN = (*FAILED_CREATION, "REVIEW_IN_PROGRESS")


class CellError(Exception):
    """A failure to change a cell. The message says why and what to do, and is written for operators."""


def stack_of(settings: FleetSettings, cell: str) -> str:
    return f"peakplan-{settings.name}-{cell}"


def described(stack: str, cloudformation: Any) -> dict[str, Any] | None:
    """Return what CloudFormation says of a stack, or None where there is none."""
    try:
        found: dict[str, Any] = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    return found


def settled(stack: str, cloudformation: Any, sleep: Sleep) -> str:
    """Return a stack's status once nothing is in progress. Raise CellError when that takes too long."""
    end = time.monotonic() + LIMIT_SECONDS
    while True:
        found = described(stack, cloudformation)
        status = "DELETE_COMPLETE" if found is None else str(found["StackStatus"])
        if not status.endswith("_IN_PROGRESS"):
            return status
        if time.monotonic() > end:
            raise CellError(f"{stack} is {status} for hours; see its events in CloudFormation")
        sleep(10)


def make_way(stack: str, cloudformation: Any, balancing: Any) -> None:
    """Let the CDK CLI delete a stack whose first creation failed, which it does before it creates the stack anew.

    The CLI protects a stack from termination before it creates it, and does not take that back, so CloudFormation would
    refuse. Load balancers with deletion protection survive the rollback of their own creation, and would survive this
    deletion too. A stack that was ever created keeps all its protection.
    """
    found = described(stack, cloudformation)
    if found is not None and found["StackStatus"] in FAILED_CREATION:
        print(f"{stack}: its creation failed ({found['StackStatus']}); it is made anew", flush=True)
        cloudformation.update_termination_protection(StackName=stack, EnableTerminationProtection=False)
        protect_balancers(stack, cloudformation, balancing, on=False)


def protect_balancers(stack: str, cloudformation: Any, balancing: Any, *, on: bool) -> None:
    """Let the load balancers of a stack be deleted with it, or no more."""
    for balancer in resources_of(stack, cloudformation, "AWS::ElasticLoadBalancingV2::LoadBalancer"):
        changed = [{"Key": "deletion_protection.enabled", "Value": str(on).lower()}]
        balancing.modify_load_balancer_attributes(LoadBalancerArn=balancer, Attributes=changed)


def resources_of(stack: str, cloudformation: Any, kind: str) -> list[str]:
    """Return the physical ids of a stack's resources of one type that are there."""
    pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
    return [
        str(each["PhysicalResourceId"])
        for page in pages
        for each in page["StackResourceSummaries"]
        if each["ResourceType"] == kind
        and each.get("PhysicalResourceId")
        and each["ResourceStatus"] != "DELETE_COMPLETE"
    ]


@dataclass(frozen=True)
class DeployedCell:
    """The part of one cell's stack that a return to a release needs.

    `companions` finds a release's images for other architectures (release.py).
    """

    name: str
    stack: str
    cloudformation: Any
    sleep: Sleep = time.sleep
    companions: Callable[[str], Mapping[str, str]] = lambda _: {}

    def exists(self) -> bool:
        """Return whether the cell was ever deployed; a stack whose creation failed or never began is none."""
        found = described(self.stack, self.cloudformation)
        return found is not None and found["StackStatus"] not in NEVER_RAN

    def runs(self) -> str | None:
        """Return the release that the stack runs now, or None before the first."""
        runs = self._parameters().get(MAIN)
        if runs == NEWEST:  # `cdk deploy` was not told which
            found = {each["ParameterKey"]: each for each in self._described()["Parameters"]}
            newest = found[NEWEST_OF.format(MAIN)]
            return str(newest.get("ResolvedValue", newest["ParameterValue"]))
        return runs

    def return_to(self, release: str) -> None:
        """Bring the stack to `release`. Raise CellError if that fails."""
        status = str(self._described()["StackStatus"])
        if status == "UPDATE_IN_PROGRESS":
            self.cloudformation.cancel_update_stack(StackName=self.stack)
            status = self.settled()
        if status == "UPDATE_ROLLBACK_FAILED":
            self.cloudformation.continue_update_rollback(StackName=self.stack)
        if (status := self.settled()) not in SETTLED_WELL:
            raise CellError(f"{self.name}: {self.stack} is {status}; see its events in CloudFormation")
        if self.runs() == release:
            return
        self.cloudformation.update_stack(
            StackName=self.stack,
            UsePreviousTemplate=True,
            Parameters=self.parameters_for(release),
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        )
        if (status := self.settled()) != "UPDATE_COMPLETE":
            raise CellError(f"{self.name}: {self.stack} is {status} after the change to {release}")

    def parameters_for(self, release: str) -> list[dict[str, Any]]:
        """Return the stack's parameters for another release, at the fast speed; all others stay as they are.

        Hosts for whose architecture the release has no image keep theirs: it is from before the fleet had them.
        """
        given = {MAIN: release}
        if COMPANION in self._parameters():  # else its template is from before, too
            given |= self.companions(release)
        given["RefreshSpeed"] = "fast"
        kept = [name for name in self._parameters() if name not in given]
        return [
            *({"ParameterKey": name, "ParameterValue": value} for name, value in given.items()),
            *({"ParameterKey": name, "UsePreviousValue": True} for name in kept),
        ]

    def is_settled(self) -> bool:
        return not str(self._described()["StackStatus"]).endswith("_IN_PROGRESS")

    def settled(self) -> str:
        return settled(self.stack, self.cloudformation, self.sleep)

    def _parameters(self) -> dict[str, str]:
        return {each["ParameterKey"]: each["ParameterValue"] for each in self._described().get("Parameters", [])}

    def _described(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cloudformation.describe_stacks(StackName=self.stack)["Stacks"][0]
        return found
