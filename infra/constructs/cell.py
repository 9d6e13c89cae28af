"""One cell: a load balancer and the hosts behind it, independent of every other cell."""

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.constructs.host import HostGroup, HostsShare, ReleaseParameters
from infra.constructs.load_balancer import SERVICE_PORT, EndpointService, LoadBalancer
from infra.constructs.names import CellNames, publish
from infra.constructs.network import HTTPS, cell_subnets
from infra.constructs.scaling import GroupScaling
from infra.constructs.shared_cache import PlanCache
from infra.constructs.storage import log_group
from infra.fleet.parts import Group
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings
from infra.fleet.synthetic_plans import PORT as CANARY_PORT


class Cell(Construct):
    """One cell with its `name` (cell-1), `load_balancer`, `target_group` and `groups`.

    What other stacks may know of it, it writes into a parameter (names.py).
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, name: str, vpc: ec2.IVpc) -> None:
        super().__init__(scope, id)
        self.name, self._settings, self._vpc = name, settings, vpc
        schedules = scheduler.CfnScheduleGroup(self, "Schedules", name=f"peakplan-{settings.name}-{name}")
        front = LoadBalancer(self, "LoadBalancer", settings=settings, vpc=vpc, schedules=schedules)
        self.load_balancer, self.target_group = front.load_balancer, front.target_group
        if settings.synthetic_plans.enabled:
            front.answer_one_path("Canary", CANARY_PORT, elb.SslPolicy.TLS13_13, "Plans", "/plan")
        security_group = self._host_security_group(settings, vpc, front.security_group)
        private_link = self._private_link(front) if settings.access.privatelink else None
        cache = None
        if settings.shared_cache.enabled:
            cache = PlanCache(self, "PlanCache", settings=settings, name=name, vpc=vpc, hosts=security_group)
        logs = log_group(self, "Logs", settings, name=f"/peakplan/{settings.name}/{name}")
        release = ReleaseParameters(self, "Release", settings=settings, cell=name)
        shared = HostsShare(vpc, security_group, logs, release, cache, schedules)
        self.groups = [self._group(group, shared) for group in settings.groups]
        names = CellNames(
            cell=name,
            load_balancer=self.load_balancer.load_balancer_full_name,
            target_groups=(self.target_group.target_group_full_name,),
            auto_scaling_groups=tuple(hosts.name for hosts in self.groups),
            network_load_balancer=private_link.load_balancer_name if private_link else "",
            network_target_group=private_link.target_group_name if private_link else "",
            cache_nodes=cache.nodes if cache else (),
            log_group=logs.log_group_name,
            address=self.load_balancer.load_balancer_dns_name,
            zone_id=self.load_balancer.load_balancer_canonical_hosted_zone_id,
            security_group=front.security_group.security_group_id,
        )
        publish(self, settings, names)

    def _private_link(self, front: LoadBalancer) -> EndpointService:
        return EndpointService(
            self,
            "PrivateLink",
            settings=self._settings,
            name=self.name,
            vpc=self._vpc,
            subnets=cell_subnets(self._settings),
            load_balancer=front,
        )

    def _group(self, group: Group, shared: HostsShare) -> HostGroup:
        law = ScalingLaw.for_group(self._settings, group)
        hosts = HostGroup(
            self, group.chip.capitalize(), settings=self._settings, cell=self.name, group=group, law=law, shared=shared
        )
        hosts.group.attach_to_application_target_group(self.target_group)
        GroupScaling(
            hosts,
            "Scaling",
            law=law,
            group=hosts.group,
            group_name=hosts.name,
            dimensions={"Fleet": self._settings.name, "Cell": self.name, "Group": group.chip},
        )
        return hosts

    def _host_security_group(
        self, settings: FleetSettings, vpc: ec2.IVpc, load_balancer: ec2.SecurityGroup
    ) -> ec2.SecurityGroup:
        security_group = ec2.SecurityGroup(
            self, "Hosts", vpc=vpc, description=f"Hosts of {self.name}", allow_all_outbound=False
        )
        service = ec2.Port.tcp(SERVICE_PORT)
        security_group.add_ingress_rule(load_balancer, service, "Plans and health checks")
        load_balancer.add_egress_rule(security_group, service, "Plans and health checks")
        security_group.add_egress_rule(
            ec2.Peer.ipv4(str(settings.network.cidr)), ec2.Port.tcp(HTTPS), "AWS through the endpoints"
        )
        if settings.network.nat or any(endpoint.is_gateway for endpoint in settings.network.all_endpoints):
            reached = "The internet, which network.nat asks for" if settings.network.nat else "AWS by gateway endpoints"
            security_group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), reached)
        return security_group
