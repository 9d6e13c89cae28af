"""Fixes of moto's own models: properties they drop, wrong answers, crashes, and what an account has."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any
from uuid import uuid4

from moto import backend_index
from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.cloudformation.models import CloudFormationBackend
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.base_backend import BackendDict, BaseBackend
from moto.core.responses import ActionResult
from moto.ec2.models import amis, instance_types
from moto.ec2.models.security_groups import SecurityGroup
from moto.elbv2.models import FakeLoadBalancer, FakeTargetGroup
from moto.iam.access_control import PermissionResult
from moto.route53.exceptions import NoSuchHostedZone
from moto.route53.models import FakeZone, RecordSet, route53_backends
from moto.s3.models import FakeBucket
from moto.servicequotas.responses import ServiceQuotasResponse
from moto.ssm.models import Parameter

from tests.infra.moto_forwarding import Properties, call, instead

SUPPRESSION = ("ActionsSuppressor", "ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")
GROUP = "AutoScalingGroupName"


def egress(operation: str) -> Callable[[str, Properties], Properties]:
    """An egress rule in CloudFormation's shape, sent in the API's."""

    def send(region: str, rule: Properties) -> Properties:
        permission: Properties = {key: rule[key] for key in ("IpProtocol", "FromPort", "ToPort") if key in rule}
        note = {"Description": rule["Description"]} if "Description" in rule else {}
        for key, group, member in (
            ("CidrIp", "IpRanges", "CidrIp"),
            ("DestinationSecurityGroupId", "UserIdGroupPairs", "GroupId"),
            ("DestinationPrefixListId", "PrefixListIds", "PrefixListId"),
        ):
            if key in rule:
                permission[group] = [{member: rule[key], **note}]
        return call("ec2", operation)(region, {"GroupId": rule["GroupId"], "IpPermissions": [permission]})

    return send


def after_create(model: type) -> Callable[[Callable[[Any, Properties, str], None]], Callable[..., Any]]:
    """Let a function of resource, properties and region complete what moto's model leaves out of a template."""

    def noted(act: Callable[[Any, Properties, str], None]) -> Callable[..., Any]:
        @instead(model, "create_from_cloudformation_json", of_class=True)
        def completed(
            create: Any, /, resource_name: str, cloudformation_json: Properties, account_id: str, region_name: str,
            **more: Any,
        ) -> Any:  # fmt: skip
            resource = create(resource_name, cloudformation_json, account_id, region_name, **more)
            act(resource, cloudformation_json["Properties"], region_name)
            return resource

        return act

    return noted


@after_create(FakeLoadBalancer)
def _load_balancer(balancer: Any, properties: Properties, region: str) -> None:
    balancer.type = properties.get("Type", "application")
    attributes = properties.get("LoadBalancerAttributes", [])
    parameters = {"LoadBalancerArn": balancer.arn, "Attributes": attributes}
    call("elbv2", "ModifyLoadBalancerAttributes")(region, parameters)


@instead(FakeLoadBalancer, "update_from_cloudformation_json", of_class=True)
def _keep_balancer_on_update(
    _: Any, /, original_resource: Any, new_resource_name: str, cloudformation_json: Properties, account_id: str,
    region_name: str,
) -> Any:  # fmt: skip
    """Change a balancer's attributes in place, as CloudFormation does: moto replaces the balancer."""
    del new_resource_name, account_id
    _load_balancer(original_resource, cloudformation_json["Properties"], region_name)
    return original_resource


@after_create(FakeTargetGroup)
def _target_group(group: Any, properties: Properties, region: str) -> None:
    attributes = properties.get("TargetGroupAttributes", [])
    call("elbv2", "ModifyTargetGroupAttributes")(region, {"TargetGroupArn": group.arn, "Attributes": attributes})
    group.register(properties.get("Targets", []))


@after_create(SecurityGroup)
def _security_group(group: Any, properties: Properties, region: str) -> None:
    """Egress rules of a template replace the rule that lets everything out."""
    if rules := properties.get("SecurityGroupEgress", []):
        everything = {"GroupId": group.id, "IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}
        egress("RevokeSecurityGroupEgress")(region, everything)
    for rule in rules:
        egress("AuthorizeSecurityGroupEgress")(region, {"GroupId": group.id, **rule})


@after_create(FakeZone)
def _hosted_zone(zone: Any, properties: Properties, region: str) -> None:
    """Make a zone with VPCs private, and keep its comment: moto reads neither in a template."""
    del region
    zone.private_zone = bool(properties.get("VPCs"))
    zone.comment = properties.get("HostedZoneConfig", {}).get("Comment")


@instead(FakeZone, "delete")
def _delete_zone(_: Any, self: Any, account_id: str, region: str) -> None:
    """Delete a stack's zone, which moto keeps."""
    del region
    route53_backends[account_id]["aws"].zones.pop(self.resource_id, None)


@instead(RecordSet, "delete")
def _delete_record(delete: Any, self: Any, *where: str) -> None:
    """A record whose zone is gone counts as deleted."""
    with suppress(NoSuchHostedZone):
        delete(self, *where)


@after_create(FakeAutoScalingGroup)
def _auto_scaling_group(group: Any, properties: Properties, region: str) -> None:
    for hook in properties.get("LifecycleHookSpecificationList", []):
        call("autoscaling", "PutLifecycleHook")(region, {GROUP: group.name, **hook})


@instead(FakeAutoScalingGroup, "update_from_cloudformation_json", of_class=True)
def _keep_group_on_update(
    update: Any, /, original_resource: Any, new_resource_name: str, cloudformation_json: Properties, *where: str,
    **more: Any,
) -> Any:  # fmt: skip
    """moto deletes and remakes an updated group: keep its name and its warm pool, as CloudFormation does."""
    name = new_resource_name if GROUP in cloudformation_json["Properties"] else original_resource.name
    group = update(original_resource, name, cloudformation_json, *where, **more)
    group.warm_pool = original_resource.warm_pool
    return group


@instead(CloudFormationBackend, "_resolve_update_parameters")
def _know_defaults_as_previous_values(resolve: Any, self: Any, instance: Any, incoming_params: list[Properties]) -> Any:
    """Use the template's default where a stack keeps a parameter that it was never given: moto answers 500."""
    given = instance.parameters
    known = [each for each in incoming_params if not each.get("UsePreviousValue") or each["ParameterKey"] in given]
    return resolve(self, instance, known)


def _read_tags_of_parameters(made: Any, *given: Any, **named: Any) -> Any:
    """A parameter's tags are a map in a template, and a list everywhere else; moto expects the list."""
    for each in (*given, *named.values()):
        properties = each.get("Properties") if isinstance(each, dict) else None
        if properties and isinstance(properties.get("Tags"), dict):
            properties["Tags"] = [{"Key": key, "Value": value} for key, value in properties["Tags"].items()]
    return made(*given, **named)


for _name in ("create_from_cloudformation_json", "update_from_cloudformation_json"):
    instead(Parameter, _name, of_class=True)(_read_tags_of_parameters)


@instead(CloudWatchResponse, "describe_alarms")
def _alarms_in_a_state(describe: Any, self: Any) -> ActionResult:
    """Filter alarms by names and state: moto filters by names only."""
    alarms, state = describe(self).result, self._get_param("StateValue")
    return ActionResult(
        {kind: [one for one in each if state in (None, one.state_value)] for kind, each in alarms.items()}
    )


@instead(CloudWatchResponse, "put_composite_alarm")
def _put_composite_alarm(_: None, self: Any) -> ActionResult:
    answer: ActionResult = self.put_metric_alarm()
    alarm = self.cloudwatch_backend.alarms[self._get_param("AlarmName")]
    for name in SUPPRESSION:
        setattr(alarm, name, self._get_param(name))
    return answer


@instead(FakeBucket, "get_permission")
def _no_verdict(*_: Any, **__: Any) -> PermissionResult:
    """moto reads bucket policies without their conditions: "deny whatever comes without TLS" would deny everything."""
    return PermissionResult.NEUTRAL


def _full_name(it: Any) -> str:
    """`app/name/id` or `targetgroup/name/id`, the value of a CloudWatch dimension."""
    return str(it.arn.rpartition(":")[2].removeprefix("loadbalancer/"))


# What `GetAtt` answers besides what moto knows.
ATTRIBUTES: dict[type, dict[str, Callable[[Any], str]]] = {
    FakeLoadBalancer: {
        "LoadBalancerFullName": _full_name,
        "LoadBalancerArn": lambda it: it.arn,
        "CanonicalHostedZoneID": lambda it: it.canonical_hosted_zone_id,
        "SecurityGroups": lambda it: it.security_groups,
    },
    FakeTargetGroup: {
        "TargetGroupFullName": _full_name,
        "TargetGroupArn": lambda it: it.arn,
        "TargetGroupName": lambda it: it.name,
    },
}


def _answer_attributes(model: type, extra: dict[str, Callable[[Any], str]]) -> None:
    @instead(model, "get_cfn_attribute")
    def get(known: Any, self: Any, name: str) -> Any:
        if name in extra:
            return extra[name](self)
        if known is None:
            raise UnformattedGetAttTemplateException
        return known(self, name)

    @instead(model, "has_cfn_attr", of_class=True)
    def has(known: Any, attr: str) -> bool:
        return attr in extra or known(attr)


for _model, _extra in ATTRIBUTES.items():
    _answer_attributes(_model, _extra)


REGION = "us-east-1"
Answer = tuple[int, dict[str, str], str]
Handler = Callable[[Any, str, Any], Answer]


def answer(content: Mapping[str, Any], status: int = 200) -> Answer:
    """Return an answer in JSON."""
    return status, {"Content-Type": "application/json"}, json.dumps(content)


def add_service(name: str, paths: Mapping[str, Handler]) -> None:
    """Make a service known to moto's server in this process, which finds it by its modules' names."""
    plain = name.replace("-", "")
    package, models, urls = (ModuleType(f"moto.{plain}{part}") for part in ("", ".models", ".urls"))
    pattern = rf"https?://{name}\.(.+)\.amazonaws\.com"
    setattr(urls, "url_bases", [pattern])  # noqa: B010
    setattr(urls, "url_paths", {"{0}" + path: handler for path, handler in paths.items()})  # noqa: B010
    sys.modules |= {each.__name__: each for each in (package, models, urls)}
    backend = type(f"{plain}Backend", (BaseBackend,), {"__module__": models.__name__})
    backends: Any = BackendDict(backend, plain, use_boto3_regions=False, additional_regions=[REGION])
    for module in (package, models):
        setattr(module, f"{plain}_backends", backends)
    backend_index.backend_url_patterns.append((name, re.compile(pattern)))


def _shift(request: Any, *_: Any) -> Answer:
    """Begin a zonal shift; nothing is shifted."""
    asked = json.loads(request.data)
    kept = {name: asked[name] for name in ("resourceIdentifier", "awayFrom", "comment")}
    times = {"startTime": 0, "expiryTime": 7200}
    return answer({"zonalShiftId": str(uuid4()), "status": "ACTIVE", **times, **kept}, 201)


def _health(*_: Any) -> Answer:
    """Tell of no event of AWS's own."""
    return answer({"events": []})


ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")
BASE_IMAGE = "ami-0ba5e00000000228a"
DEEP = "Deep Learning Base Neuron AMI (Ubuntu 24.04)"
# The one that a fleet pins, and its neighbours: an older one, other systems, frameworks, SDKs and roots.
IMAGES = (
    (BASE_IMAGE, f"{DEEP} 20260226", "Neuron SDK 2.28.1", "/dev/sda1"),
    ("ami-00000000000000001", f"{DEEP} 20260115", "Neuron SDK 2.28", "/dev/sda1"),
    ("ami-00000000000000002", f"{DEEP} 20260601", "Neuron SDK 2.29", "/dev/sda1"),
    ("ami-00000000000000003", "Deep Learning Base Neuron AMI (Amazon Linux 2023) 20260401", "SDK 2.28", "/dev/xvda"),
    ("ami-00000000000000004", "Deep Learning AMI Neuron (Ubuntu 24.04) 20260401", "Neuron SDK 2.28.1", "/dev/sda1"),
    ("ami-00000000000000005", f"{DEEP} 20260402", "Neuron SDK 2.28", "/dev/xvda"),
    ("ami-00000000000000006", f"{DEEP} PyTorch 20260403", "Neuron SDK 2.28", "/dev/sda1"),
)
# Canonical's for arm64: the newest, an older one, and a newer one of the same name that somebody else made public.
UBUNTU, CANONICAL = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server", "099720109477"
ARM64_IMAGE = "ami-0ba5e0000000a264a"
UBUNTU_IMAGES = (
    (ARM64_IMAGE, f"{UBUNTU}-20260310", CANONICAL),
    ("ami-00000000000000007", f"{UBUNTU}-20260110", CANONICAL),
    ("ami-00000000000000008", f"{UBUNTU}-20260401", "111122223333"),
)
QUOTA = 100_000.0
# Service Quotas' names and codes; infra/operations/quotas.py looks them up by code.
QUOTAS = {
    "ec2": ("L-1216C47A", "L-1945791B", "L-2C3B7624"),
    "ebs": ("L-7A658B76",),
    "elasticloadbalancing": ("L-53DA6B97", "L-7E6692B2", "L-69A177A2", "L-0BB7B635", "L-8A66D0E6"),
    "elasticache": ("L-DFE45DF3",),
    "vpc": ("L-F678F1CE", "L-DF5E4CA3", "L-29B6F2EB", "L-0EA8095F"),
}


def _image(id: str, name: str, sdk: str, root: str) -> dict[str, Any]:
    date = name[-8:]
    return {
        "ami_id": id,
        "name": name,
        "description": f"Supported EC2 instances: Inf2, Trn1. {sdk}",
        "owner_id": "898082745236",
        "public": True,
        "virtualization_type": "hvm",
        "architecture": "x86_64",
        "root_device_name": root,
        "root_device_type": "ebs",
        "creation_date": f"{date[:4]}-{date[4:6]}-{date[6:]}T00:00:00.000Z",
    }


@instead(ServiceQuotasResponse, "list_service_quotas")
@instead(ServiceQuotasResponse, "list_aws_default_service_quotas")
def _list_service_quotas(_: Any, self: Any) -> str:
    service = str(json.loads(self.body)["ServiceCode"])
    given = {"ServiceCode": service, "Value": QUOTA}
    return json.dumps({"Quotas": [given | {"QuotaCode": code, "QuotaName": code} for code in QUOTAS[service]]})


def furnish_the_account() -> None:
    """Extend moto in this process, before it makes its first EC2 backend."""
    amis.AMIS.extend(_image(*each) for each in IMAGES)
    for id, name, owner in UBUNTU_IMAGES:
        described = {"owner_id": owner, "architecture": "arm64", "description": "Canonical, Ubuntu, 24.04, arm64"}
        amis.AMIS.append(_image(id, name, "", "/dev/sda1") | described)
    offered = instance_types.INSTANCE_TYPE_OFFERINGS["availability-zone"][REGION]
    for kind in ("inf2.xlarge", "trn1.2xlarge"):
        offered.extend({"InstanceType": kind, "Location": zone, "LocationType": "availability-zone"} for zone in ZONES)
    add_service("arc-zonal-shift", {"/zonalshifts$": _shift})
    add_service("health", {"/$": _health})
