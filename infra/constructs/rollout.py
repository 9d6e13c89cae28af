"""The state machine that brings releases to the cells, and the role with which it may."""

import json

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.constructs.acknowledge import allow
from infra.constructs.storage import log_group
from infra.fleet.images import images
from infra.fleet.metrics import metrics
from infra.fleet.rollout_machine import definition
from infra.fleet.rollout_states import MARKER, machine_name
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


class RolloutMachine(Construct):
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
            # `Stack.to_json_string` would leave out each null, and a result path that is null drops a result: without
            # it the result takes the place of all that the machine knows.
            definition_string=json.dumps(definition(settings)),
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
        ids = "CloudFormation invents the ids of stacks; the fleet's name is exact (Service Authorization Reference)"
        allow(role, "Stacks", [f"cloudformation:{change}" for change in changes], stacks, because=ids)
        progress = ("ssm:GetParameter", "ssm:PutParameter", "ssm:DeleteParameter")
        own = "The fleet's own parameters, one for each stack and cell"
        allow(role, "Progress", progress, parameters, because=own)
        hashed = "A template's key is its hash (AWS CDK, Bootstrapping)"
        allow(role, "Templates", ["s3:GetObject"], templates, because=hashed)
        # CloudFormation reads a template's SSM parameters with the caller's role, before it assumes its own.
        certificate, baked = settings.load_balancer.certificate_parameter, (each.parameter for each in images(settings))
        read = (f"peakplan/{name}/*", BOOTSTRAP_PARAMETER, certificate, *baked)
        named = [f"{arn}:ssm:{place}:parameter/{each.removeprefix('/')}" for each in read]
        allow(role, "Read", ["ssm:GetParameters"], *named)
        execution = f"{arn}:iam::{Aws.ACCOUNT_ID}:role/{EXECUTION_ROLE.format(**bootstrap)}"
        passed = {"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}}
        allow(role, "Execution", ["iam:PassRole"], execution, conditions=passed)
        self._let_it_start_itself(role)
        marks = {"StringEquals": {"cloudwatch:namespace": metrics().namespace(MARKER)}}
        allow(role, "Marks", ["cloudwatch:PutMetricData"], "*", conditions=marks)
        no_resource = (
            "These actions take no resource (Service Authorization Reference of CloudWatch and X-Ray; AWS Step "
            "Functions developer guide, Using CloudWatch Logs to log execution history)"
        )
        allow(role, "Alarms", (*EVERYWHERE, "cloudwatch:GetMetricData"), "*", because=no_resource)
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
        invented = (
            "Step Functions invents the names of executions; the machine's is exact (Service Authorization Reference)"
        )
        ended = ("states:DescribeExecution", "states:StopExecution")
        allow(role, "Executions", ["states:StartExecution"], machine)
        allow(role, "TheirEnd", ended, executions, because=invented)
        allow(role, "ToldOfIt", ("events:PutTargets", "events:PutRule", "events:DescribeRule"), rule)
