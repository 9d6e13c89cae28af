"""The workers of an event's load test in a caller's network, and the state machine that starts them. Not run in AWS."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from aws_cdk import Aws
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_stepfunctions as stepfunctions
from constructs import Construct

from infra.constructs.access import HTTPS
from infra.constructs.acknowledge import WRITES_WITHOUT_RESOURCE, acknowledge, skip_in_checkov
from infra.constructs.log_storage import log_group
from infra.constructs.rollout import EVERYWHERE, machine_text
from infra.fleet.event_load import MEMORY_MIB, MINUTE, EventLoad, function_seconds
from infra.fleet.event_load_bundle import HANDLER, bundle
from infra.fleet.event_load_file import CallerNetwork
from infra.fleet.event_load_machine import definition

RUNTIME = "python3.14"
_IN_VPC = ("ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DeleteNetworkInterface")
_SOURCE = "AWS Lambda developer guide, Giving Lambda functions access to resources in an Amazon VPC"


class EventLoadMachine(Construct):
    """The machine `peakplan-<fleet>-load`, as `machine`, and its one function, as `function`."""

    def __init__(self, scope: Construct, id: str, *, load: EventLoad, network: CallerNetwork) -> None:
        super().__init__(scope, id)
        self._load, self._network = load, network
        self.function = self._function()
        self.machine = self._machine()

    def _function(self) -> functions.CfnFunction:
        load, network = self._load, self._network
        program = assets.Asset(self, "Program", path=str(bundle(Path(mkdtemp(prefix="peakplan-load-")), network)))
        security_group = ec2.CfnSecurityGroup(
            self,
            "SecurityGroup",
            vpc_id=network.vpc_id,
            group_description=f"Workers that load {load.settings.name}",
            security_group_egress=[
                ec2.CfnSecurityGroup.EgressProperty(
                    ip_protocol="tcp", from_port=HTTPS, to_port=HTTPS, cidr_ip="0.0.0.0/0", description="The fleet"
                )
            ],
        )
        logs = log_group(self, "WorkersLog", load.settings, name=f"/aws/lambda/{load.name}")
        role = self._worker_role(logs.log_group_arn)
        kind = functions.CfnFunction
        function = kind(
            self,
            "Worker",
            function_name=load.name,
            description=f"A minute of load for {load.settings.name}",
            runtime=RUNTIME,
            handler=HANDLER,
            code=kind.CodeProperty(s3_bucket=program.s3_bucket_name, s3_key=program.s3_object_key),
            memory_size=MEMORY_MIB,
            timeout=function_seconds(),
            reserved_concurrent_executions=load.most_at_once,  # no more run, whoever starts them
            environment=kind.EnvironmentProperty(variables=self._variables()),
            vpc_config=kind.VpcConfigProperty(
                subnet_ids=list(network.subnet_ids), security_group_ids=[security_group.attr_group_id]
            ),
            logging_config=kind.LoggingConfigProperty(log_group=logs.log_group_name),
            role=role.role_arn,
        )
        function.node.add_dependency(role.node.find_child("DefaultPolicy"))
        functions.CfnEventInvokeConfig(
            self,
            "Once",
            function_name=function.ref,
            qualifier="$LATEST",
            maximum_retry_attempts=0,  # a minute that is over is not sent again
            maximum_event_age_in_seconds=MINUTE,
        )
        return function

    def _variables(self) -> dict[str, str]:
        settings, identity = self._load.settings, self._network.identity
        method = settings.load_balancer.authentication.method
        # A function's variables hold 4 KB and can be read by whoever may look at it: they say where the secret is.
        variables = {"URL": self._load.url, "FLEET": settings.name, "METHOD": method}
        return variables | ({} if method == "none" else {"IDENTITY": str(identity)})

    def _worker_role(self, log_arn: str) -> iam.Role:
        role = iam.Role(
            self,
            "WorkerRole",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Stands in a caller's network and logs what came of a load of {self._load.settings.name}",
        )
        role.add_to_policy(
            iam.PolicyStatement(sid="Say", actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_arn])
        )
        if identity := self._network.identity:  # Secrets Manager ends a secret's ARN with six characters of its own
            arn = f"arn:{Aws.PARTITION}:secretsmanager:{Aws.REGION}:{Aws.ACCOUNT_ID}:secret:{identity}-??????"
            secret = iam.PolicyStatement(sid="Be", actions=["secretsmanager:GetSecretValue"], resources=[arn])
            role.add_to_policy(secret)
        role.add_to_policy(iam.PolicyStatement(sid="Stand", actions=list(_IN_VPC), resources=["*"]))
        reason = f"A function in a VPC makes its own interfaces ({_SOURCE}); EC2 knows no narrower resource then"
        acknowledge(role, "AwsSolutions::AwsSolutions-IAM5[Resource::*]", reason)
        skip_in_checkov(role.node.find_child("DefaultPolicy"), WRITES_WITHOUT_RESOURCE, reason)
        return role

    def _machine(self) -> stepfunctions.CfnStateMachine:
        load, name = self._load, self._load.name
        logs = log_group(self, "Log", load.settings, name=f"/aws/vendedlogs/states/{name}")
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            description=f"Starts the workers that load {load.settings.name}, and looks at its alarms",
        )
        role.add_to_policy(
            iam.PolicyStatement(sid="Send", actions=["lambda:InvokeFunction"], resources=[self.function.attr_arn])
        )
        role.add_to_policy(iam.PolicyStatement(sid="Look", actions=list(EVERYWHERE), resources=["*"]))
        reason = "These take no resource (Service Authorization Reference of CloudWatch, CloudWatch Logs, X-Ray)"
        acknowledge(role, "AwsSolutions::AwsSolutions-IAM5[Resource::*]", reason)
        kind = stepfunctions.CfnStateMachine
        destination = kind.LogDestinationProperty(
            cloud_watch_logs_log_group=kind.CloudWatchLogsLogGroupProperty(log_group_arn=logs.log_group_arn)
        )
        machine = kind(
            self,
            "Machine",
            state_machine_name=name,
            role_arn=role.role_arn,
            definition_string=machine_text(definition(load, self.function.attr_arn)),
            logging_configuration=kind.LoggingConfigurationProperty(
                level="ALL", include_execution_data=False, destinations=[destination]
            ),
            tracing_configuration=kind.TracingConfigurationProperty(enabled=True),
        )
        machine.node.add_dependency(role)
        return machine
