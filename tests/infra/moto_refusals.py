"""What an account refuses where moto says yes: deletions of what is protected, and creations that fail.

Sources: deletion protection stands in the way of a rollback (aws-cloudformation/rain#187, OperationNotPermitted);
`describe-stack-resources` "will only return the first 100 resources" (its API reference); a Network Load Balancer's
HTTPS health checks fail where targets "support only TLS 1.3" (its user guide, Health checks).
"""

import traceback
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack, cloudformation_backends
from moto.cloudformation.parsing import ResourceMap
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult
from moto.ec2.models import ec2_backends
from moto.ec2.models.route_tables import RouteTable
from moto.elbv2.exceptions import ELBClientError
from moto.elbv2.models import ELBv2Backend, FakeHealthStatus

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
    """A deletion that fails is told by the stack's status, as a creation is."""
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
    """Let a stack that is gone have nothing: moto would make its resources anew for whoever describes it."""
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
    """A creation that fails is an answer of its events, not of the call; what was made is deleted, where it can be."""
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
            # Whoever lists the stack's resources would have moto make the others now.
            made._resource_json_map = {
                name: each for name, each in made._resource_json_map.items() if name in made._parsed_resources
            }

    setattr(Stack, "create_resources", created)  # noqa: B010


def _delete_route_tables() -> None:
    """moto leaves a stack's route tables where they are, and then the VPC has dependencies."""

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
