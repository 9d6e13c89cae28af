"""Refusals of an account that moto lacks: deleting protected resources, failing creations, a member's limits.

Sources: deletion protection stands in the way of a rollback (aws-cloudformation/rain#187, OperationNotPermitted);
`describe-stack-resources` "will only return the first 100 resources" (its API reference); a Network Load Balancer's
HTTPS health checks fail where targets "support only TLS 1.3" (its user guide); an export "cannot be deleted as it is in
use" (CloudFormation user guide, Fn::ImportValue; aws-cdk#7602); ExistingVpcEndpointConnections (EC2 error codes); a
canary's network interfaces outlive it by minutes (aws-cdk#22282), and their security group cannot go before them
(DependencyViolation). What no template may ask of a member account, test_synth.py looks for.
"""

import json
import re
import traceback
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack, cloudformation_backends
from moto.cloudformation.parsing import ResourceMap
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend, ec2_backends
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.models.vpc_service_configuration import VPCServiceConfigurationBackend
from moto.ec2.responses import EC2Response
from moto.elbv2.exceptions import ELBClientError
from moto.elbv2.models import ELBv2Backend, FakeHealthStatus

from tests.infra.moto_forwarding import Forwarded, Properties, call, client, nothing

MOST_RESOURCES_DESCRIBED = 100
KEPT = ("Retain", "RetainExceptOnCreate")


def _protect_balancers() -> None:
    delete = ELBv2Backend.delete_load_balancer

    def kept(self: ELBv2Backend, arn: str) -> None:
        balancer = self.load_balancers.get(arn)
        if balancer is not None and balancer.attrs.get("deletion_protection.enabled") == "true":
            message = f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
            raise ELBClientError("OperationNotPermitted", message)
        delete(self, arn)

    setattr(ELBv2Backend, "delete_load_balancer", kept)  # noqa: B010


def _protect_stacks() -> None:
    """Report a failed deletion in the stack's status, and refuse to delete a protected stack."""
    delete = CloudFormationBackend.delete_stack

    def asked(self: CloudFormationBackend, name_or_stack_id: str) -> None:
        for stack in list(self.stacks.values()):
            if name_or_stack_id not in (stack.name, stack.stack_id):
                continue
            if stack.enable_termination_protection:
                message = f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled"
                raise ValidationError(stack.name, message)
            try:
                delete(self, stack.stack_id)
            except Exception as error:
                self.stacks[stack.stack_id] = stack
                stack.status = "DELETE_FAILED"
                for reason in (str(error), "The following resource(s) failed to delete: [...]. "):
                    stack._add_stack_event("DELETE_FAILED", resource_status_reason=reason)
            else:
                _forget(stack)

    setattr(CloudFormationBackend, "delete_stack", asked)  # noqa: B010


def _forget(stack: Any) -> None:
    """Empty a deleted stack: otherwise moto creates its resources again when a caller describes it."""
    stack.resource_map._resource_json_map, stack.resource_map._parsed_resources = {}, {}
    stack.output_map._output_json_map, stack.output_map._parsed_outputs = {}, {}


def _protection_can_be_changed() -> None:
    """moto has no UpdateTerminationProtection."""

    def update(self: CloudFormationResponse) -> ActionResult:
        stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
        stack.enable_termination_protection = str(self._get_param("EnableTerminationProtection")).lower() == "true"
        return ActionResult({"StackId": stack.stack_id})

    setattr(CloudFormationResponse, "update_termination_protection", update)  # noqa: B010


def _keep_what_is_retained() -> None:
    """moto knows Retain alone; RetainExceptOnCreate keeps a resource too, unless its very creation is rolled back."""
    resource_map: Any = ResourceMap
    delete = resource_map.delete

    def kept(self: Any) -> None:
        everything = self._resource_json_map
        creation_failed = getattr(self, "creation_failed", False)
        keeps = KEPT[:1] if creation_failed else KEPT
        self._resource_json_map = {
            name: each for name, each in everything.items() if each.get("DeletionPolicy") not in keeps
        }
        try:
            delete(self)
        finally:
            self._resource_json_map = everything

    resource_map.delete = kept


def _roll_creations_back() -> None:
    """Report a failed creation in the stack's events, not in the call's answer, and delete what it created."""
    create = Stack.create_resources

    def created(self: Any) -> None:
        try:
            create(self)
        except Exception as error:
            traceback.print_exc()  # into the server's log, where it tells a refusal from a fault of moto's
            self._add_stack_event("ROLLBACK_IN_PROGRESS", resource_status_reason=str(error))
            made = self.resource_map
            made.creation_failed = True
            for export in self.exports:
                cloudformation_backends[self.account_id][self.region_name].exports.pop(export.name, None)
            self.output_map._output_json_map, self.output_map._parsed_outputs = {}, {}
            try:
                made.delete()
            except Exception as stuck:
                self.status = "ROLLBACK_FAILED"
                self._add_stack_event("ROLLBACK_FAILED", resource_status_reason=str(stuck))
            else:
                self.status = "ROLLBACK_COMPLETE"
                self._add_stack_event("ROLLBACK_COMPLETE")
            # Otherwise moto creates the other resources when a caller lists the stack's resources.
            made._resource_json_map = {
                name: each for name, each in made._resource_json_map.items() if name in made._parsed_resources
            }

    setattr(Stack, "create_resources", created)  # noqa: B010


def _delete_route_tables() -> None:
    """Delete a stack's route tables, which moto keeps: with them its VPC has dependencies."""

    def gone(self: Any, account_id: str, region: str) -> None:
        ec2_backends[account_id][region].route_tables.pop(self.id, None)

    setattr(RouteTable, "delete", gone)  # noqa: B010


def _describe_no_more_than_aws() -> None:
    describe = CloudFormationBackend.describe_stack_resources

    def cut(self: CloudFormationBackend, stack_name: str, logical_resource_id: str) -> Any:
        stack, resources = describe(self, stack_name, logical_resource_id)
        return stack, list(resources)[:MOST_RESOURCES_DESCRIBED]

    setattr(CloudFormationBackend, "describe_stack_resources", cut)  # noqa: B010


def _check_health_over_tls_1_2() -> None:
    """A Network Load Balancer's health checks of a listener of another balancer."""
    describe = ELBv2Backend.describe_target_health

    def checked(self: ELBv2Backend, target_group_arn: str, targets: list[dict[str, Any]]) -> list[Any]:
        group = self.target_groups[target_group_arn]
        if group.target_type != "alb" or group.health_check_protocol != "HTTPS":
            return describe(self, target_group_arn, targets)
        found = []
        for arn in group.targets:
            listeners = self.load_balancers[arn].listeners.values()
            (listener,) = [each for each in listeners if str(each.port) == str(group.health_check_port)]
            only_13 = "TLS13-1-3" in str(listener.ssl_policy)
            state, reason = ("unhealthy", "Target.FailedHealthChecks") if only_13 else ("healthy", None)
            found.append(FakeHealthStatus(arn, group.port, group.health_check_port, state, reason))
        return found

    setattr(ELBv2Backend, "describe_target_health", checked)  # noqa: B010


def refuse_as_aws_does() -> None:
    """Extend moto in this process."""
    _protect_balancers()
    _protect_stacks()
    _protection_can_be_changed()
    _keep_what_is_retained()
    _roll_creations_back()
    _delete_route_tables()
    _describe_no_more_than_aws()
    _check_health_over_tls_1_2()


ALIVE = ("available", "pendingAcceptance")
OWNER = "OwnerOfTheEndpoint"  # a tag by which a test says whose an endpoint is: the emulator has one account


class InUseError(Exception):
    """An export that another stack imports would go."""


def _imported(stack: Any) -> dict[str, str]:
    """The exports that other stacks of the region import, and who imports them."""
    found: dict[str, str] = {}
    for other in cloudformation_backends[stack.account_id][stack.region_name].stacks.values():
        if other.name != stack.name and not str(other.status).startswith("DELETE"):
            names = re.findall(r'"Fn::ImportValue": "([^"]+)"', json.dumps(other.template_dict))
            found |= dict.fromkeys(names, other.name)
    return found


def _keep_exports_in_use() -> None:
    delete = CloudFormationBackend.delete_stack

    def deleted(self: CloudFormationBackend, name_or_stack_id: str) -> None:
        for stack in list(self.stacks.values()):
            if name_or_stack_id in (stack.name, stack.stack_id):
                imported = _imported(stack)
                for export in stack.exports:
                    if user := imported.get(export.name):
                        raise InUseError(f"Export {export.name} cannot be deleted as it is in use by {user}")
        delete(self, name_or_stack_id)

    setattr(CloudFormationBackend, "delete_stack", deleted)  # noqa: B010


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
    """Keep a canary's interfaces after its deletion, until a first deletion of their stack has failed."""
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


CANARIES = (Forwarded("AWS::Synthetics::Canary", _put_canary, nothing, name="Name"),)


def refuse_as_a_member_account() -> None:
    """Extend moto in this process."""
    _keep_exports_in_use()
    _keep_services_with_endpoints()
    _hold_reservations()
    _keep_interfaces_of_canaries()
