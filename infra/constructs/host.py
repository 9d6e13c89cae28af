"""One kind of host of a cell: launch template, role, Auto Scaling group, hooks, refresh, and its stack's parameters."""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import CfnCondition, CfnParameter, Duration, Fn, Stack
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.constructs.acknowledge import acknowledge, allow
from infra.constructs.names import group_name
from infra.constructs.network import cell_subnets
from infra.constructs.scaling import scaling_alarm_name
from infra.constructs.schedule import reserve_for_events
from infra.constructs.shared_cache import PlanCache
from infra.constructs.shopper_events import admit_to_events, events_environment
from infra.fleet.cost import INITIALIZED_MIB_A_SECOND, volume_gib
from infra.fleet.images import NEWEST, NEWEST_OF, Image, image_of, images
from infra.fleet.network_parts import LIFECYCLE, LOGS, SESSION_REGISTRATION, SESSIONS
from infra.fleet.parts import ROOT_DEVICE, Group
from infra.fleet.policies import GROUP_WARM_UP_SECONDS
from infra.fleet.replacement import FAST, TERMINATE_MARGIN_SECONDS, WARM_UP_SECONDS, careful, stops
from infra.fleet.scaling import ScalingLaw
from infra.fleet.settings import FleetSettings
from infra.fleet.shards import caller_environment


class ReleaseParameters(Construct):
    """The release and the speed of a cell's stack.

    A stack is made with a release, or with the one that was baked last where `cdk deploy` is not told which. It keeps
    it through every other change, and goes back to one by a change of this parameter alone (operations/rollback.py).
    Where hosts are of two architectures, a second parameter has the release's other image.

    A stack rests at the fast speed and only a deploy asks for the careful one: CloudFormation's way back out of an
    update takes the policy from before it.
    """

    def __init__(self, scope: Construct, id: str, *, settings: FleetSettings, cell: str) -> None:
        super().__init__(scope, id)
        self._settings = settings
        self._images = {image.stack_parameter: self._image(image) for image in images(settings)}
        speed = CfnParameter(
            self,
            "RefreshSpeed",
            allowed_values=["careful", "fast"],
            default="fast",
            description="careful: a deploy, with checkpoints and alarms; stacks rest at fast",
        )
        speed.override_logical_id("RefreshSpeed")
        # An update that changed nothing but the update policy would be no update.
        ssm.CfnParameter(
            self,
            "Speed",
            type="String",
            name=f"/peakplan/{settings.name}/{cell}/refresh-speed",
            value=speed.value_as_string,
            description=f"How instances of {cell} are replaced by the next change of its stack",
        )
        self._fast = CfnCondition(self, "Fast", expression=Fn.condition_equals(speed.value_as_string, "fast"))
        self._fast.override_logical_id("FastRefresh")
        self.image_id = self._images[images(settings)[0].stack_parameter]

    def _image(self, image: Image) -> str:
        """Return the id of the image that the stack is told, or of the one that its parameter in SSM has."""
        name, said = image.stack_parameter, f"an immutable machine image for {image.architecture}"
        named = CfnParameter(
            self,
            name,
            default=NEWEST,
            allowed_pattern="ami-[0-9a-z]+",
            description=f"The release: {said}; {NEWEST}: what was baked last",
        )
        newest = CfnParameter(
            self,
            NEWEST_OF.format(name),
            type="AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
            default=image.parameter,
            description="Written by the image pipeline: peakplan fleet bake",
        )
        unnamed = CfnCondition(self, f"{name}Left", expression=Fn.condition_equals(named.value_as_string, NEWEST))
        for each, id in ((named, name), (newest, NEWEST_OF.format(name)), (unnamed, f"{name}Left")):
            each.override_logical_id(id)
        return Fn.condition_if(unnamed.logical_id, newest.value_as_string, named.value_as_string).to_string()

    def image_for(self, group: Group) -> str:
        return self._images[image_of(self._settings, group).stack_parameter]

    def hurry_where_asked(self, group: autoscaling.CfnAutoScalingGroup) -> None:
        """Let a fast refresh replace every instance at once; alarms that are in ALARM state must not stop it."""
        preferences = "UpdatePolicy.AutoScalingInstanceRefresh.Preferences"
        policy = Stack.of(self).resolve(group.cfn_options.update_policy)
        careful = policy["autoScalingInstanceRefresh"]["preferences"]
        careful = {name[0].upper() + name[1:]: value for name, value in careful.items()}
        fast = {
            "CheckpointPercentages": list(FAST.checkpoints),
            "CheckpointDelay": FAST.checkpoint_seconds,
            "MaxHealthyPercentage": FAST.max_healthy_percent,
            "MinHealthyPercentage": 100 - FAST.lacking_percent,
        }
        for name, value in fast.items():
            group.add_override(f"{preferences}.{name}", self._either(value, careful[name]))
        alarms = {"Alarms": careful["AlarmSpecification"]["alarms"]}
        group.add_override(f"{preferences}.AlarmSpecification", self._either({"Ref": "AWS::NoValue"}, alarms))

    def _either(self, fast: object, careful: object) -> dict[str, list[object]]:
        return {"Fn::If": [self._fast.logical_id, fast, careful]}


# Readiness is proven within the boot time; an instance that takes this much longer is terminated and replaced.
HOOK_MARGIN_SECONDS = 300
LAUNCH_HOOK, TERMINATE_HOOK = "prove-ready", "drain"


def host_role(scope: Construct, name: str, log_group: logs.ILogGroup) -> iam.Role:
    """Return the role of the hosts of group `name`.

    They may report, be managed, and complete their own group's lifecycle actions.
    """
    stack = Stack.of(scope)
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"), description=f"Hosts of {name}")
    place = f"{stack.region}:{stack.account}"
    group = f"arn:{stack.partition}:autoscaling:{place}:autoScalingGroup:*:autoScalingGroupName/{name}"
    star = "The star is an id that AWS invents; the group's name is exact"
    allow(role, "Lifecycle", LIFECYCLE.actions, group, because=star)
    allow(role, "Logs", LOGS.actions, log_group.log_group_arn)
    instances = f"arn:{stack.partition}:ec2:{place}:instance/*"
    registration = SESSION_REGISTRATION.actions
    allow(role, "Registration", registration, instances, because="AWS invents instances' ids")
    # Service Authorization Reference.
    no_resource = "Session Manager's actions take no resource"
    allow(role, "SessionManager", SESSIONS.actions, "*", because=no_resource)
    return role


def user_data(environment: Mapping[str, str]) -> ec2.UserData:
    """Write the host's environment, then start the services of the image.

    On every later boot peakplan.target starts by itself.
    """
    data = ec2.UserData.for_linux()
    data.add_commands("install -d -m 0755 /etc/peakplan", "cat > /etc/peakplan/host.env.new <<'END'")
    data.add_commands(*(f"{name}={value}" for name, value in environment.items()), "END")
    data.add_commands("mv /etc/peakplan/host.env.new /etc/peakplan/host.env")  # the file appears whole or not at all
    data.add_commands("systemctl start --no-block peakplan.target")
    return data


@dataclass(frozen=True)
class HostsShare:
    vpc: ec2.IVpc
    security_group: ec2.ISecurityGroup
    log_group: logs.ILogGroup
    release: ReleaseParameters
    cache: PlanCache | None
    schedules: scheduler.CfnScheduleGroup


class HostGroup(Construct):
    """The Auto Scaling group of one chip family in one cell, as `group`, with its `name`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: FleetSettings,
        cell: str,
        group: Group,
        law: ScalingLaw,
        shared: HostsShare,
    ) -> None:
        super().__init__(scope, id)
        self._settings, self._group = settings, group
        self.name = group_name(settings, cell, group)
        role = host_role(self, self.name, shared.log_group)
        if shared.cache is not None:
            shared.cache.admit(role)
        admit_to_events(role, settings)
        environment = self._environment(cell, shared)
        template = self._launch_template(role, shared.security_group, environment, shared.release)
        if group.reserve:
            reserve_for_events(self, settings, group, cell, shared.schedules)
        self.group = self._auto_scaling_group(shared.vpc, template, law)
        self._escape_hatches(shared.release)

    def _environment(self, cell: str, shared: HostsShare) -> dict[str, str]:
        settings, group, cache = self._settings, self._group, shared.cache
        environment = {
            "PEAKPLAN_FLEET": settings.name,
            "PEAKPLAN_CELL": cell,
            "PEAKPLAN_GROUP": group.chip,
            "PEAKPLAN_ROUTING": settings.model.routing,
            "PEAKPLAN_RELEASE": shared.release.image_id,  # a dimension of metrics: which release is at fault
            "PEAKPLAN_AUTO_SCALING_GROUP": self.name,
            "PEAKPLAN_LOG_GROUP": shared.log_group.log_group_name,
            "PEAKPLAN_LAUNCH_HOOK": LAUNCH_HOOK,
            "PEAKPLAN_TERMINATE_HOOK": TERMINATE_HOOK,
            "PEAKPLAN_DRAIN_SECONDS": str(settings.drain_seconds),
            **caller_environment(settings),
            **events_environment(settings),
            **(cache.environment if cache is not None else {}),
        }
        if group.engine == "torch":
            environment |= {"PEAKPLAN_ENGINE": "torch", "PEAKPLAN_BATCH_SIZE": "1"}  # the image's own are for chips
        return environment

    def _launch_template(
        self,
        role: iam.IRole,
        security_group: ec2.ISecurityGroup,
        environment: Mapping[str, str],
        release: ReleaseParameters,
    ) -> ec2.LaunchTemplate:
        template = ec2.LaunchTemplate(
            self,
            "Template",
            launch_template_name=self.name,
            machine_image=ec2.MachineImage.generic_linux({self._settings.region: release.image_for(self._group)}),
            instance_type=ec2.InstanceType(self._group.instance_type),
            role=role,
            security_group=security_group,
            user_data=user_data(environment),
            http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
            http_put_response_hop_limit=1,
            require_imdsv2=True,
            associate_public_ip_address=False,
            detailed_monitoring=True,
            ebs_optimized=True,
            block_devices=[
                ec2.BlockDevice(
                    device_name=ROOT_DEVICE,
                    volume=ec2.BlockDeviceVolume.ebs(
                        volume_gib(self._settings, self._group), encrypted=True, volume_type=ec2.EbsDeviceVolumeType.GP3
                    ),
                )
            ],
        )
        acknowledge(template, "CloudFormation-Validate::E1152", "The name of a parameter that has an image's id")
        made = template.node.default_child
        assert isinstance(made, ec2.CfnLaunchTemplate)
        # A volume reads its snapshot lazily, at some 5 MiB/s, unless EC2 is paid to initialise it. More throughput than
        # gp3's own would cost five dollars a month for each volume, stopped ones too.
        made.add_property_override(
            "LaunchTemplateData.BlockDeviceMappings.0.Ebs.VolumeInitializationRate", INITIALIZED_MIB_A_SECOND
        )
        return template

    def _auto_scaling_group(
        self, vpc: ec2.IVpc, template: ec2.LaunchTemplate, law: ScalingLaw
    ) -> autoscaling.AutoScalingGroup:
        settings = self._settings
        return autoscaling.AutoScalingGroup(
            self,
            "Group",
            auto_scaling_group_name=self.name,
            vpc=vpc,
            vpc_subnets=cell_subnets(settings),
            launch_template=template,
            min_capacity=law.minimum,  # no desired capacity is set, because a deploy must not undo a scaling decision
            max_capacity=law.maximum,
            default_instance_warmup=Duration.seconds(GROUP_WARM_UP_SECONDS),
            group_metrics=[autoscaling.GroupMetrics.all()],
            health_checks=autoscaling.HealthChecks.with_additional_checks(
                additional_types=[autoscaling.AdditionalHealthCheckType.ELB, autoscaling.AdditionalHealthCheckType.EBS],
                grace_period=Duration.seconds(settings.warm_start_seconds),
            ),
            min_healthy_percentage=100,
            max_healthy_percentage=110,
            update_policy=self._refresh(law),
        )

    def _refresh(self, law: ScalingLaw) -> autoscaling.UpdatePolicy:
        """Return the policy that replaces instances in steps.

        An alarm of the group that fires stops the replacement and rolls it back.
        """
        names = [scaling_alarm_name(self.name, stop.name) for stop in stops(law)]
        replacement = careful(self._settings)
        return autoscaling.UpdatePolicy.instance_refresh(
            strategy=autoscaling.InstanceRefreshStrategy.ROLLING,
            checkpoint_percentages=list(replacement.checkpoints),
            checkpoint_delay=Duration.seconds(replacement.checkpoint_seconds),
            bake_time=Duration.seconds(replacement.bake_seconds),
            instance_warmup=Duration.seconds(WARM_UP_SECONDS),
            min_healthy_percentage=100 - replacement.lacking_percent,
            max_healthy_percentage=replacement.max_healthy_percent,
            skip_matching=True,
            alarms=[cloudwatch.Alarm.from_alarm_name(self, f"Stops-{name}", name) for name in names],
        )

    def _escape_hatches(self, release: ReleaseParameters) -> None:
        group, settings = self.group.node.default_child, self._settings
        acknowledge(
            self.group,
            "AwsSolutions::AwsSolutions-AS3",
            "Alarms on launches and health tell people what needs them; every scaling event at a sale's peak would not",
        )
        assert isinstance(group, autoscaling.CfnAutoScalingGroup)
        hook = autoscaling.CfnAutoScalingGroup.LifecycleHookSpecificationProperty
        # The hooks are part of the group itself, so that its very first instances wait for them too.
        group.lifecycle_hook_specification_list = [
            hook(
                lifecycle_hook_name=LAUNCH_HOOK,
                lifecycle_transition="autoscaling:EC2_INSTANCE_LAUNCHING",
                heartbeat_timeout=settings.boot_seconds + HOOK_MARGIN_SECONDS,
                default_result="ABANDON",
            ),
            hook(
                lifecycle_hook_name=TERMINATE_HOOK,
                lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
                heartbeat_timeout=settings.drain_seconds + TERMINATE_MARGIN_SECONDS,
                default_result="CONTINUE",
            ),
        ]
        release.hurry_where_asked(group)
        group.availability_zone_impairment_policy = (
            autoscaling.CfnAutoScalingGroup.AvailabilityZoneImpairmentPolicyProperty(
                zonal_shift_enabled=True, impaired_zone_health_check_behavior="IgnoreUnhealthy"
            )
        )
