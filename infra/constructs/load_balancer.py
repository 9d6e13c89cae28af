"""The load balancer of a cell, and the endpoint service before it, by which callers come through PrivateLink."""

from datetime import timedelta

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_elasticloadbalancingv2_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.acknowledge import ACCESS_LOGS_OF_BALANCERS, MANUAL_ACCEPTANCE, acknowledge, skip_in_checkov
from infra.constructs.network import HTTPS, cell_subnets
from infra.constructs.schedule import ScheduledCalls
from infra.constructs.storage import access_log_bucket
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import ENDPOINT_SERVICE_OUTPUT
from infra.fleet.sizing import reserved_units

SERVICE_PORT = 8080


class LoadBalancer(Construct):
    """An Application Load Balancer that named callers reach over TLS 1.3, and the target group behind it."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: FleetSettings,
        vpc: ec2.IVpc,
        schedules: scheduler.CfnScheduleGroup,
    ) -> None:
        """Create the load balancer; `schedules` group the calls that reserve its capacity."""
        super().__init__(scope, id)
        self._settings, self._vpc = settings, vpc
        self.security_group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, description="Callers to the load balancer", allow_all_outbound=False
        )
        for caller in settings.callers:
            for cidr in caller.cidrs:
                self.security_group.add_ingress_rule(
                    ec2.Peer.ipv4(str(cidr)), ec2.Port.tcp(HTTPS), f"Caller {caller.name}"
                )
        self.load_balancer = self._load_balancer()
        self.target_group = self._target_group()
        self.listener = self._add_listener()
        self._reserve_for_events(schedules)

    def _load_balancer(self) -> elb.ApplicationLoadBalancer:
        settings = self._settings
        public = settings.load_balancer.scheme == "internet-facing"
        load_balancer = elb.ApplicationLoadBalancer(
            self,
            "Alb",
            vpc=self._vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC) if public else cell_subnets(settings),
            internet_facing=public,
            security_group=self.security_group,
            deletion_protection=settings.deletion_protection,
            drop_invalid_header_fields=True,
            desync_mitigation_mode=elb.DesyncMitigationMode.STRICTEST,
            # Callers' persistent connections end periodically, so that they spread over the cells again.
            client_keep_alive=Duration.minutes(10),
            idle_timeout=Duration.seconds(60),
        )
        load_balancer.set_attribute("zonal_shift.config.enabled", "true")
        logs = access_log_bucket(self, "AccessLogs", settings)
        load_balancer.log_access_logs(logs)
        load_balancer.log_connection_logs(logs, "connections")  # handshakes that failed are in no access log
        return load_balancer

    def _target_group(self) -> elb.ApplicationTargetGroup:
        return elb.ApplicationTargetGroup(
            self,
            "Hosts",
            vpc=self._vpc,
            port=SERVICE_PORT,
            protocol=elb.ApplicationProtocol.HTTP,
            target_type=elb.TargetType.INSTANCE,
            load_balancing_algorithm_type=elb.TargetGroupLoadBalancingAlgorithmType.LEAST_OUTSTANDING_REQUESTS,
            deregistration_delay=Duration.seconds(self._settings.drain_seconds),
            health_check=elb.HealthCheck(
                path="/readyz",  # passes only after a real inference, not merely a live process
                interval=Duration.seconds(5),
                timeout=Duration.seconds(4),
                healthy_threshold_count=2,
                unhealthy_threshold_count=2,
                healthy_http_codes="200",
            ),
        )

    def _reserve_for_events(self, schedules: scheduler.CfnScheduleGroup) -> None:
        wanted = {event: reserved_units(self._settings, event.multiplier) for event in self._settings.events}
        if not any(wanted.values()):
            return
        arn = self.load_balancer.load_balancer_arn
        call = "elasticloadbalancingv2:modifyCapacityReservation"
        calls = ScheduledCalls(
            self,
            "Reserves",
            group=schedules,
            purpose="Reserves load balancer capacity around events",
            actions=["elasticloadbalancing:ModifyCapacityReservation"],
            resources=[arn],
        )
        for event, units in wanted.items():
            due = event.start - timedelta(minutes=event.lead_minutes)
            reserve = {"LoadBalancerArn": arn, "MinimumLoadBalancerCapacity": {"CapacityUnits": units}}
            calls.at(due, f"{event.name}-begins", call, reserve)
            calls.at(event.end, f"{event.name}-ends", call, {"LoadBalancerArn": arn, "ResetCapacityReservation": True})

    def _certificate(self) -> elb.ListenerCertificate:
        name = self._settings.load_balancer.certificate_parameter
        return elb.ListenerCertificate.from_arn(ssm.StringParameter.value_for_string_parameter(self, name))

    def answer_one_path(self, id: str, port: int, policy: elb.SslPolicy, rule: str, path: str) -> None:
        """Answer one path only on `port`, without authentication, to the peers that the security group admits."""
        listener = self.load_balancer.add_listener(
            id,
            port=port,
            protocol=elb.ApplicationProtocol.HTTPS,
            ssl_policy=policy,
            certificates=[self._certificate()],
            default_action=elb.ListenerAction.fixed_response(404),
            open=False,
        )
        listener.add_action(
            rule,
            priority=1,
            conditions=[elb.ListenerCondition.path_patterns([path])],
            action=elb.ListenerAction.forward([self.target_group]),
        )

    def _add_listener(self) -> elb.ApplicationListener:
        wanted = self._settings.load_balancer
        authentication = wanted.authentication
        # Said even where it is off: CloudFormation does not take back what a template leaves out (mtls, then jwt).
        trusted = elb.MutualAuthentication(mutual_authentication_mode=elb.MutualAuthenticationMode.OFF)
        forward = elb.ListenerAction.forward([self.target_group])
        if authentication.method == "mtls" and authentication.trust_bundle:
            bucket, key, version = authentication.trusted(Stack.of(self).account)
            named = s3.Bucket.from_bucket_name(self, "TrustBundle", bucket)
            store = elb.TrustStore(self, "TrustStore", bucket=named, key=key, version=version)
            trusted = elb.MutualAuthentication(
                mutual_authentication_mode=elb.MutualAuthenticationMode.VERIFY, trust_store=store
            )
        if authentication.method == "jwt" and authentication.issuer and authentication.jwks:
            forward = elb.ListenerAction.authenticate_jwt(
                issuer=authentication.issuer, jwks_endpoint=authentication.jwks, next=forward
            )
        return self.load_balancer.add_listener(
            "Tls",
            port=HTTPS,
            protocol=elb.ApplicationProtocol.HTTPS,
            ssl_policy=elb.SslPolicy.TLS13_13,
            certificates=[self._certificate()],
            mutual_authentication=trusted,
            default_action=forward,
            open=False,
        )


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
        # It speaks TLS 1.2 too: a Network Load Balancer's health checks fail where a target supports only TLS 1.3, and
        # one without a healthy target sends callers everywhere, so nothing would ever be taken out. Source: Elastic
        # Load Balancing, Network Load Balancers, Health checks for your target groups.
        load_balancer.answer_one_path("Health", HEALTH_PORT, elb.SslPolicy.TLS13_RES, "Readiness", "/readyz")
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
        # Proxy protocol is off: the target would not understand it (infra/fleet/shards.py).
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
