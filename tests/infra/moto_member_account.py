"""What a member account refuses and moto accepts: the fourth reading against AWS's documents (README.md).

Sources: an export "cannot be deleted as it is in use" (CloudFormation user guide, Fn::ImportValue; aws-cdk#7602); EC2's
characters of descriptions (AuthorizeSecurityGroupEgress, API reference); ExistingVpcEndpointConnections (EC2 error
codes); InsufficientInstanceCapacity at the creation of a reservation (EC2 user guide); "custom monitors" are the
management account's (Cost Management user guide, Anomaly Detection); a canary's network interfaces outlive it by
minutes (aws-cdk#22282), and their security group cannot go before them (DependencyViolation); "rolling updates cannot
be performed because scheduled action(s) are currently associated" (instance-scheduler-on-aws#705).
"""

import json
import re
from inspect import signature
from typing import Any

from moto.cloudformation.models import CloudFormationBackend, Stack, cloudformation_backends
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.vpc_service_configuration import VPCServiceConfigurationBackend
from moto.ec2.responses import EC2Response

from tests.infra.moto_forwarding import Forwarded, Properties, call, client

CHARACTERS = re.compile(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}")
ALIVE = ("available", "pendingAcceptance")
OWNER = "OwnerOfTheEndpoint"  # a tag by which a test says whose an endpoint is: the emulator has one account


class InUseError(Exception):
    """An export that another stack imports would go, or change."""


def _imported(stack: Any) -> dict[str, str]:
    """The exports that other stacks of the region import, and who imports them."""
    found: dict[str, str] = {}
    for other in cloudformation_backends[stack.account_id][stack.region_name].stacks.values():
        if other.name != stack.name and not str(other.status).startswith("DELETE"):
            names = re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(other.template_dict))
            found |= dict.fromkeys(names, other.name)
    return found


def _exported(template: Properties) -> set[str]:
    return {str(each["Export"]["Name"]) for each in template.get("Outputs", {}).values() if "Export" in each}


def _keep_exports_in_use() -> None:
    delete, update = CloudFormationBackend.delete_stack, Stack.update

    def deleted(self: CloudFormationBackend, name_or_stack_id: str) -> None:
        for stack in list(self.stacks.values()):
            if name_or_stack_id in (stack.name, stack.stack_id):
                _refuse(stack, {export.name for export in stack.exports})
        delete(self, name_or_stack_id)

    def _refuse(stack: Any, going: set[str]) -> None:
        imported = _imported(stack)
        for name in sorted(going & set(imported)):
            raise InUseError(f"Export {name} cannot be deleted or changed as it is in use by {imported[name]}")

    def updated(self: Any, template: Any, *given: Any, **named: Any) -> None:
        before = {export.name: export.value for export in self.exports}
        parsed = json.loads(template) if isinstance(template, str) else template
        try:
            _refuse(self, set(before) - _exported(parsed))
            update(self, template, *given, **named)
            after = {export.name: export.value for export in self.exports}
            _refuse(self, {name for name, value in before.items() if after.get(name) != value})
        except InUseError as error:
            self.status = "UPDATE_ROLLBACK_COMPLETE"
            self._add_stack_event("UPDATE_ROLLBACK_COMPLETE", resource_status_reason=str(error))

    setattr(CloudFormationBackend, "delete_stack", deleted)  # noqa: B010
    setattr(Stack, "update", updated)  # noqa: B010


def _read_descriptions() -> None:
    """Of security groups and of their rules."""
    for name in ("authorize_security_group_egress", "authorize_security_group_ingress", "create_security_group"):
        known = getattr(EC2Backend, name)

        def checked(self: EC2Backend, *given: Any, known: Any = known, **named: Any) -> Any:
            asked = signature(known).bind(self, *given, **named).arguments
            rules = [*(asked.get("ip_ranges") or []), *(asked.get("source_groups") or [])]
            said = [each.get("Description") for each in rules if isinstance(each, dict)]
            for text in filter(None, [*said, asked.get("description")]):
                if not CHARACTERS.fullmatch(text):
                    raise EC2ClientError(
                        "InvalidParameterValue", f"Value ({text}) for parameter Description is invalid"
                    )
            return known(self, *given, **named)

        setattr(EC2Backend, name, checked)


def _connections(backend: Any, service: Any) -> list[Any]:
    return [each for each in backend.vpc_end_points.values() if each.service_name == service.service_name]


def _keep_services_with_endpoints() -> None:
    """Endpoints wait, are accepted and are rejected; a service to which one is connected cannot be deleted."""
    delete = VPCServiceConfigurationBackend.delete_vpc_endpoint_service_configurations
    backend: Any = EC2Backend
    connect = backend.create_vpc_endpoint

    def connected(self: EC2Backend, *given: Any, **named: Any) -> Any:
        endpoint: Any = connect(self, *given, **named)
        for service in self.configurations.values():
            if service.service_name == endpoint.service_name and service.acceptance_required:
                endpoint.state = "pendingAcceptance"
        return endpoint

    def kept(self: Any, service_ids: list[str]) -> list[str]:
        for service in (self.configurations[each] for each in service_ids if each in self.configurations):
            if any(each.state in ALIVE for each in _connections(self, service)):
                message = f"Service {service.id} has existing active VPC Endpoint connections"
                raise EC2ClientError("ExistingVpcEndpointConnections", message)
        return delete(self, service_ids)

    def describe(self: Any) -> ActionResult:
        backend = ec2_backends[self.current_account][self.region]
        asked = {each["Name"]: each["Values"] for each in self._get_param("Filters", [])}
        found = []
        for service in backend.configurations.values():
            for each in _connections(backend, service):
                owner = {tag["key"]: tag["value"] for tag in each.get_tags()}.get(OWNER, self.current_account)
                states = asked.get("vpc-endpoint-state", [each.state])
                if service.id in asked.get("service-id", [service.id]) and each.state in states:
                    said = {"ServiceId": service.id, "VpcEndpointId": each.id, "VpcEndpointOwner": owner}
                    found.append(said | {"VpcEndpointState": each.state})
        return ActionResult({"VpcEndpointConnections": found})

    def becomes(state: str) -> Any:
        def act(self: Any) -> ActionResult:
            backend = ec2_backends[self.current_account][self.region]
            for name in self._get_param("VpcEndpointIds", []):
                backend.vpc_end_points[name].state = state
            return ActionResult({"Unsuccessful": []})

        return act

    backend.create_vpc_endpoint = connected
    setattr(VPCServiceConfigurationBackend, "delete_vpc_endpoint_service_configurations", kept)  # noqa: B010
    setattr(EC2Response, "describe_vpc_endpoint_connections", describe)  # noqa: B010
    setattr(EC2Response, "accept_vpc_endpoint_connections", becomes("available"))  # noqa: B010
    setattr(EC2Response, "reject_vpc_endpoint_connections", becomes("rejected"))  # noqa: B010


def _hold_reservations() -> None:
    """Capacity reservations, of which moto has none: asked for by a call, and given back by another."""

    def held(self: Any) -> dict[str, Any]:
        found: dict[str, Any] = vars(ec2_backends[self.current_account][self.region]).setdefault(
            "capacity_held", {}
        )  # "reservations" are moto's own, of instances
        return found

    def create(self: Any) -> ActionResult:
        made = {name: self._get_param(name) for name in ("InstanceType", "AvailabilityZone", "EndDate")}
        tags = [tag for each in self._get_param("TagSpecifications", []) for tag in each["Tags"]]
        made |= {"TotalInstanceCount": int(self._get_param("InstanceCount")), "State": "active", "Tags": tags}
        name = f"cr-{len(held(self)):017x}"
        held(self)[name] = made | {"CapacityReservationId": name}
        return ActionResult({"CapacityReservation": held(self)[name]})

    def describe(self: Any) -> ActionResult:
        asked = {each["Name"]: each["Values"] for each in self._get_param("Filters", [])}
        found = []
        for each in held(self).values():
            said = {f"tag:{tag['Key']}": tag["Value"] for tag in each["Tags"]} | {"state": each["State"]}
            if all(said.get(name) in values for name, values in asked.items()):
                found.append(each)
        return ActionResult({"CapacityReservations": found})

    def cancel(self: Any) -> ActionResult:
        held(self)[self._get_param("CapacityReservationId")]["State"] = "cancelled"
        return ActionResult({"Return": True})

    setattr(EC2Response, "create_capacity_reservation", create)  # noqa: B010
    setattr(EC2Response, "describe_capacity_reservations", describe)  # noqa: B010
    setattr(EC2Response, "cancel_capacity_reservation", cancel)  # noqa: B010


INTERFACE = "AWS Lambda VPC ENI-cwsyn"


def _put_canary(region: str, properties: Properties) -> Properties:
    """A canary's function has network interfaces in its subnets, which Lambda makes and takes away."""
    place = properties["VPCConfig"]
    asked = {"Groups": place["SecurityGroupIds"], "SubnetId": place["SubnetIds"][0], "Description": INTERFACE}
    call("ec2", "CreateNetworkInterface")(region, asked)
    return {"Name": properties["Name"]}


def _keep_interfaces_of_canaries() -> None:
    """They stay when their canary goes, and are gone only after a first deletion of their stack has failed."""
    stacks: Any = CloudFormationBackend
    groups: Any = EC2Backend
    delete_stack, delete_group = stacks.delete_stack, groups.delete_security_group

    def refused(self: EC2Backend, name: str | None = None, group_id: str | None = None) -> None:
        for each in self.enis.values():
            if each.description == INTERFACE and group_id in {group.id for group in each.group_set}:
                raise EC2ClientError("DependencyViolation", f"resource {group_id} has a dependent object")
        delete_group(self, name, group_id)

    def deleted(self: CloudFormationBackend, name_or_stack_id: str) -> None:
        try:
            delete_stack(self, name_or_stack_id)
        except Exception:
            ec2 = client("ec2", self.region_name)
            found = ec2.describe_network_interfaces(Filters=[{"Name": "description", "Values": [INTERFACE]}])
            for each in found["NetworkInterfaces"]:
                ec2.delete_network_interface(NetworkInterfaceId=each["NetworkInterfaceId"])
            raise

    groups.delete_security_group = refused
    stacks.delete_stack = deleted


def _refuse_rolling_updates_of_scheduled_groups() -> None:
    """An instance refresh is none of them, as far as AWS documents it."""
    model: Any = Stack
    update = model.update

    def updated(self: Any, template: Any, *given: Any, **named: Any) -> None:
        before = self.template_dict["Resources"]
        scheduled = {
            json.dumps(each["Properties"]["AutoScalingGroupName"])
            for each in before.values()
            if each["Type"] == "AWS::AutoScaling::ScheduledAction"
        }
        parsed = json.loads(template) if isinstance(template, str) else template
        for name, each in parsed["Resources"].items():
            policy = each.get("UpdatePolicy", {}).get("AutoScalingRollingUpdate")
            in_the_way = json.dumps({"Ref": name}) in scheduled and each != before.get(name)
            if policy and in_the_way and "ScheduledActions" not in policy.get("SuspendProcesses", []):
                self.status = "UPDATE_ROLLBACK_COMPLETE"
                reason = "Autoscaling rolling updates cannot be performed because of scheduled action(s)"
                self._add_stack_event("UPDATE_ROLLBACK_COMPLETE", resource_status_reason=reason)
                return
        update(self, template, *given, **named)

    model.update = updated


def _refused(code: str, message: str) -> Any:
    def put(region: str, properties: Properties) -> Properties:
        del region, properties
        raise EC2ClientError(code, message)

    return put


def _nothing(region: str, properties: Properties) -> Properties:
    del region, properties
    return {}


# What a stack asks of a member account on its worst day.
REFUSED = (
    Forwarded(
        "AWS::EC2::CapacityReservation", _refused("InsufficientInstanceCapacity", "Insufficient capacity."), _nothing
    ),
    Forwarded(
        "AWS::CE::AnomalyMonitor",
        _refused("ValidationException", "Linked accounts can create AWS service monitors alone"),
        _nothing,
    ),
    Forwarded("AWS::Synthetics::Canary", _put_canary, _nothing, name="Name"),
)


def refuse_as_a_member_account() -> None:
    """Extend moto in this process."""
    _keep_exports_in_use()
    _read_descriptions()
    _keep_services_with_endpoints()
    _hold_reservations()
    _keep_interfaces_of_canaries()
    _refuse_rolling_updates_of_scheduled_groups()
