"""Private DNS names over the cells: one name for every cell, and a shuffle-sharded subset of them for each caller."""

import json
from collections.abc import Sequence
from pathlib import Path

from aws_cdk import Aws
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_synthetics as synthetics
from constructs import Construct

from infra.constructs.acknowledge import WRITES_WITHOUT_RESOURCE, accept_star, allow, objects_of, skip_in_checkov
from infra.constructs.names import CellNames
from infra.constructs.network import HTTPS, associate, cell_subnets
from infra.constructs.storage import private_bucket
from infra.fleet.metrics import metrics
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import names_in_tls, service_name, shards
from infra.fleet.synthetic_plans import KEPT_DAYS, MEMORY_MIB, PORT, RUNTIME, TIMEOUT_SECONDS, canary_name, headers


class Edge(Construct):
    """A private hosted zone. `names` are the host names that accept plan requests."""

    def __init__(
        self, scope: Construct, id: str, *, settings: FleetSettings, vpc: ec2.IVpc, cells: Sequence[CellNames]
    ) -> None:
        super().__init__(scope, id)
        self._settings, self._cells = settings, {names.cell: names for names in cells}
        self._zone = route53.PrivateHostedZone(
            self, "Zone", vpc=vpc, zone_name=settings.network.domain, comment=f"Peakplan {settings.name}"
        )
        associate(self, self._zone, settings)
        self.names = [self._spread(service_name(settings), settings.cell_names)]
        self.names += [
            self._spread(service_name(settings, caller), cells) for caller, cells in sorted(shards(settings).items())
        ]
        for cell in settings.cell_names:  # for callers that choose another cell themselves
            self._record(service_name(settings, cell), cell)

    def _spread(self, name: str, cells: Sequence[str]) -> str:
        """Create one weighted record for each cell; a cell whose targets are all unhealthy gets no new callers."""
        for cell in cells:
            self._record(name, cell, self._settings.weights[cell])
        return name

    def _record(self, name: str, cell: str, weight: int | None = None) -> None:
        label = name.removesuffix(f".{self._settings.network.domain}")
        route53.CfnRecordSet(
            self,
            f"{label}-{cell}",
            hosted_zone_id=self._zone.hosted_zone_id,
            name=name,
            type="A",
            set_identifier=None if weight is None else cell,
            weight=weight,
            alias_target=route53.CfnRecordSet.AliasTargetProperty(
                dns_name=self._cells[cell].address,
                hosted_zone_id=self._cells[cell].zone_id,
                evaluate_target_health=True,
            ),
        )


_PROGRAM = Path(__file__).with_name("ask_plans.py")
_SOURCE = "CloudWatch user guide, Required roles and permissions for canaries"


class SyntheticPlans(Construct):
    """A canary for each of the cells, with what they share: a role, a bucket, a security group."""

    def __init__(
        self, scope: Construct, id: str, *, settings: FleetSettings, vpc: ec2.IVpc, cells: Sequence[CellNames]
    ) -> None:
        super().__init__(scope, id)
        self._settings = settings
        security_group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, description="Canaries that ask plans", allow_all_outbound=False
        )
        cidr = ec2.Peer.ipv4(str(settings.network.cidr))
        security_group.add_egress_rule(cidr, ec2.Port.tcp(PORT), "Cells")
        security_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS by endpoints")
        self._bucket = private_bucket(self, "Runs", settings, logs="RunsAccessLogs", days=KEPT_DAYS)
        self._role = self._make_role()
        self._subnets = vpc.select_subnets(subnet_type=cell_subnets(settings).subnet_type).subnet_ids
        self._group = security_group.security_group_id
        for cell in cells:
            ec2.CfnSecurityGroupIngress(
                self,
                f"{cell.cell}-ingress",
                ip_protocol="tcp",
                from_port=PORT,
                to_port=PORT,
                group_id=cell.security_group,
                source_security_group_id=self._group,
                description="The canary",
            )
            self._canary(cell)

    def _canary(self, cell: CellNames) -> None:
        name, settings = canary_name(self._settings.name, cell.cell), self._settings
        environment = {
            "ADDRESS": f"{cell.address}:{PORT}",
            "HEADERS": json.dumps(headers(settings.load_balancer.authentication)),
            "NAME": names_in_tls(settings)[0],
            "DEADLINE_MS": str(settings.slo.p99_ms),
        }
        kind = synthetics.CfnCanary
        canary = kind(
            self,
            cell.cell,
            name=name,
            artifact_s3_location=f"s3://{self._bucket.bucket_name}/{name}",
            code=kind.CodeProperty(handler="index.handler", script=_PROGRAM.read_text(encoding="utf-8")),
            execution_role_arn=self._role.role_arn,
            runtime_version=RUNTIME,
            schedule=kind.ScheduleProperty(expression="rate(1 minute)"),
            run_config=kind.RunConfigProperty(
                environment_variables=environment, memory_in_mb=MEMORY_MIB, timeout_in_seconds=TIMEOUT_SECONDS
            ),
            start_canary_after_creation=True,
            success_retention_period=KEPT_DAYS,
            failure_retention_period=KEPT_DAYS,
            provisioned_resource_cleanup="AUTOMATIC",  # its function goes with it
            vpc_config=kind.VPCConfigProperty(subnet_ids=self._subnets, security_group_ids=[self._group]),
        )
        canary.node.add_dependency(self._role.node.find_child("DefaultPolicy"))  # it starts as soon as it is made

    def _make_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Asks the cells of {self._settings.name} for plans",
        )
        logs = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:/aws/lambda/cwsyn-peakplan-*"
        network = ("ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DeleteNetworkInterface")
        reason = f"What every canary is to have ({_SOURCE}): "
        named = reason + "Synthetics names its function cwsyn-<canary>-<id>"
        allow(role, "Store", ["s3:PutObject"], self._bucket.arn_for_objects("*"))
        accept_star(role, objects_of(self._bucket), reason + "the bucket holds its runs and nothing else")
        allow(role, "Place", ["s3:GetBucketLocation"], self._bucket.bucket_arn)
        allow(role, "Buckets", ["s3:ListAllMyBuckets"], "*")
        allow(role, "Say", ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"), logs, because=named)
        allow(role, "Stand", network, "*")
        reports = {"StringEquals": {"cloudwatch:namespace": metrics().namespace("SuccessPercent")}}
        allow(role, "Report", ["cloudwatch:PutMetricData"], "*", conditions=reports)
        accept_star(role, "*", reason + "these actions take no resource, or the account's buckets")
        why = f"A function in a VPC makes its own network interfaces ({_SOURCE}); EC2 knows no narrower resource then"
        skip_in_checkov(role.node.find_child("DefaultPolicy"), WRITES_WITHOUT_RESOURCE, why)
        return role
