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

from moto.server import main as serve

from tests.infra.moto_cache import CACHE
from tests.infra.moto_events import EVENTS
from tests.infra.moto_forwarding import Forwarded, Properties, call, gone_is_fine, register
from tests.infra.moto_image_builder import FORWARDED as IMAGE_BUILDER
from tests.infra.moto_image_builder import add_image_builder
from tests.infra.moto_member_account import REFUSED, refuse_as_a_member_account
from tests.infra.moto_metric_math import compute_metric_math
from tests.infra.moto_new_account import furnish_the_account
from tests.infra.moto_new_services import add_small_services
from tests.infra.moto_paging import follow_children
from tests.infra.moto_patches import GROUP, complete_models, egress
from tests.infra.moto_refreshes import take_time_to_refresh
from tests.infra.moto_refusals import refuse_as_aws_does
from tests.infra.moto_schedules import keep_schedules_as_auto_scaling_does
from tests.infra.moto_state_machines import run_state_machines

# moto has no API for these, or none worth reading back: held so that `Ref` and `GetAtt` resolve.
HELD = {
    "AWS::ElasticLoadBalancingV2::TrustStore": (
        "TrustStoreArn",
        "arn:aws:elasticloadbalancing:us-east-1:123456789012:truststore/held/0123456789abcdef",
    ),
    "AWS::ImageBuilder::Component": ("Arn", "arn:aws:imagebuilder:us-east-1:123456789012:component/held/1.0.0/1"),
    "AWS::ImageBuilder::ImageRecipe": ("Arn", "arn:aws:imagebuilder:us-east-1:123456789012:image-recipe/held/1.0.0"),
    "AWS::ImageBuilder::InfrastructureConfiguration": (
        "Arn",
        "arn:aws:imagebuilder:us-east-1:123456789012:infrastructure-configuration/held",
    ),
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


def _nothing(region: str, properties: Properties) -> Properties:
    del region, properties
    return {}


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


def register_models() -> None:
    """Extend moto in this process; before its first stack."""
    for forwarded in (*FORWARDED, *CACHE, *EVENTS, *IMAGE_BUILDER, *REFUSED):
        register(forwarded)
    for kind, (attribute, value) in HELD.items():
        register(_held(kind, attribute, value))
    furnish_the_account()
    add_image_builder()
    add_small_services()
    run_state_machines()
    compute_metric_math()
    follow_children()
    complete_models()
    refuse_as_a_member_account()
    refuse_as_aws_does()
    keep_schedules_as_auto_scaling_does()
    take_time_to_refresh()


def main() -> None:
    port = sys.argv[1]
    os.environ["MOTO_PORT"] = port  # where the models find the API: this server itself
    register_models()
    serve(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    main()
