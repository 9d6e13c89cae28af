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

from tests.infra.moto_forwarding import Forwarded, Properties, call, client, instead, nothing

MOST_RESOURCES_DESCRIBED = 100
KEPT = ("Retain", "RetainExceptOnCreate")
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


@instead(CloudFormationBackend, "delete_stack")
def _keep_exports_in_use(delete: Any, self: Any, name_or_stack_id: str) -> None:
    for stack in list(self.stacks.values()):
        if name_or_stack_id in (stack.name, stack.stack_id):
            imported = _imported(stack)
            for export in stack.exports:
                if user := imported.get(export.name):
                    raise InUseError(f"Export {export.name} cannot be deleted as it is in use by {user}")
    delete(self, name_or_stack_id)


@instead(CloudFormationBackend, "delete_stack")
def _keep_interfaces_of_canaries(delete: Any, self: Any, name_or_stack_id: str) -> None:
    """Keep a canary's interfaces after its deletion, until a first deletion of their stack has failed."""
    try:
        delete(self, name_or_stack_id)
    except Exception:
        ec2 = client("ec2", self.region_name)
        found = ec2.describe_network_interfaces(Filters=[{"Name": "description", "Values": [INTERFACE]}])
        for each in found["NetworkInterfaces"]:
            ec2.delete_network_interface(NetworkInterfaceId=each["NetworkInterfaceId"])
        raise


@instead(CloudFormationBackend, "delete_stack")
def _protect_stacks(delete: Any, self: Any, name_or_stack_id: str) -> None:
    """Report a failed deletion in the stack's status, and refuse to delete a protected stack."""
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


def _forget(stack: Any) -> None:
    """Empty a deleted stack: otherwise moto creates its resources again when a caller describes it."""
    stack.resource_map._resource_json_map, stack.resource_map._parsed_resources = {}, {}
    stack.output_map._output_json_map, stack.output_map._parsed_outputs = {}, {}


@instead(CloudFormationResponse, "update_termination_protection")
def _protection_can_be_changed(_: None, self: Any) -> ActionResult:
    stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
    stack.enable_termination_protection = str(self._get_param("EnableTerminationProtection")).lower() == "true"
    return ActionResult({"StackId": stack.stack_id})


@instead(ELBv2Backend, "delete_load_balancer")
def _protect_balancers(delete: Any, self: Any, arn: str) -> None:
    balancer = self.load_balancers.get(arn)
    if balancer is not None and balancer.attrs.get("deletion_protection.enabled") == "true":
        message = f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled"
        raise ELBClientError("OperationNotPermitted", message)
    delete(self, arn)


@instead(ResourceMap, "delete")
def _keep_what_is_retained(delete: Any, self: Any) -> None:
    """moto knows Retain alone; RetainExceptOnCreate keeps a resource too, unless its very creation is rolled back."""
    everything = self._resource_json_map
    keeps = KEPT[:1] if getattr(self, "creation_failed", False) else KEPT
    self._resource_json_map = {
        name: each for name, each in everything.items() if each.get("DeletionPolicy") not in keeps
    }
    try:
        delete(self)
    finally:
        self._resource_json_map = everything


@instead(Stack, "create_resources")
def _roll_creations_back(create: Any, self: Any) -> None:
    """Report a failed creation in the stack's events, not in the call's answer, and delete what it created."""
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


@instead(RouteTable, "delete")
def _delete_route_tables(_: Any, self: Any, account_id: str, region: str) -> None:
    """Delete a stack's route tables, which moto keeps: with them its VPC has dependencies."""
    ec2_backends[account_id][region].route_tables.pop(self.id, None)


@instead(CloudFormationBackend, "describe_stack_resources")
def _describe_no_more_than_aws(describe: Any, self: Any, stack_name: str, logical_resource_id: str) -> Any:
    stack, resources = describe(self, stack_name, logical_resource_id)
    return stack, list(resources)[:MOST_RESOURCES_DESCRIBED]


@instead(ELBv2Backend, "describe_target_health")
def _check_health_over_tls_1_2(
    describe: Any, self: Any, target_group_arn: str, targets: list[dict[str, Any]]
) -> list[Any]:
    """A Network Load Balancer's health checks of a listener of another balancer."""
    group = self.target_groups[target_group_arn]
    if group.target_type != "alb" or group.health_check_protocol != "HTTPS":
        return list(describe(self, target_group_arn, targets))
    found = []
    for arn in group.targets:
        listeners = self.load_balancers[arn].listeners.values()
        (listener,) = [each for each in listeners if str(each.port) == str(group.health_check_port)]
        only_13 = "TLS13-1-3" in str(listener.ssl_policy)
        state, reason = ("unhealthy", "Target.FailedHealthChecks") if only_13 else ("healthy", None)
        found.append(FakeHealthStatus(arn, group.port, group.health_check_port, state, reason))
    return found


def _connections(backend: Any, service: Any) -> list[Any]:
    return [each for each in backend.vpc_end_points.values() if each.service_name == service.service_name]


@instead(EC2Backend, "create_vpc_endpoint")
def _let_endpoints_wait(connect: Any, self: Any, *given: Any, **named: Any) -> Any:
    """Endpoints wait, are accepted and are rejected; a service to which one is connected cannot be deleted."""
    endpoint: Any = connect(self, *given, **named)
    for service in self.configurations.values():
        if service.service_name == endpoint.service_name and service.acceptance_required:
            endpoint.state = "pendingAcceptance"
    return endpoint


@instead(VPCServiceConfigurationBackend, "delete_vpc_endpoint_service_configurations")
def _keep_services_with_endpoints(delete: Any, self: Any, service_ids: list[str]) -> Any:
    for service in (self.configurations[each] for each in service_ids if each in self.configurations):
        if any(each.state in ALIVE for each in _connections(self, service)):
            message = f"Service {service.id} has existing active VPC Endpoint connections"
            raise EC2ClientError("ExistingVpcEndpointConnections", message)
    return delete(self, service_ids)


def _filters(response: Any) -> dict[str, list[str]]:
    return {each["Name"]: each["Values"] for each in response._get_param("Filters", [])}


@instead(EC2Response, "describe_vpc_endpoint_connections")
def _describe_connections(_: None, self: Any) -> ActionResult:
    backend, asked, found = ec2_backends[self.current_account][self.region], _filters(self), []
    for service in backend.configurations.values():
        for each in _connections(backend, service):
            owner = {tag["key"]: tag["value"] for tag in each.get_tags()}.get(OWNER, self.current_account)
            states = asked.get("vpc-endpoint-state", [each.state])
            if service.id in asked.get("service-id", [service.id]) and each.state in states:
                said = {"ServiceId": service.id, "VpcEndpointId": each.id, "VpcEndpointOwner": owner}
                found.append(said | {"VpcEndpointState": each.state})
    return ActionResult({"VpcEndpointConnections": found})


def _become(state: str, response: Any) -> ActionResult:
    for name in response._get_param("VpcEndpointIds", []):
        ec2_backends[response.current_account][response.region].vpc_end_points[name].state = state
    return ActionResult({"Unsuccessful": []})


instead(EC2Response, "accept_vpc_endpoint_connections")(lambda _, self: _become("available", self))
instead(EC2Response, "reject_vpc_endpoint_connections")(lambda _, self: _become("rejected", self))


def _held(response: Any) -> dict[str, Any]:
    """Capacity reservations, of which moto has none; "reservations" are its own, of instances."""
    found: dict[str, Any] = vars(ec2_backends[response.current_account][response.region]).setdefault(
        "capacity_held", {}
    )
    return found


@instead(EC2Response, "create_capacity_reservation")
def _reserve(_: None, self: Any) -> ActionResult:
    made = {name: self._get_param(name) for name in ("InstanceType", "AvailabilityZone", "EndDate")}
    tags = [tag for each in self._get_param("TagSpecifications", []) for tag in each["Tags"]]
    made |= {"TotalInstanceCount": int(self._get_param("InstanceCount")), "State": "active", "Tags": tags}
    made["CapacityReservationId"] = name = f"cr-{len(_held(self)):017x}"
    _held(self)[name] = made
    return ActionResult({"CapacityReservation": made})


@instead(EC2Response, "describe_capacity_reservations")
def _describe_reserved(_: None, self: Any) -> ActionResult:
    def said(each: dict[str, Any]) -> dict[str, str]:
        return {f"tag:{tag['Key']}": tag["Value"] for tag in each["Tags"]} | {"state": each["State"]}

    asked, held = _filters(self), list(_held(self).values())
    found = [each for each in held if all(said(each).get(name) in values for name, values in asked.items())]
    return ActionResult({"CapacityReservations": found})


@instead(EC2Response, "cancel_capacity_reservation")
def _cancel(_: None, self: Any) -> ActionResult:
    _held(self)[self._get_param("CapacityReservationId")]["State"] = "cancelled"
    return ActionResult({"Return": True})


INTERFACE = "AWS Lambda VPC ENI-cwsyn"


def _put_canary(region: str, properties: Properties) -> Properties:
    """A canary's function has network interfaces in its subnets, which Lambda makes and takes away."""
    place = properties["VPCConfig"]
    asked = {"Groups": place["SecurityGroupIds"], "SubnetId": place["SubnetIds"][0], "Description": INTERFACE}
    call("ec2", "CreateNetworkInterface")(region, asked)
    return {"Name": properties["Name"]}


@instead(EC2Backend, "delete_security_group")
def _keep_groups_of_interfaces(delete: Any, self: Any, name: str | None = None, group_id: str | None = None) -> None:
    for each in self.enis.values():
        if each.description == INTERFACE and group_id in {group.id for group in each.group_set}:
            raise EC2ClientError("DependencyViolation", f"resource {group_id} has a dependent object")
    delete(self, name, group_id)


CANARIES = (Forwarded("AWS::Synthetics::Canary", _put_canary, nothing, name="Name"),)
