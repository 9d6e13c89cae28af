"""The load balancer of a cell: listener, TLS, who may come in, targets, and the access log."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.acknowledge import acknowledge
from infra.constructs.network import HTTPS, cell_subnets, removal_policy
from infra.fleet import sizing
from infra.fleet.settings import FleetSettings

SERVICE_PORT = 8080


class LoadBalancer(Construct):
    """An Application Load Balancer that named callers reach over TLS 1.3, and the target group behind it."""

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, vpc: ec2.IVpc) -> None:
        super().__init__(scope, id)
        self._settings, self._vpc = settings, vpc
        self.security_group = ec2.SecurityGroup(
            self, "Guard", vpc=vpc, description="Callers to the load balancer", allow_all_outbound=False
        )
        for caller in settings.callers:
            for cidr in caller.cidrs:
                self.security_group.add_ingress_rule(
                    ec2.Peer.ipv4(str(cidr)), ec2.Port.tcp(HTTPS), f"Caller {caller.name}"
                )
        self.load_balancer = self._load_balancer()
        self.target_group = self._target_group()
        self._add_listener()

    def _load_balancer(self) -> elb.ApplicationLoadBalancer:
        settings = self._settings
        public = settings.load_balancer.scheme == "internet-facing"
        load_balancer = elb.ApplicationLoadBalancer(
            self,
            "Balancer",
            vpc=self._vpc,
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC) if public else cell_subnets(settings),
            internet_facing=public,
            security_group=self.security_group,
            deletion_protection=settings.deletion_protection,
            drop_invalid_header_fields=True,
            desync_mitigation_mode=elb.DesyncMitigationMode.STRICTEST,
            minimum_capacity_unit=sizing.reserved_units(settings) or None,
            # Callers' kept connections end now and then, so that they spread over cells again.
            client_keep_alive=Duration.minutes(10),
            idle_timeout=Duration.seconds(60),
        )
        load_balancer.set_attribute("zonal_shift.config.enabled", "true")
        load_balancer.log_access_logs(self._access_logs())
        return load_balancer

    def _access_logs(self) -> s3.Bucket:
        retained = removal_policy(self._settings)
        bucket = s3.Bucket(
            self,
            "AccessLogs",
            encryption=s3.BucketEncryption.S3_MANAGED,  # the only kind that load balancers can write to
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(self._settings.retention_days),
                    noncurrent_version_expiration=Duration.days(1),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
            removal_policy=retained,
        )
        acknowledge(bucket, "AwsSolutions::AwsSolutions-S1", "It holds access logs; a log of its own would fill itself")
        return bucket

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
                path="/readyz",  # proven by a real inference, not by a process that is alive
                interval=Duration.seconds(5),
                timeout=Duration.seconds(4),
                healthy_threshold_count=2,
                unhealthy_threshold_count=2,
                healthy_http_codes="200",
            ),
        )

    def _add_listener(self) -> None:
        wanted = self._settings.load_balancer
        certificate = ssm.StringParameter.value_for_string_parameter(self, wanted.certificate_parameter)
        authentication = wanted.authentication
        trusted = None
        forward = elb.ListenerAction.forward([self.target_group])
        if authentication.method == "mtls" and authentication.trust_bundle:
            bucket, _, key = authentication.trust_bundle.removeprefix("s3://").partition("/")
            store = elb.TrustStore(
                self, "TrustStore", bucket=s3.Bucket.from_bucket_name(self, "TrustBundle", bucket), key=key
            )
            trusted = elb.MutualAuthentication(
                mutual_authentication_mode=elb.MutualAuthenticationMode.VERIFY, trust_store=store
            )
        if authentication.method == "jwt" and authentication.issuer and authentication.jwks:
            forward = elb.ListenerAction.authenticate_jwt(
                issuer=authentication.issuer, jwks_endpoint=authentication.jwks, next=forward
            )
        self.load_balancer.add_listener(
            "Tls",
            port=HTTPS,
            protocol=elb.ApplicationProtocol.HTTPS,
            ssl_policy=elb.SslPolicy.TLS13_13,
            certificates=[elb.ListenerCertificate.from_arn(certificate)],
            mutual_authentication=trusted,
            default_action=forward,
            open=False,
        )
