"""The AWS requests of hosts and their reasons, in one table for the hosts' roles and the policies of VPC endpoints.

Hosts pull nothing: container, model and compiled graphs are in the machine image, and metrics travel inside log lines.
Therefore hosts have no endpoint for ECR, S3 or CloudWatch's metrics; synthetic_plans.py says what canaries have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

# Route tables lead to these at no cost. An S3 interface endpoint with private DNS would need the gateway too.
GATEWAYS = frozenset({"s3", "dynamodb"})


class Endpoint(BaseModel):
    """One AWS service that cells reach without the internet, and the requests that are allowed on that way."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    service: str = Field(
        pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)*$",
        description="The name of the service, as in com.amazonaws.<region>.<service>.",
    )
    reason: str = Field(min_length=12, description="Who needs it, and for what.")
    actions: tuple[str, ...] = Field(min_length=1, description="IAM actions. Everything else is refused on this way.")
    resources: tuple[str, ...] = Field(
        default=("*",), description="ARNs, in which {fleet} stands for the fleet's name."
    )

    @property
    def is_gateway(self) -> bool:
        """Whether it is a route to the service instead of an address of it."""
        return self.service in GATEWAYS


LIFECYCLE = Endpoint(
    service="autoscaling",
    reason="a host completes its own lifecycle hooks",
    actions=("autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"),
    resources=("arn:aws:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/peakplan-{fleet}-*",),
)
LOGS = Endpoint(
    service="logs",
    reason="the CloudWatch agent ships the service's lines and, inside them, its metrics",
    actions=("logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"),
    resources=("arn:aws:logs:*:*:log-group:/peakplan/{fleet}/*",),
)
SESSION_REGISTRATION = Endpoint(
    service="ssm",
    reason="a host registers with Session Manager, the only way for people onto it",
    actions=("ssm:UpdateInstanceInformation",),
)
SESSIONS = Endpoint(
    service="ssmmessages",
    reason="a person's session on a host runs through it",
    actions=(
        "ssmmessages:CreateControlChannel",
        "ssmmessages:CreateDataChannel",
        "ssmmessages:OpenControlChannel",
        "ssmmessages:OpenDataChannel",
    ),
)
OF_EVERY_HOST = (LIFECYCLE, LOGS, SESSION_REGISTRATION, SESSIONS)


def by_service(endpoints: Iterable[Endpoint]) -> dict[str, list[Endpoint]]:
    """Return the endpoints of each service: a VPC has one of a service, for whatever was asked of it."""
    found: defaultdict[str, list[Endpoint]] = defaultdict(list)
    for endpoint in endpoints:
        found[endpoint.service].append(endpoint)
    return dict(found)
