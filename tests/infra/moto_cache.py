"""CloudFormation's ElastiCache in moto: made through its API, and refused where an account would refuse it.

Sources: Amazon ElastiCache user guide, Role-Based Access Control, Authenticating with IAM, and Minimizing downtime with
Multi-AZ; API reference, CreateUser and CreateReplicationGroup. moto has no user groups: they are held.
"""

import re

from botocore.exceptions import ClientError
from moto.cloudformation.exceptions import ValidationError

from tests.infra.moto_forwarding import Call, Forwarded, Properties, call, client, gone_is_fine

_LONGEST_ID = 40
_ID = re.compile(r"[a-z](-?[a-z0-9])*")


def refuse(kind: str, why: str) -> None:
    raise ValidationError(kind, f"{kind}: {why}")


def _checked_id(kind: str, given: str) -> None:
    if len(given) > _LONGEST_ID or not _ID.fullmatch(given):
        refuse(kind, f"{given!r}: an id has up to {_LONGEST_ID} small letters, digits and single hyphens")


def _there(region: str, operation: str, found_in: str, **named: str) -> Properties | None:
    """What is there of that name: an update of ours changes nothing that moto keeps, and is no second creation."""
    try:
        found = getattr(client("elasticache", region), operation)(**named)[found_in]
    except ClientError:
        return None
    return found[0] if found else None


def _put_user(region: str, properties: Properties) -> Properties:
    kind = "AWS::ElastiCache::User"
    _checked_id(kind, properties["UserId"])
    if properties.get("AuthenticationMode", {}).get("Type") == "iam" and properties["UserId"] != properties["UserName"]:
        refuse(kind, "an IAM user's name must be its id")
    there = _there(region, "describe_users", "Users", UserId=properties["UserId"])
    return there or call("elasticache", "CreateUser")(region, properties)


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
    group = _there(region, "describe_replication_groups", "ReplicationGroups", ReplicationGroupId=name)
    if group is None:
        asked = properties | {"ReplicationGroupId": name}
        group = call("elasticache", "CreateReplicationGroup")(region, asked)["ReplicationGroup"]
    return {
        "ReplicationGroupId": name,
        "PrimaryEndPoint.Address": group["NodeGroups"][0]["PrimaryEndpoint"]["Address"],
    }


def _put_subnets(region: str, properties: Properties) -> Properties:
    name = properties["CacheSubnetGroupName"].lower()
    asked = {
        "CacheSubnetGroupName": name,
        "CacheSubnetGroupDescription": properties["Description"],
        "SubnetIds": properties["SubnetIds"],
    }
    there = _there(region, "describe_cache_subnet_groups", "CacheSubnetGroups", CacheSubnetGroupName=name)
    if there is None:
        call("elasticache", "CreateCacheSubnetGroup")(region, asked)
    return {"CacheSubnetGroupName": name}


def _delete(operation: str, parameter: str) -> Call:
    return gone_is_fine(call("elasticache", operation, parameter))


def _nothing(region: str, properties: Properties) -> Properties:
    del region, properties
    return {}


CACHE = (
    Forwarded("AWS::ElastiCache::SubnetGroup", _put_subnets, _nothing, name="CacheSubnetGroupName"),
    Forwarded(
        "AWS::ElastiCache::User",
        _put_user,
        _delete("DeleteUser", "UserId"),
        ref="UserId",
    ),
    Forwarded("AWS::ElastiCache::UserGroup", _put_user_group, _nothing, ref="UserGroupId"),
    Forwarded(
        "AWS::ElastiCache::ReplicationGroup",
        _put_replication_group,
        _delete("DeleteReplicationGroup", "ReplicationGroupId"),
        name="ReplicationGroupId",
    ),
)
