"""The access of callers outside the VPC to the fleet: routes, the private zone and the certificate."""

from __future__ import annotations

from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.fleet.host_names import associated_by_us, names_in_tls
from infra.fleet.settings import FleetSettings

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
    """Issue a certificate by the settings' private CA, if any.

    Its ARN is stored in the parameter that cells read.
    """
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
