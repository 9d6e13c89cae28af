"""The state machine that brings releases to the cells, and the role with which it may."""

from __future__ import annotations

import json

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.constructs.acknowledge import acknowledge
from infra.constructs.log_storage import log_group
from infra.fleet.images import images
from infra.fleet.metrics import metrics
from infra.fleet.rollout_machine import definition
from infra.fleet.rollout_states import MARKER, State, machine_name
from infra.fleet.settings import FleetSettings

# `cdk bootstrap` makes these (AWS CDK developer guide, Bootstrapping: hnb659fds is the default qualifier).
EXECUTION_ROLE = "cdk-hnb659fds-cfn-exec-role-{account}-{region}"
ASSETS_BUCKET = "cdk-hnb659fds-assets-{account}-{region}"
BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"  # which every template reads
_LOG_DELIVERY = (
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)
_TRACING = ("xray:PutTraceSegments", "xray:PutTelemetryRecords", "xray:GetSamplingRules", "xray:GetSamplingTargets")
# What a state machine does that takes no resource: looks at alarms, writes its log, traces itself.
EVERYWHERE = ("cloudwatch:DescribeAlarms", *_LOG_DELIVERY, *_TRACING)


def machine_text(machine: State) -> str:
    """Return a machine's definition as JSON. `Stack.to_json_string` would leave out each null, and a result path that
    is null drops a result: without it the result takes the place of all that the machine knows.
    """
    return json.dumps(machine)


class RolloutMachine(Construct):
    """The machine `peakplan-<fleet>-rollout`, as `machine`."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        self._settings = settings
        logs = log_group(self, "Log", settings, name=f"/aws/vendedlogs/states/{machine_name(settings)}")
        role = self._role()
        destination = stepfunctions.CfnStateMachine.LogDestinationProperty(
            cloud_watch_logs_log_group=stepfunctions.CfnStateMachine.CloudWatchLogsLogGroupProperty(
                log_group_arn=logs.log_group_arn
            )
        )
        self.machine = stepfunctions.CfnStateMachine(
            self,
            "Machine",
            state_machine_name=machine_name(settings),
            role_arn=role.role_arn,
            definition_string=machine_text(definition(settings)),
            logging_configuration=stepfunctions.CfnStateMachine.LoggingConfigurationProperty(
                level="ALL", include_execution_data=False, destinations=[destination]
            ),
            tracing_configuration=stepfunctions.CfnStateMachine.TracingConfigurationProperty(enabled=True),
        )
        self.machine.node.add_dependency(role.node.find_child("DefaultPolicy"))  # looked at where the machine is made

    def _role(self) -> iam.Role:
        settings, name = self._settings, self._settings.name
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            description=f"Brings releases to the cells of {name}",
        )
        place = f"{Aws.REGION}:{Aws.ACCOUNT_ID}"
        arn = f"arn:{Aws.PARTITION}"
        bootstrap = {"account": Aws.ACCOUNT_ID, "region": Aws.REGION}
        stacks = f"{arn}:cloudformation:{place}:stack/peakplan-{name}-*"
        parameters = f"{arn}:ssm:{place}:parameter/peakplan/{name}/*"
        templates = f"{arn}:s3:::{ASSETS_BUCKET.format(**bootstrap)}/*"
        changes = ("UpdateStack", "CancelUpdateStack", "DescribeStacks")
        may = {
            "Stacks": (changes, "cloudformation", stacks),
            "Progress": (("GetParameter", "PutParameter", "DeleteParameter"), "ssm", parameters),
            "Templates": (("GetObject",), "s3", templates),
        }
        for sid, (actions, service, resource) in may.items():
            names = [f"{service}:{action}" for action in actions]
            role.add_to_policy(iam.PolicyStatement(sid=sid, actions=names, resources=[resource]))
        # CloudFormation reads what templates name in SSM as whoever asks for the change, before it takes its own role.
        certificate, baked = settings.load_balancer.certificate_parameter, (each.parameter for each in images(settings))
        read = (f"peakplan/{name}/*", BOOTSTRAP_PARAMETER, certificate, *baked)
        named = [f"{arn}:ssm:{place}:parameter/{each.removeprefix('/')}" for each in read]
        role.add_to_policy(iam.PolicyStatement(sid="Read", actions=["ssm:GetParameters"], resources=named))
        execution = f"{arn}:iam::{Aws.ACCOUNT_ID}:role/{EXECUTION_ROLE.format(**bootstrap)}"
        passed = {"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}}
        role.add_to_policy(
            iam.PolicyStatement(sid="Execution", actions=["iam:PassRole"], resources=[execution], conditions=passed)
        )
        self._let_it_start_itself(role)
        marks = {"StringEquals": {"cloudwatch:namespace": metrics().namespace(MARKER)}}
        role.add_to_policy(
            iam.PolicyStatement(sid="Marks", actions=["cloudwatch:PutMetricData"], resources=["*"], conditions=marks)
        )
        looks = (*EVERYWHERE, "cloudwatch:GetMetricData")
        role.add_to_policy(iam.PolicyStatement(sid="Alarms", actions=list(looks), resources=["*"]))
        self._accept(role, stacks, parameters, templates)
        return role

    def _let_it_start_itself(self, role: iam.Role) -> None:
        """Let the machine run an execution for each stack and wait for it (AWS Step Functions developer guide, IAM
        policies for calling Step Functions: an execution's end is told by a rule that Step Functions manages).
        """
        name = machine_name(self._settings)
        place = f"{Aws.REGION}:{Aws.ACCOUNT_ID}"
        machine = f"arn:{Aws.PARTITION}:states:{place}:stateMachine:{name}"
        executions = f"arn:{Aws.PARTITION}:states:{place}:execution:{name}:*"
        rule = f"arn:{Aws.PARTITION}:events:{place}:rule/StepFunctionsGetEventsForStepFunctionsExecutionRule"
        may = {
            "Executions": (("states:StartExecution",), machine),
            "TheirEnd": (("states:DescribeExecution", "states:StopExecution"), executions),
            "ToldOfIt": (("events:PutTargets", "events:PutRule", "events:DescribeRule"), rule),
        }
        for sid, (actions, resource) in may.items():
            role.add_to_policy(iam.PolicyStatement(sid=sid, actions=list(actions), resources=[resource]))
        reason = (
            "Step Functions invents the names of executions; the machine's is exact (Service Authorization Reference)"
        )
        acknowledge(role, f"AwsSolutions::AwsSolutions-IAM5[Resource::{printed(executions)}]", reason)

    @staticmethod
    def _accept(role: iam.Role, stacks: str, parameters: str, templates: str) -> None:
        finding = "AwsSolutions::AwsSolutions-IAM5[Resource::{}]"
        reason = "CloudFormation invents the ids of stacks; the fleet's name is exact (Service Authorization Reference)"
        acknowledge(role, finding.format(printed(stacks)), reason)
        acknowledge(
            role, finding.format(printed(parameters)), "The fleet's own parameters, one for each stack and cell"
        )
        acknowledge(role, finding.format(printed(templates)), "A template's key is its hash (AWS CDK, Bootstrapping)")
        reason = (
            "These actions take no resource (Service Authorization Reference of CloudWatch and X-Ray; AWS Step "
            "Functions developer guide, Using CloudWatch Logs to log execution history)"
        )
        acknowledge(role, finding.format("*"), reason)


def printed(arn: str) -> str:
    """Return an ARN as the check prints it."""
    for token in ("Region", "AccountId", "Partition"):
        value = {"Region": Aws.REGION, "AccountId": Aws.ACCOUNT_ID, "Partition": Aws.PARTITION}[token]
        arn = arn.replace(value, f"<AWS::{token}>")
    return arn
