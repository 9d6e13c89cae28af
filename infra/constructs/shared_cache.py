"""ElastiCache for Valkey: the cache of plans that one cell's hosts share, encrypted, in several zones."""

from aws_cdk import ArnFormat, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticache as elasticache
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.acknowledge import AUTH_TOKENS_OF_CACHES, acknowledge, allow, skip_in_checkov
from infra.constructs.network import cell_subnets
from infra.fleet.settings import FleetSettings
from infra.fleet.shared_cache import ACCESS, ENGINE, ENGINE_VERSION, PORT


class PlanCache(Construct):
    """The cache of one cell. `nodes` are its nodes' names in metrics; `environment` is what hosts need to reach it.

    Hosts sign in with their instance role (IAM), as a user who may do what the gateway does and no more. It is not
    backed up: all that it holds can be made again, and is forgotten within a quarter of an hour anyway.
    """

    def __init__(
        self, scope: Construct, id: str, *, settings: FleetSettings, name: str, vpc: ec2.IVpc, hosts: ec2.SecurityGroup
    ) -> None:
        """Create the cache; `name` is the cell's, and `hosts` may reach it."""
        super().__init__(scope, id)
        self._user_name = f"{settings.name}-{name}"
        self._group = self._replication_group(settings, name, vpc, hosts)
        self.nodes = tuple(
            Fn.join("", [self._group.ref, f"-{number:03}"]) for number in range(1, settings.shared_cache.nodes + 1)
        )
        self.environment = {
            "PEAKPLAN_CACHE_URL": f"rediss://{self._group.attr_primary_end_point_address}:{PORT}/0",
            "PEAKPLAN_CACHE_IAM_USER": self._user_name,
            "PEAKPLAN_CACHE_IAM_CACHE": self._group.ref,
            "PEAKPLAN_CACHE_IAM_REGION": settings.region,
        }

    def admit(self, role: iam.IRole) -> None:
        ours = {"replicationgroup": self._group.ref, "user": self._user_name}
        arns = [
            Stack.of(self).format_arn(
                service="elasticache", resource=kind, resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
            )
            for kind, name in ours.items()
        ]
        allow(role, "SharedCache", ["elasticache:Connect"], *arns)

    def _replication_group(
        self, settings: FleetSettings, name: str, vpc: ec2.IVpc, hosts: ec2.SecurityGroup
    ) -> elasticache.CfnReplicationGroup:
        cache = settings.shared_cache
        security_group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=vpc, description=f"Shared cache of {name}", allow_all_outbound=False
        )
        security_group.add_ingress_rule(hosts, ec2.Port.tcp(PORT), "Plans that hosts share")
        hosts.add_egress_rule(security_group, ec2.Port.tcp(PORT), "Plans that hosts share")
        subnets = elasticache.CfnSubnetGroup(
            self,
            "Subnets",
            description=f"Zones of {name}",
            subnet_ids=vpc.select_subnets(subnet_type=cell_subnets(settings).subnet_type).subnet_ids,
        )
        user = elasticache.CfnUser(
            self,
            "User",
            engine=ENGINE,
            user_id=self._user_name,
            user_name=self._user_name,  # IAM asks for the same as the id
            access_string=ACCESS,
            authentication_mode={"Type": "iam"},
        )
        users = elasticache.CfnUserGroup(
            self, "Users", engine=ENGINE, user_group_id=self._user_name, user_ids=[user.ref]
        )
        made = elasticache.CfnReplicationGroup(
            self,
            "Group",
            replication_group_description=f"Plans that the hosts of {name} share",
            engine=ENGINE,
            engine_version=ENGINE_VERSION,
            cache_node_type=cache.node_type,
            num_cache_clusters=cache.nodes,
            automatic_failover_enabled=True,
            multi_az_enabled=True,
            port=PORT,
            cache_subnet_group_name=subnets.ref,
            security_group_ids=[security_group.security_group_id],
            transit_encryption_enabled=True,
            transit_encryption_mode="required",
            at_rest_encryption_enabled=True,
            user_group_ids=[users.ref],
            auto_minor_version_upgrade=True,
            snapshot_retention_limit=0,
        )
        reason = "Hosts authenticate with IAM as a user of RBAC, which replaces AUTH (ElastiCache user guide, RBAC)"
        acknowledge(made, "AwsSolutions::AwsSolutions-AEC6", reason)
        skip_in_checkov(made, AUTH_TOKENS_OF_CACHES, reason)
        return made
