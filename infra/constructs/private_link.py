"""PrivateLink: the endpoint service by which callers of other networks and accounts reach a cell."""

from __future__ import annotations

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_elasticloadbalancingv2_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.access import HTTPS
from infra.constructs.acknowledge import ACCESS_LOGS_OF_BALANCERS, MANUAL_ACCEPTANCE, acknowledge, skip_in_checkov
from infra.constructs.load_balancer import LoadBalancer
from infra.fleet.host_names import ENDPOINT_SERVICE_OUTPUT
from infra.fleet.settings import FleetSettings

# This port of the cell's load balancer serves the health checks of the NLB, which has no certificate or token.
HEALTH_PORT = 8443


class EndpointService(Construct):
    """A cell behind PrivateLink: a network load balancer before the cell's own, and the service that callers ask for.

    TLS, client certificates and tokens pass through to the cell's load balancer as they are. Callers' networks need no
    route to the fleet's, and may have the same addresses. `load_balancer_name` and `target_group_name` are those of
    the network load balancer's metrics.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: FleetSettings,
        name: str,
        vpc: ec2.IVpc,
        subnets: ec2.SubnetSelection,
        load_balancer: LoadBalancer,
    ) -> None:
        """Create the service; `name` is the cell's and `load_balancer` the cell's own."""
        super().__init__(scope, id)
        self._settings, self._vpc = settings, vpc
        load_balancer.add_health_listener(HEALTH_PORT)
        front = self._front(name, subnets, load_balancer)
        self.load_balancer_name = front.load_balancer_full_name
        service = self._service(front)
        CfnOutput(
            Stack.of(self),
            ENDPOINT_SERVICE_OUTPUT,
            value=service.vpc_endpoint_service_name,
            description=f"Callers make an interface endpoint to {name} with this name (docs/fleet.md)",
        )

    def _front(self, name: str, subnets: ec2.SubnetSelection, load_balancer: LoadBalancer) -> elb.NetworkLoadBalancer:
        """Return the network load balancer, whose one target is the cell's load balancer."""
        front = elb.NetworkLoadBalancer(
            self,
            "LoadBalancer",
            vpc=self._vpc,
            vpc_subnets=subnets,
            internet_facing=False,
            cross_zone_enabled=True,  # a caller's zone may have none of the healthy nodes
            deletion_protection=self._settings.deletion_protection,
            security_groups=[self._security_group(name, load_balancer)],
            # PrivateLink callers are admitted by the endpoint service's permissions; their addresses mean nothing here.
            enforce_security_group_inbound_rules_on_private_link_traffic=False,
        )
        reason = "It forwards TCP and would log TLS listeners alone; the cell's load balancer logs every request"
        acknowledge(front, "AwsSolutions::AwsSolutions-ELB2", reason)
        skip_in_checkov(front, ACCESS_LOGS_OF_BALANCERS, reason)
        listener = front.add_listener("Tcp", port=HTTPS, protocol=elb.Protocol.TCP)
        # Proxy protocol is off: the target would not understand it (infra/fleet/caller_limits.py).
        group = listener.add_targets(
            "Cell",
            port=HTTPS,
            protocol=elb.Protocol.TCP,
            targets=[targets.AlbListenerTarget(load_balancer.listener)],
            health_check=elb.HealthCheck(
                protocol=elb.Protocol.HTTPS, port=str(HEALTH_PORT), path="/readyz", healthy_http_codes="200"
            ),
        )
        self.target_group_name = group.target_group_full_name
        return front

    def _security_group(self, name: str, load_balancer: LoadBalancer) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=self._vpc, description=f"PrivateLink to {name}", allow_all_outbound=False
        )
        for port, what in ((HTTPS, "Callers by PrivateLink"), (HEALTH_PORT, "Health checks")):
            group.add_egress_rule(load_balancer.security_group, ec2.Port.tcp(port), what)
            load_balancer.security_group.add_ingress_rule(group, ec2.Port.tcp(port), what)
        return group

    def _service(self, front: elb.NetworkLoadBalancer) -> ec2.VpcEndpointService:
        """Return the endpoint service, open to the callers' accounts, or to the fleet's own where none is named."""
        settings = self._settings
        accounts = sorted({account for caller in settings.callers for account in caller.accounts})
        service = ec2.VpcEndpointService(
            self,
            "Service",
            vpc_endpoint_service_load_balancers=[front],
            acceptance_required=settings.access.acceptance_required,
            allowed_principals=[iam.AccountPrincipal(account) for account in accounts or [Stack.of(self).account]],
        )
        if not settings.access.acceptance_required:
            skip_in_checkov(
                service, MANUAL_ACCEPTANCE, "The fleet file admits the callers' accounts without asking again"
            )
        return service
