"""moto's own CloudFormation models, completed: what they drop of a template, answer wrongly, or end on."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.cloudformation.models import CloudFormationBackend
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult
from moto.ec2.models.security_groups import SecurityGroup
from moto.elbv2.models import FakeLoadBalancer, FakeTargetGroup
from moto.iam.access_control import PermissionResult
from moto.route53.exceptions import NoSuchHostedZone
from moto.route53.models import FakeZone, RecordSet, route53_backends
from moto.s3.models import FakeBucket
from moto.sns.models import Topic
from moto.ssm.models import Parameter

from tests.infra.moto_forwarding import Properties, call

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


def _after_create(model: Any, act: Callable[[Any, Properties, str], None]) -> None:
    """Let `act(resource, properties, region)` complete what moto's model leaves out of a template."""
    create = model.create_from_cloudformation_json

    def completed(
        cls: Any, /, resource_name: str, cloudformation_json: Properties, account_id: str, region_name: str, **more: Any
    ) -> Any:
        del cls  # `create` is bound already
        resource = create(resource_name, cloudformation_json, account_id, region_name, **more)
        act(resource, cloudformation_json["Properties"], region_name)
        return resource

    model.create_from_cloudformation_json = classmethod(completed)


def _load_balancer(balancer: Any, properties: Properties, region: str) -> None:
    balancer.type = properties.get("Type", "application")
    attributes = properties.get("LoadBalancerAttributes", [])
    parameters = {"LoadBalancerArn": balancer.arn, "Attributes": attributes}
    call("elbv2", "ModifyLoadBalancerAttributes")(region, parameters)


def _keep_balancer_on_update() -> None:
    """moto makes a balancer anew where CloudFormation changes attributes in place, and forgets the old one."""
    model: Any = FakeLoadBalancer

    def kept(
        cls: Any, /, original_resource: Any, new_resource_name: str, cloudformation_json: Properties, account_id: str,
        region_name: str,
    ) -> Any:  # fmt: skip
        del cls, new_resource_name, account_id
        _load_balancer(original_resource, cloudformation_json["Properties"], region_name)
        return original_resource

    model.update_from_cloudformation_json = classmethod(kept)


def _target_group(group: Any, properties: Properties, region: str) -> None:
    attributes = properties.get("TargetGroupAttributes", [])
    call("elbv2", "ModifyTargetGroupAttributes")(region, {"TargetGroupArn": group.arn, "Attributes": attributes})
    group.register(properties.get("Targets", []))


def _security_group(group: Any, properties: Properties, region: str) -> None:
    """Egress rules of a template replace the rule that lets everything out."""
    if rules := properties.get("SecurityGroupEgress", []):
        everything = {"GroupId": group.id, "IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}
        egress("RevokeSecurityGroupEgress")(region, everything)
    for rule in rules:
        egress("AuthorizeSecurityGroupEgress")(region, {"GroupId": group.id, **rule})


def _topic(topic: Any, properties: Properties, region: str) -> None:
    if key := properties.get("KmsMasterKeyId"):
        attribute = {"TopicArn": topic.arn, "AttributeName": "KmsMasterKeyId", "AttributeValue": key}
        call("sns", "SetTopicAttributes")(region, attribute)


def _hosted_zone(zone: Any, properties: Properties, region: str) -> None:
    """A zone with VPCs is private, and has its comment: moto reads neither in a template."""
    del region
    zone.private_zone = bool(properties.get("VPCs"))
    zone.comment = properties.get("HostedZoneConfig", {}).get("Comment")


def _delete_zones() -> None:
    """moto leaves a stack's zone where it is; a record whose zone is gone before it is gone, too."""
    zone: Any = FakeZone
    record: Any = RecordSet
    delete = record.delete

    def delete_zone(self: Any, account_id: str, region: str) -> None:
        del region
        route53_backends[account_id]["aws"].zones.pop(self.resource_id, None)

    def delete_record(self: Any, *where: str) -> None:
        with suppress(NoSuchHostedZone):
            delete(self, *where)

    zone.delete, record.delete = delete_zone, delete_record


def _auto_scaling_group(group: Any, properties: Properties, region: str) -> None:
    for hook in properties.get("LifecycleHookSpecificationList", []):
        call("autoscaling", "PutLifecycleHook")(region, {GROUP: group.name, **hook})


def _keep_group_on_update() -> None:
    """moto deletes and remakes an updated group: keep its name and its warm pool, as CloudFormation does."""
    model: Any = FakeAutoScalingGroup
    update = model.update_from_cloudformation_json

    def kept(
        cls: Any,
        /,
        original_resource: Any,
        new_resource_name: str,
        cloudformation_json: Properties,
        *where: str,
        **more: Any,
    ) -> Any:
        del cls
        name = new_resource_name if GROUP in cloudformation_json["Properties"] else original_resource.name
        group = update(original_resource, name, cloudformation_json, *where, **more)
        group.warm_pool = original_resource.warm_pool
        return group

    model.update_from_cloudformation_json = classmethod(kept)


def _know_defaults_as_previous_values() -> None:
    """moto ends in a 500 where a stack keeps a parameter that it was never given: its template's default holds then."""
    resolve = CloudFormationBackend._resolve_update_parameters

    def kept(self: Any, instance: Any, incoming_params: list[Properties]) -> Any:
        known = [each for each in incoming_params if not each.get("UsePreviousValue") or _was_given(instance, each)]
        return resolve(self, instance, known)

    CloudFormationBackend._resolve_update_parameters = kept  # type: ignore[method-assign]


def _was_given(stack: Any, parameter: Properties) -> bool:
    return parameter["ParameterKey"] in stack.parameters


def _read_tags_of_parameters() -> None:
    """A parameter's tags are a map in a template, and a list everywhere else; moto expects the list."""
    model: Any = Parameter
    for name in ("create_from_cloudformation_json", "update_from_cloudformation_json"):
        made = getattr(model, name)

        def read(cls: Any, /, *given: Any, made: Any = made, **named: Any) -> Any:
            del cls
            for each in (*given, *named.values()):
                properties = each.get("Properties") if isinstance(each, dict) else None
                if properties and isinstance(properties.get("Tags"), dict):
                    properties["Tags"] = [{"Key": key, "Value": value} for key, value in properties["Tags"].items()]
            return made(*given, **named)

        setattr(model, name, classmethod(read))


def _put_composite_alarm(self: CloudWatchResponse) -> ActionResult:
    answer = self.put_metric_alarm()
    alarm = self.cloudwatch_backend.alarms[self._get_param("AlarmName")]
    for name in SUPPRESSION:
        setattr(alarm, name, self._get_param(name))
    return answer


def _full_name(arn: str) -> str:
    """`app/name/id` or `targetgroup/name/id`, the value of a CloudWatch dimension."""
    resource = arn.rpartition(":")[2]
    return resource.removeprefix("loadbalancer/")


def _answer_attributes(model: Any, extra: dict[str, Callable[[Any], str]]) -> None:
    """Let `GetAtt` answer more attributes of a model."""
    known, has = getattr(model, "get_cfn_attribute", None), model.has_cfn_attr

    def get(self: Any, name: str) -> Any:
        if name in extra:
            return extra[name](self)
        if known is None:
            raise UnformattedGetAttTemplateException
        return known(self, name)

    model.get_cfn_attribute = get
    model.has_cfn_attr = classmethod(lambda cls, attr: attr in extra or has(attr))  # noqa: ARG005


def _no_verdict(bucket: Any, action: str, resource: str) -> PermissionResult:
    del bucket, action, resource
    return PermissionResult.NEUTRAL


def complete_models() -> None:
    """Extend moto's models in this process."""
    _after_create(FakeLoadBalancer, _load_balancer)
    _after_create(FakeTargetGroup, _target_group)
    _after_create(SecurityGroup, _security_group)
    _after_create(Topic, _topic)
    _after_create(FakeZone, _hosted_zone)
    _after_create(FakeAutoScalingGroup, _auto_scaling_group)
    _delete_zones()
    _keep_group_on_update()
    _keep_balancer_on_update()
    _know_defaults_as_previous_values()
    _read_tags_of_parameters()
    # moto reads bucket policies without their conditions: "deny whatever comes without TLS" would deny everything.
    setattr(FakeBucket, "get_permission", _no_verdict)  # noqa: B010
    setattr(CloudWatchResponse, "put_composite_alarm", _put_composite_alarm)  # noqa: B010  # moto's class lacks it
    balancer = {
        "LoadBalancerFullName": lambda it: _full_name(it.arn),
        "LoadBalancerArn": lambda it: it.arn,
        "CanonicalHostedZoneID": lambda it: it.canonical_hosted_zone_id,
        "SecurityGroups": lambda it: it.security_groups,
    }
    _answer_attributes(FakeLoadBalancer, balancer)
    target_group = {
        "TargetGroupFullName": lambda it: _full_name(it.arn),
        "TargetGroupArn": lambda it: it.arn,
        "TargetGroupName": lambda it: it.name,
    }
    _answer_attributes(FakeTargetGroup, target_group)
