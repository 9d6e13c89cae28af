"""A moto server whose CloudFormation also makes what moto 5.2 silently leaves out, so that boto3 reads it back.

Left out without this: scaling policies, lifecycle hooks, warm pools, alarms and composite alarms, egress rules,
policies of buckets and topics, topic subscriptions, attributes of load balancers and target groups; and an update of an
Auto Scaling group loses its warm pool and, when unnamed, its name. `python -m tests.infra.moto_models PORT` runs the
server.

What moto's own API drops stays dropped: role and notification target of a lifecycle hook, for one.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.cloudformation.models import CloudFormationBackend
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult
from moto.ec2.models.security_groups import SecurityGroup
from moto.elbv2.models import FakeLoadBalancer, FakeTargetGroup
from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket
from moto.server import main as serve
from moto.sns.models import Topic

from tests.infra.moto_forwarding import Forwarded, Properties, call, gone_is_fine, register

SUPPRESSION = ("ActionsSuppressor", "ActionsSuppressorWaitPeriod", "ActionsSuppressorExtensionPeriod")

# moto has no API for these, or none worth reading back: held so that `Ref` and `GetAtt` resolve.
HELD = {
    "AWS::EC2::CapacityReservation": ("Id", "cr-0123456789abcdef0"),
    "AWS::ElasticLoadBalancingV2::TrustStore": (
        "TrustStoreArn",
        "arn:aws:elasticloadbalancing:us-east-1:123456789012:truststore/held/0123456789abcdef",
    ),
    "AWS::ImageBuilder::Component": ("Arn", "arn:aws:imagebuilder:us-east-1:123456789012:component/held/1.0.0/1"),
    "AWS::ImageBuilder::DistributionConfiguration": (
        "Arn",
        "arn:aws:imagebuilder:us-east-1:123456789012:distribution-configuration/held",
    ),
    "AWS::ImageBuilder::ImagePipeline": ("Arn", "arn:aws:imagebuilder:us-east-1:123456789012:image-pipeline/held"),
    "AWS::ImageBuilder::ImageRecipe": ("Arn", "arn:aws:imagebuilder:us-east-1:123456789012:image-recipe/held/1.0.0"),
    "AWS::ImageBuilder::InfrastructureConfiguration": (
        "Arn",
        "arn:aws:imagebuilder:us-east-1:123456789012:infrastructure-configuration/held",
    ),
}


def _egress(operation: str) -> Callable[[str, Properties], Properties]:
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


def _put_scaling_policy(region: str, properties: Properties) -> Properties:
    """moto's own answer carries no ARN."""
    call("autoscaling", "PutScalingPolicy")(region, properties)
    named = {"AutoScalingGroupName": properties["AutoScalingGroupName"], "PolicyNames": [properties["PolicyName"]]}
    found: Properties = call("autoscaling", "DescribePolicies")(region, named)["ScalingPolicies"][0]
    return {"PolicyARN": found["PolicyARN"]}


def _put_bucket_policy(region: str, properties: Properties) -> Properties:
    document = json.dumps(properties["PolicyDocument"])
    return call("s3", "PutBucketPolicy")(region, {"Bucket": properties["Bucket"], "Policy": document})


def _put_topic_policy(region: str, properties: Properties) -> Properties:
    document = json.dumps(properties["PolicyDocument"])
    for topic in properties["Topics"]:
        attribute = {"TopicArn": topic, "AttributeName": "Policy", "AttributeValue": document}
        call("sns", "SetTopicAttributes")(region, attribute)
    return {}


def _put_endpoint_service(region: str, properties: Properties) -> Properties:
    put = call("ec2", "CreateVpcEndpointServiceConfiguration", "NetworkLoadBalancerArns", "AcceptanceRequired")
    service: Properties = put(region, properties)["ServiceConfiguration"]
    return {"ServiceId": service["ServiceId"]}


def _delete_endpoint_service(region: str, properties: Properties) -> Properties:
    return call("ec2", "DeleteVpcEndpointServiceConfigurations")(region, {"ServiceIds": [properties["ServiceId"]]})


def _put_endpoint_permissions(region: str, properties: Properties) -> Properties:
    added = {"ServiceId": properties["ServiceId"], "AddAllowedPrincipals": properties["AllowedPrincipals"]}
    return call("ec2", "ModifyVpcEndpointServicePermissions")(region, added)


def _nothing(region: str, properties: Properties) -> Properties:
    del region, properties
    return {}


def _delete_alarm(region: str, properties: Properties) -> Properties:
    return call("cloudwatch", "DeleteAlarms")(region, {"AlarmNames": [properties["AlarmName"]]})


GROUP = "AutoScalingGroupName"
FORWARDED = (
    Forwarded(
        "AWS::AutoScaling::ScalingPolicy",
        _put_scaling_policy,
        call("autoscaling", "DeletePolicy", GROUP, "PolicyName"),
        name="PolicyName",
        ref="PolicyARN",
    ),
    Forwarded(
        "AWS::AutoScaling::LifecycleHook",
        call("autoscaling", "PutLifecycleHook"),
        call("autoscaling", "DeleteLifecycleHook", GROUP, "LifecycleHookName"),
        name="LifecycleHookName",
    ),
    Forwarded(
        "AWS::AutoScaling::WarmPool",
        call("autoscaling", "PutWarmPool"),
        gone_is_fine(call("autoscaling", "DeleteWarmPool", GROUP)),
        ref=GROUP,
    ),
    Forwarded("AWS::CloudWatch::Alarm", call("cloudwatch", "PutMetricAlarm"), _delete_alarm, name="AlarmName"),
    Forwarded(
        "AWS::CloudWatch::CompositeAlarm", call("cloudwatch", "PutCompositeAlarm"), _delete_alarm, name="AlarmName"
    ),
    Forwarded(
        "AWS::EC2::SecurityGroupEgress",
        _egress("AuthorizeSecurityGroupEgress"),
        gone_is_fine(_egress("RevokeSecurityGroupEgress")),
        ref="GroupId",
    ),
    Forwarded(
        "AWS::EC2::VPCEndpointService", _put_endpoint_service, gone_is_fine(_delete_endpoint_service), ref="ServiceId"
    ),
    Forwarded("AWS::EC2::VPCEndpointServicePermissions", _put_endpoint_permissions, _nothing, ref="ServiceId"),
    Forwarded(
        "AWS::S3::BucketPolicy",
        _put_bucket_policy,
        gone_is_fine(call("s3", "DeleteBucketPolicy", "Bucket")),
        ref="Bucket",
    ),
    Forwarded("AWS::SNS::TopicPolicy", _put_topic_policy, _nothing),
    Forwarded(
        "AWS::SNS::Subscription",
        call("sns", "Subscribe", "TopicArn", "Protocol", "Endpoint"),
        gone_is_fine(call("sns", "Unsubscribe", "SubscriptionArn")),
        ref="SubscriptionArn",
    ),
)


def _held(kind: str, attribute: str, value: str) -> Forwarded:
    return Forwarded(kind, lambda region, properties: {attribute: value}, _nothing, ref=attribute)  # noqa: ARG005


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


def _target_group(group: Any, properties: Properties, region: str) -> None:
    attributes = properties.get("TargetGroupAttributes", [])
    call("elbv2", "ModifyTargetGroupAttributes")(region, {"TargetGroupArn": group.arn, "Attributes": attributes})


def _security_group(group: Any, properties: Properties, region: str) -> None:
    """Egress rules of a template replace the rule that lets everything out."""
    if rules := properties.get("SecurityGroupEgress", []):
        everything = {"GroupId": group.id, "IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}
        _egress("RevokeSecurityGroupEgress")(region, everything)
    for rule in rules:
        _egress("AuthorizeSecurityGroupEgress")(region, {"GroupId": group.id, **rule})


def _topic(topic: Any, properties: Properties, region: str) -> None:
    if key := properties.get("KmsMasterKeyId"):
        attribute = {"TopicArn": topic.arn, "AttributeName": "KmsMasterKeyId", "AttributeValue": key}
        call("sns", "SetTopicAttributes")(region, attribute)


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


def register_models() -> None:
    """Extend moto in this process; before its first stack."""
    for forwarded in FORWARDED:
        register(forwarded)
    for kind, (attribute, value) in HELD.items():
        register(_held(kind, attribute, value))
    _after_create(FakeLoadBalancer, _load_balancer)
    _after_create(FakeTargetGroup, _target_group)
    _after_create(SecurityGroup, _security_group)
    _after_create(Topic, _topic)
    _after_create(FakeAutoScalingGroup, _auto_scaling_group)
    _keep_group_on_update()
    _know_defaults_as_previous_values()
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


def _no_verdict(bucket: Any, action: str, resource: str) -> PermissionResult:
    del bucket, action, resource
    return PermissionResult.NEUTRAL


def main() -> None:
    port = sys.argv[1]
    os.environ["MOTO_PORT"] = port  # where the models find the API: this server itself
    register_models()
    serve(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    main()
