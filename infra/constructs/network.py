"""The network of a fleet: private subnets in every zone, endpoints instead of NAT, flow logs, callers' ways in."""

from aws_cdk import Aws, Stack
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.acknowledge import acknowledge
from infra.constructs.storage import log_group
from infra.fleet import addresses
from infra.fleet.network_parts import GATEWAYS, by_service
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import associated_by_us, names_in_tls

HTTP, HTTPS = 80, 443


def routes_to_callers(scope: Construct, vpc: ec2.Vpc, settings: FleetSettings) -> None:
    """Route traffic for callers' networks over the settings' transit gateway or peering, if there is one."""
    access = settings.access
    if not access.transit_gateway and not access.peering:
        return
    cells = vpc.select_subnets(subnet_group_name="Cells")
    attachment = None
    if access.transit_gateway:
        attachment = ec2.CfnTransitGatewayAttachment(
            scope,
            "TransitGateway",
            transit_gateway_id=access.transit_gateway,
            vpc_id=vpc.vpc_id,
            subnet_ids=cells.subnet_ids,
        )
    cidrs = sorted({str(cidr) for caller in settings.callers for cidr in caller.cidrs})
    for zone, subnet in enumerate(cells.subnets, start=1):
        for number, cidr in enumerate(cidrs, start=1):
            route = ec2.CfnRoute(
                scope,
                f"ToCaller-{number}-{zone}",
                route_table_id=subnet.route_table.route_table_id,
                destination_cidr_block=cidr,
                transit_gateway_id=access.transit_gateway,
                vpc_peering_connection_id=access.peering,
            )
            if attachment is not None:
                route.add_resource_dependency(attachment)


def issued_certificate(scope: Construct, settings: FleetSettings) -> None:
    """Issue a certificate by the settings' private CA, if any. Its ARN is stored in the parameter that cells read."""
    authority = settings.load_balancer.certificate_authority
    if authority is None:
        return
    name, wildcard = names_in_tls(settings)
    certificate = acm.CfnCertificate(
        scope,
        "Certificate",
        domain_name=name,
        subject_alternative_names=[wildcard],
        certificate_authority_arn=authority,
    )
    ssm.StringParameter(
        scope,
        "CertificateArn",
        parameter_name=settings.load_balancer.certificate_parameter,
        string_value=certificate.ref,
        description=f"Certificate of the load balancers of {settings.name}",
    )


def associate(scope: Construct, zone: route53.PrivateHostedZone, settings: FleetSettings) -> None:
    """Let the callers' VPCs of this account resolve the fleet's names.

    VPCs of other accounts are associated by their owners.
    """
    for caller in associated_by_us(settings):
        zone.add_vpc(
            ec2.Vpc.from_vpc_attributes(
                scope,
                f"Caller-{caller.vpc_id}",
                vpc_id=caller.vpc_id,
                availability_zones=[f"{caller.region}a"],  # CDK requires a zone, and nothing uses it
                region=caller.region,
            )
        )


ZONES_BY_NAME = "CloudFormation-Validate::W3010"


def flow_logs(scope: Construct, vpc: ec2.IVpc, settings: FleetSettings) -> None:
    """Log every accepted and refused flow of `vpc`."""
    group = log_group(scope, "FlowLogs", settings)
    ec2.FlowLog(
        scope,
        "FlowLog",
        resource_type=ec2.FlowLogResourceType.from_vpc(vpc),
        destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
        traffic_type=ec2.FlowLogTrafficType.ALL,
    )


def parameter_name(settings: FleetSettings, name: str) -> str:
    """Return the name of the parameter by which the network informs cells, which import nothing from another stack."""
    return f"/peakplan/{settings.name}/network/{name}"


class Network(Construct):
    """The VPC and the parameters that it publishes for cells."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings) -> None:
        super().__init__(scope, id)
        self._settings = settings
        wanted = settings.network
        cut = addresses.subnets(settings)
        private = ec2.SubnetType.PRIVATE_WITH_EGRESS if wanted.nat else ec2.SubnetType.PRIVATE_ISOLATED
        subnets = [ec2.SubnetConfiguration(name="Cells", subnet_type=private, cidr_mask=cut.cells)]
        if cut.public is not None:
            subnets.append(
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=cut.public,
                    map_public_ip_on_launch=False,
                )
            )
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            vpc_name=f"peakplan-{settings.name}",
            ip_addresses=ec2.IpAddresses.cidr(str(wanted.cidr)),
            availability_zones=list(settings.availability_zones),
            nat_gateways=len(settings.availability_zones) if wanted.nat else 0,
            subnet_configuration=subnets,
            # The alternative is a custom resource with a Lambda function, and nothing here uses the default group.
            restrict_default_security_group=False,
        )
        acknowledge(self.vpc, ZONES_BY_NAME, "The fleet file names zones, because inf2 and trn1 are not in every one")
        flow_logs(self, self.vpc, settings)
        self._endpoints()
        routes_to_callers(self, self.vpc, settings)
        issued_certificate(self, settings)
        self._publish(private)

    def _endpoints(self) -> None:
        cidr = str(self._settings.network.cidr)
        security_group = ec2.SecurityGroup(
            self, "Endpoints", vpc=self.vpc, description="Interface endpoints", allow_all_outbound=False
        )
        security_group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(HTTPS), "Everything in this VPC")
        for service, asked in by_service(self._settings.endpoints).items():
            id = "".join(part.capitalize() for part in service.split("."))
            made: ec2.InterfaceVpcEndpoint | ec2.GatewayVpcEndpoint
            if service in GATEWAYS:
                made = self.vpc.add_gateway_endpoint(id, service=ec2.GatewayVpcEndpointAwsService(service))
            else:
                made = self.vpc.add_interface_endpoint(
                    id,
                    service=ec2.InterfaceVpcEndpointAwsService(service),
                    security_groups=[security_group],
                    open=False,
                    subnets=ec2.SubnetSelection(subnet_group_name="Cells"),
                    private_dns_enabled=True,
                )
            for endpoint in asked:
                made.add_to_policy(
                    iam.PolicyStatement(
                        principals=[iam.AnyPrincipal()],
                        actions=list(endpoint.actions),
                        resources=[resource.format(fleet=self._settings.name) for resource in endpoint.resources],
                        conditions={"StringEquals": {"aws:PrincipalAccount": Aws.ACCOUNT_ID}},
                    )
                )

    def _publish(self, private: ec2.SubnetType) -> None:
        cells = self.vpc.select_subnets(subnet_type=private).subnet_ids
        public_subnets = self.vpc.public_subnets
        values = {"vpc-id": self.vpc.vpc_id}
        values |= {f"cell-subnet-{number}": subnet for number, subnet in enumerate(cells, start=1)}
        values |= {f"public-subnet-{number}": subnet.subnet_id for number, subnet in enumerate(public_subnets, start=1)}
        for name, value in values.items():
            ssm.StringParameter(
                self,
                f"{name}-parameter",
                parameter_name=parameter_name(self._settings, name),
                string_value=value,
                description=f"{name} of the network of {Stack.of(self).stack_name}",
            )


def imported_vpc(
    scope: Construct, settings: FleetSettings, *, cells: bool = True, load_balancers: bool = True
) -> ec2.IVpc:
    """Return the fleet's VPC for another stack, from parameters read at deploy time and without an import.

    It knows the subnets of the cells and of public load balancers only where the stack places something in them: CDK's
    checks refuse parameters that nothing uses.
    """

    def read(name: str) -> str:
        return ssm.StringParameter.value_for_string_parameter(scope, parameter_name(settings, name))

    def each(name: str) -> list[str]:
        return [read(f"{name}-{number}") for number in range(1, len(settings.availability_zones) + 1)]

    private = each("cell-subnet") if cells else None
    public = load_balancers and settings.load_balancer.scheme == "internet-facing"
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "Network",
        vpc_id=read("vpc-id"),
        availability_zones=list(settings.availability_zones),
        vpc_cidr_block=str(settings.network.cidr),
        private_subnet_ids=private if settings.network.nat else None,
        isolated_subnet_ids=None if settings.network.nat else private,
        public_subnet_ids=each("public-subnet") if public else None,
    )
    acknowledge(
        scope, "Annotation::@aws-cdk/aws-ec2:noSubnetRouteTableId", "Nothing asks an imported subnet for its routes"
    )
    return vpc


def cell_subnets(settings: FleetSettings) -> ec2.SubnetSelection:
    """Return the private subnets of the cells, one in each zone."""
    nat = settings.network.nat
    return ec2.SubnetSelection(
        subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS if nat else ec2.SubnetType.PRIVATE_ISOLATED
    )
