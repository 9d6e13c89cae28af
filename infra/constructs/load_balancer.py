"""The load balancer of a cell: listener, TLS, authentication, targets, and the access log."""

from __future__ import annotations

from datetime import timedelta

from aws_cdk import Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.access import HTTPS
from infra.constructs.buckets import access_log_bucket
from infra.constructs.network import cell_subnets
from infra.constructs.scheduled_calls import ScheduledCalls
from infra.fleet.settings import FleetSettings
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
        """Reserve capacity when an event's own capacity is due, and release it at the event's end."""
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

    def add_health_listener(self, port: int) -> None:
        """Answer /readyz, and nothing else, on `port` to the peers that the security group admits.

        It speaks TLS 1.2 too: a Network Load Balancer's health checks fail where a target supports only TLS 1.3, and
        one without a healthy target sends callers everywhere, so nothing would ever be taken out. Source: Elastic Load
        Balancing, Network Load Balancers, Health checks for your target groups.
        """
        self._answer_one_path("Health", port, elb.SslPolicy.TLS13_RES, "Readiness", "/readyz")

    def add_canary_listener(self, port: int) -> None:
        """Answer /plan, and nothing else, on `port` to the peers that the security group admits, verifying nobody."""
        self._answer_one_path("Canary", port, elb.SslPolicy.TLS13_13, "Plans", "/plan")

    def _answer_one_path(self, id: str, port: int, policy: elb.SslPolicy, rule: str, path: str) -> None:
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
