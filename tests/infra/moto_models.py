"""A moto server whose CloudFormation also makes what moto 5.2 leaves out, so that boto3 reads it back.

Left out without this: scaling policies, lifecycle hooks, warm pools, alarms and composite alarms, egress rules,
policies of buckets and topics, topic subscriptions, ElastiCache, schedules, Image Builder, attributes of balancers and
target groups. `python -m tests.infra.moto_models PORT` runs the server. What moto's own API drops stays dropped: role
and notification target of a lifecycle hook, for one.

What an account would refuse is refused. Sources: Amazon ElastiCache user guide (Role-Based Access Control,
Authenticating with IAM, Multi-AZ) and API reference (CreateUser, CreateReplicationGroup); Amazon EventBridge Scheduler
user guide (One-time schedules, RetryPolicy). moto has no user groups: they are held, as subnets of caches are. An
image's build runs as often as it is asked for, each look at it one status further; with EMULATOR_BUILDS_AT_ONCE it is
done at the first.
"""

import json
import os
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlparse
from uuid import uuid4

from botocore.exceptions import ClientError
from moto.cloudformation.exceptions import ValidationError
from moto.ec2 import ec2_backends
from moto.server import main as serve

from tests.infra import moto_cloudwatch as moto_cloudwatch  # what it changes of moto
from tests.infra import moto_timing as moto_timing
from tests.infra.moto_forwarding import (
    Call,
    Forwarded,
    Properties,
    call,
    change_moto,
    client,
    gone_is_fine,
    nothing,
    register,
)
from tests.infra.moto_patches import GROUP, REGION, Answer, add_service, answer, egress, furnish_the_account
from tests.infra.moto_refusals import CANARIES
from tests.infra.moto_state_machines import run_state_machines

_LONGEST_ID = 40
_ID = re.compile(r"[a-z](-?[a-z0-9])*")


def refuse(kind: str, why: str) -> None:
    raise ValidationError(kind, f"{kind}: {why}")


def _checked_id(kind: str, given: str) -> None:
    if len(given) > _LONGEST_ID or not _ID.fullmatch(given):
        refuse(kind, f"{given!r}: an id has up to {_LONGEST_ID} small letters, digits and single hyphens")


def _put_user(region: str, properties: Properties) -> Properties:
    kind = "AWS::ElastiCache::User"
    _checked_id(kind, properties["UserId"])
    if properties.get("AuthenticationMode", {}).get("Type") == "iam" and properties["UserId"] != properties["UserName"]:
        refuse(kind, "an IAM user's name must be its id")
    with suppress(ClientError):  # an update of ours changes nothing that moto keeps, and is no second creation
        call("elasticache", "CreateUser")(region, properties)
    return {}


def _put_user_group(region: str, properties: Properties) -> Properties:
    del region
    _checked_id("AWS::ElastiCache::UserGroup", properties["UserGroupId"])
    if properties["Engine"] != "valkey" and "default" not in properties["UserIds"]:
        refuse("AWS::ElastiCache::UserGroup", "a group of Redis OSS needs a user named default")
    return {}


def _put_replication_group(region: str, properties: Properties) -> Properties:
    kind = "AWS::ElastiCache::ReplicationGroup"
    encrypted = str(properties.get("TransitEncryptionEnabled")).lower() == "true"
    if properties.get("UserGroupIds") and not encrypted:
        refuse(kind, "user groups need encryption in transit")
    failover = str(properties.get("AutomaticFailoverEnabled")).lower() == "true"
    if failover and int(properties["NumCacheClusters"]) < 2:
        refuse(kind, "automatic failover needs a replica")
    name = properties["ReplicationGroupId"][-_LONGEST_ID:].strip("-").lower()
    try:
        found = client("elasticache", region).describe_replication_groups(ReplicationGroupId=name)
        (group,) = found["ReplicationGroups"]
    except ClientError:
        asked = properties | {"ReplicationGroupId": name}
        group = call("elasticache", "CreateReplicationGroup")(region, asked)["ReplicationGroup"]
    return {"ReplicationGroupId": name, "PrimaryEndPoint.Address": group["NodeGroups"][0]["PrimaryEndpoint"]["Address"]}


CACHE = (
    Forwarded("AWS::ElastiCache::SubnetGroup", nothing, nothing, name="CacheSubnetGroupName"),
    Forwarded(
        "AWS::ElastiCache::User", _put_user, gone_is_fine(call("elasticache", "DeleteUser", "UserId")), ref="UserId"
    ),
    Forwarded("AWS::ElastiCache::UserGroup", _put_user_group, nothing, ref="UserGroupId"),
    Forwarded(
        "AWS::ElastiCache::ReplicationGroup",
        _put_replication_group,
        gone_is_fine(call("elasticache", "DeleteReplicationGroup", "ReplicationGroupId")),
        name="ReplicationGroupId",
    ),
)


_LONGEST_AGE, _MOST_RETRIES = 86_400, 185


def _put_schedule(region: str, properties: Properties) -> Properties:
    kind, policy = "AWS::Scheduler::Schedule", properties["Target"].get("RetryPolicy", {})
    at = properties["ScheduleExpression"].removeprefix("at(").removesuffix(")")
    if datetime.fromisoformat(at).replace(tzinfo=UTC) < datetime.now(UTC):
        refuse(kind, f"{at} is in the past")
    age, retries = int(policy.get("MaximumEventAgeInSeconds", 60)), int(policy.get("MaximumRetryAttempts", 0))
    if not 60 <= age <= _LONGEST_AGE or not 0 <= retries <= _MOST_RETRIES:
        refuse(kind, f"{age} s and {retries} attempts are beyond what a retry policy may say")
    json.loads(properties["Target"]["Input"])
    return _put_once("get_schedule", "CreateSchedule", region, properties, "GroupName")


def _put_once(get: str, create: str, region: str, properties: Properties, *names: str) -> Properties:
    try:
        getattr(client("scheduler", region), get)(**{name: properties[name] for name in ("Name", *names)})
    except ClientError:
        call("scheduler", create)(region, properties)
    return {}


def _put_schedule_group(region: str, properties: Properties) -> Properties:
    return _put_once("get_schedule_group", "CreateScheduleGroup", region, properties)


EVENTS = (
    Forwarded(
        "AWS::Scheduler::Schedule",
        _put_schedule,
        gone_is_fine(call("scheduler", "DeleteSchedule", "Name", "GroupName")),
        name="Name",
    ),
    Forwarded(
        "AWS::Scheduler::ScheduleGroup",
        _put_schedule_group,
        gone_is_fine(call("scheduler", "DeleteScheduleGroup", "Name")),
        name="Name",
    ),
)


_ARN = f"arn:aws:imagebuilder:{REGION}:123456789012"
_ON_THE_WAY = () if "EMULATOR_BUILDS_AT_ONCE" in os.environ else ("PENDING", "BUILDING", "TESTING", "DISTRIBUTING")
_distributions: dict[str, Properties] = {}
_pipelines: dict[str, Properties] = {}
_builds: dict[str, dict[str, Any]] = {}


def _kept(kept: dict[str, Properties], kind: str) -> Call:
    """Keep what is put under its ARN."""

    def put(region: str, properties: Properties) -> Properties:
        del region
        arn = f"{_ARN}:{kind}/{properties['Name']}"
        kept[arn] = properties
        return {"Arn": arn}

    return put


def _gone(region: str, properties: Properties) -> Properties:
    del region
    _pipelines.pop(properties["Arn"], None)
    return {}


_distribution, _pipeline = _kept(_distributions, "distribution-configuration"), _kept(_pipelines, "image-pipeline")
IMAGE_BUILDER = (
    Forwarded("AWS::ImageBuilder::DistributionConfiguration", _distribution, _gone, ref="Arn"),
    Forwarded("AWS::ImageBuilder::ImagePipeline", _pipeline, _gone, ref="Arn"),
)


def _start(request: Any, *_: Any) -> Answer:
    pipeline = _pipelines.get(json.loads(request.data)["imagePipelineArn"])
    if pipeline is None:
        return answer({"message": "no such pipeline"}, 404)
    build = f"{_ARN}:image/{pipeline['Name']}/1.0.0/{len(_builds) + 1}"
    _builds[build] = {"pipeline": pipeline, "seen": 0}
    return answer({"clientToken": str(uuid4()), "imageBuildVersionArn": build})


def _get(_: Any, full_url: str, *__: Any) -> Answer:
    (arn,) = parse_qs(urlparse(full_url).query)["imageBuildVersionArn"]
    build = _builds[arn]
    build["seen"] += 1
    if build["seen"] <= len(_ON_THE_WAY):
        status = _ON_THE_WAY[build["seen"] - 1]
    else:
        status = "AVAILABLE"
        if "image" not in build:
            build["image"] = _make_image(build["pipeline"])
    return answer({"image": {"arn": arn, "state": {"status": status}}})


def _make_image(pipeline: Properties) -> str:
    """What a pipeline does at its end: the image, its tags, and its id in the parameter."""
    (distribution,) = _distributions[pipeline["DistributionConfigurationArn"]]["Distributions"]
    configured = distribution["AmiDistributionConfiguration"]
    name = re.sub(r"\{\{.*\}\}", str(len(_builds)), configured["Name"])
    ec2 = client("ec2", REGION)
    image: str = ec2.register_image(Name=name, RootDeviceName="/dev/sda1")["ImageId"]
    if pipeline["Name"].endswith("-arm64"):  # moto's register_image knows no architecture
        ec2_backends["123456789012"][REGION].amis[image].architecture = "arm64"
    ec2.create_tags(
        Resources=[image], Tags=[{"Key": key, "Value": value} for key, value in configured["AmiTags"].items()]
    )
    (parameter,) = distribution["SsmParameterConfigurations"]
    client("ssm", REGION).put_parameter(Name=parameter["ParameterName"], Value=image, Type="String", Overwrite=True)
    return image


# moto has no API for these, or none worth reading back: held so that `Ref` and `GetAtt` resolve.
HELD = {
    "AWS::ElasticLoadBalancingV2::TrustStore": (
        "TrustStoreArn",
        "arn:aws:elasticloadbalancing:us-east-1:123456789012:truststore/held/0123456789abcdef",
    ),
    "AWS::ImageBuilder::Component": ("Arn", f"{_ARN}:component/held/1.0.0/1"),
    "AWS::ImageBuilder::ImageRecipe": ("Arn", f"{_ARN}:image-recipe/held/1.0.0"),
    "AWS::ImageBuilder::InfrastructureConfiguration": ("Arn", f"{_ARN}:infrastructure-configuration/held"),
}


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


def _delete_alarm(region: str, properties: Properties) -> Properties:
    return call("cloudwatch", "DeleteAlarms")(region, {"AlarmNames": [properties["AlarmName"]]})


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
        egress("AuthorizeSecurityGroupEgress"),
        gone_is_fine(egress("RevokeSecurityGroupEgress")),
        ref="GroupId",
    ),
    Forwarded("AWS::EC2::VPCEndpointService", _put_endpoint_service, _delete_endpoint_service, ref="ServiceId"),
    Forwarded("AWS::EC2::VPCEndpointServicePermissions", _put_endpoint_permissions, nothing, ref="ServiceId"),
    Forwarded(
        "AWS::S3::BucketPolicy",
        _put_bucket_policy,
        gone_is_fine(call("s3", "DeleteBucketPolicy", "Bucket")),
        ref="Bucket",
    ),
    Forwarded("AWS::SNS::TopicPolicy", _put_topic_policy, nothing),
    Forwarded(
        "AWS::SNS::Subscription",
        call("sns", "Subscribe", "TopicArn", "Protocol", "Endpoint"),
        gone_is_fine(call("sns", "Unsubscribe", "SubscriptionArn")),
        ref="SubscriptionArn",
    ),
)


def _held(kind: str, attribute: str, value: str) -> Forwarded:
    return Forwarded(kind, lambda region, properties: {attribute: value}, nothing, ref=attribute)  # noqa: ARG005


def register_models() -> None:
    """Extend moto in this process; before its first stack."""
    for forwarded in (*FORWARDED, *CACHE, *EVENTS, *IMAGE_BUILDER, *CANARIES):
        register(forwarded)
    for kind, (attribute, value) in HELD.items():
        register(_held(kind, attribute, value))
    furnish_the_account()
    add_service("imagebuilder", {"/StartImagePipelineExecution$": _start, "/GetImage$": _get})
    run_state_machines()
    change_moto()


def main() -> None:
    port = sys.argv[1]
    os.environ["MOTO_PORT"] = port  # where the models find the API: this server itself
    register_models()
    serve(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    main()
