"""`python -m infra.operations.teardown FLEET` deletes a fleet, once its name was typed, and says what it kept.

Names and alarms go first, then the cells, then what they stand on. Data and logs are kept where the fleet file asks for
deletion protection; their names are printed, and so are the machine images. Started again after it was broken off, it
goes on. It is tested against moto, and has not run in a real account.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from infra.fleet.parts import PART_TAG, TAG
from infra.fleet.settings import FleetSettings
from infra.operations.access import reject_all
from infra.operations.command import UNUSABLE, Clients, Told, fleet_parser, operate
from infra.operations.deploy_lock import DeployLock, LockedError, held
from infra.operations.deployed_cell import (
    CellError,
    Sleep,
    described,
    protect_balancers,
    resources_of,
    settled,
    stack_of,
)
from infra.operations.deployment_state import RolloutMarks, StateStore, delete_key

OVER, UNDER = ("spending", "observability", "edge"), ("rollout", "image", "network")
RETAINED = ("Retain", "RetainExceptOnCreate")
# A canary's network interfaces outlive it by up to 40 minutes, and their security group cannot go before them.
INTERFACES_LEAVE_SECONDS, OFTEN = 45 * 60.0, 60.0
OUTLIVED = ("dependent object", "DependencyViolation")
SUMMARY = "The following resource(s) failed to delete"  # the newest event, which says no reason


class TeardownError(CellError):
    """A stack that cannot be deleted. The message says why and what to do, and is written for operators."""


@dataclass(frozen=True)
class Kept:
    kind: str  # CloudFormation's type
    name: str

    def __str__(self) -> str:
        return f"{self.kind.removeprefix('AWS::')} {self.name}"


@dataclass(frozen=True)
class Teardown:
    """Deletes stacks of one region; `clients` returns the boto3 client of a service."""

    clients: Clients
    sleep: Sleep = time.sleep

    def delete(self, stack: str) -> list[Kept]:
        """Delete a stack, protected or not, and return what is kept of it. Raise TeardownError if that fails."""
        api = self.clients("cloudformation")
        found = described(stack, api)
        if found is None:
            return []
        kept = list(self._retained(stack))
        print(f"Deleting {stack}", flush=True)
        for service in resources_of(stack, api, "AWS::EC2::VPCEndpointService"):
            reject_all(service, self.clients("ec2"))
        protected = bool(found.get("EnableTerminationProtection"))
        self._protect(stack, on=False)
        end = time.monotonic() + INTERFACES_LEAVE_SECONDS
        while True:
            api.delete_stack(StackName=found["StackId"])
            if (status := settled(str(found["StackId"]), api, self.sleep)) == "DELETE_COMPLETE":
                return kept
            reason = self._reason(stack)
            if time.monotonic() < end and any(words in reason for words in OUTLIVED):
                print(f"{stack} waits for network interfaces that outlive their canaries: {reason}", flush=True)
                self.sleep(OFTEN)
                continue
            if protected:  # the remaining resources may still serve
                self._protect(stack, on=True)
            raise TeardownError(f"{stack} is {status}: {reason}. Mend that, and run this again")

    def _protect(self, stack: str, *, on: bool) -> None:
        api = self.clients("cloudformation")
        api.update_termination_protection(StackName=stack, EnableTerminationProtection=on)
        protect_balancers(stack, api, self.clients("elbv2"), on=on)

    def _retained(self, stack: str) -> Iterator[Kept]:
        api = self.clients("cloudformation")
        body = api.get_template(StackName=stack)["TemplateBody"]
        template = json.loads(body) if isinstance(body, str) else body
        retained = {name for name, each in template["Resources"].items() if each.get("DeletionPolicy") in RETAINED}
        for page in api.get_paginator("list_stack_resources").paginate(StackName=stack):
            for each in page["StackResourceSummaries"]:
                if each["LogicalResourceId"] in retained and each.get("PhysicalResourceId"):
                    yield Kept(each["ResourceType"], each["PhysicalResourceId"])

    def _reason(self, stack: str) -> str:
        events = self.clients("cloudformation").describe_stack_events(StackName=stack)["StackEvents"]
        reasons = (event.get("ResourceStatusReason", "") for event in events if "FAILED" in event["ResourceStatus"])
        said = (reason for reason in reasons if reason and not reason.startswith(SUMMARY))
        return str(next(said, "see its events in CloudFormation"))


def reservations_of(settings: FleetSettings, ec2: Any, cells: Sequence[str]) -> list[dict[str, Any]]:
    """Return the capacity that is reserved for cells now; their stacks do not have it (constructs/schedule.py)."""
    asked = {f"tag:{TAG}": [settings.name], f"tag:{PART_TAG}": list(cells), "state": ["active", "pending"]}
    filters = [{"Name": name, "Values": values} for name, values in asked.items()]
    pages = ec2.get_paginator("describe_capacity_reservations").paginate(Filters=filters)
    return [each for page in pages for each in page["CapacityReservations"]]


def cancel_reservations(settings: FleetSettings, ec2: Any, cells: Sequence[str]) -> None:
    for each in reservations_of(settings, ec2, cells) if cells else []:
        ec2.cancel_capacity_reservation(CapacityReservationId=each["CapacityReservationId"])


def cells_standing(settings: FleetSettings, cloudformation: Any) -> list[str]:
    """Return the names of the fleet's cells that have a stack, those that the fleet file no longer has too."""
    prefix = stack_of(settings, "cell-")
    pages = cloudformation.get_paginator("describe_stacks").paginate()
    names = [str(stack["StackName"]) for page in pages for stack in page["Stacks"]]
    numbers = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return [f"cell-{number}" for number in sorted((each for each in numbers if each.isdigit()), key=int)]


def destroy(settings: FleetSettings, clients: Clients, sleep: Sleep = time.sleep) -> list[Kept]:
    """Delete every stack of the fleet and return what is kept.

    Raise TeardownError for a stack that cannot be deleted, and LockedError where another shell changes the fleet.
    """
    ssm = clients("ssm")
    with held(DeployLock(settings, "deploy", ssm=ssm, sts=clients("sts"))):
        teardown = Teardown(clients, sleep)
        cells = cells_standing(settings, clients("cloudformation"))
        kept = [each for part in (*OVER, *cells, *UNDER) for each in teardown.delete(stack_of(settings, part))]
        cancel_reservations(settings, clients("ec2"), cells)
        with suppress(ssm.exceptions.ParameterNotFound):
            ssm.delete_parameter(Name=StateStore(settings, ssm).name)
        RolloutMarks(settings, ssm).delete((*OVER, *cells, *settings.cell_names))
        delete_key(settings, ssm)
    ours = [{"Name": f"tag:{TAG}", "Values": [settings.name]}]
    images = clients("ec2").describe_images(Owners=["self"], Filters=ours)["Images"]
    return kept + [Kept("AWS::EC2::Image", image["ImageId"]) for image in images]


def _confirmed(settings: FleetSettings, name: str | None) -> bool:
    if name is None:
        if not sys.stdin.isatty():
            print(f"Say --name {settings.name} where nobody can be asked", file=sys.stderr)
            return False
        name = input(f"This deletes every cell of {settings.name} and its network. Type the fleet's name: ").strip()
    if name != settings.name:
        print(f"{name!r} is not {settings.name!r}: nothing was deleted", file=sys.stderr)
        return False
    return True


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Return 1 when a stack cannot be deleted, 2 when the fleet file, the name or the account cannot be used, 3 when
    another shell changes the fleet.
    """
    parser = fleet_parser(__doc__)
    parser.add_argument("--name", default=None, help="the fleet's name, which is asked for where this is left out")
    given = parser.parse_args(words)

    def act(settings: FleetSettings, clients: Clients) -> Told:
        if not _confirmed(settings, given.name):
            return Told(data={"destroyed": False}, code=UNUSABLE)
        kept = destroy(settings, clients)
        first = f"{settings.name} is gone" + (". Kept, and yours to delete:" if kept else "; nothing is kept")
        words = "\n".join([first, *(f"  {each}" for each in kept)])
        return Told(words, {"destroyed": True, "kept": [asdict(each) for each in kept]})

    return operate(given, act, {CellError: 1, LockedError: 3})


# Names are answered for a minute, and balancers end callers' connections after ten (constructs/load_balancer.py).
CALLERS_LEAVE_SECONDS = 11 * 60.0


class StillStandingError(Exception):
    """A cell that the fleet file no longer has and no command retires. The message is for operators."""


@dataclass(frozen=True)
class Retiring:
    """The cells that a deploy takes away once no name leads to them."""

    settings: FleetSettings
    cells: Sequence[str]
    teardown: Teardown
    sleep: Sleep = time.sleep

    def run(self) -> None:
        """Wait until callers have left, then delete the cells. Raise TeardownError where one cannot be deleted."""
        if not self.cells:
            return
        print(f"No name leads to {', '.join(self.cells)}: waiting until callers have left", flush=True)
        self.sleep(CALLERS_LEAVE_SECONDS)
        for cell in self.cells:
            for kept in self.teardown.delete(stack_of(self.settings, cell)):
                print(f"{cell}: kept {kept}", flush=True)
        cancel_reservations(self.settings, self.teardown.clients("ec2"), self.cells)
        RolloutMarks(self.settings, self.teardown.clients("ssm")).delete(self.cells)


def retiring(settings: FleetSettings, clients: Callable[[str], Any], *, asked: bool) -> Retiring:
    """Return what a deploy has to take away, for the alarms over such cells go with it.

    Raise StillStandingError where that is something and nobody asked.
    """
    standing = cells_standing(settings, clients("cloudformation"))
    cells = [cell for cell in standing if cell not in settings.cell_names]
    if cells and not asked:
        raise StillStandingError(
            f"{', '.join(cells)} stands, and the fleet file no longer has it: its alarms would go with this deploy. "
            "Move its callers away with the fleet file of before (peakplan fleet cell out), then say --retire "
            "(make deploy RETIRE=1)"
        )
    return Retiring(settings, cells, Teardown(clients))


if __name__ == "__main__":
    sys.exit(main())
