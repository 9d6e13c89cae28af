"""The parts of a fleet file about its network, load balancers and callers; rules.py judges the whole.

One table has the AWS requests of hosts and their reasons, for the hosts' roles and the policies of VPC endpoints. Hosts
pull nothing: container, model and compiled graphs are in the machine image, and metrics travel inside log lines. So
they have no endpoint for ECR, S3 or CloudWatch's metrics; synthetic_plans.py says what canaries have.
"""

from collections import defaultdict
from collections.abc import Iterable
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from infra.fleet.demand import Name, Part

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


def _private(network: IPv4Network) -> IPv4Network:
    if not network.is_private:
        raise ValueError(f"{network} is not a private (RFC 1918) range: the VPC's addresses must not be routed outside")
    return network


class NetworkSettings(Part):
    """The VPC. Endpoints stand in for NAT unless a NAT is asked for."""

    cidr: Annotated[IPv4Network, AfterValidator(_private)] = IPv4Network("10.40.0.0/16")
    nat: bool = Field(default=False, description="NAT gateways, for models or tools fetched from the internet at boot.")
    endpoints: tuple[Endpoint, ...] = Field(
        default=(),
        description="AWS services that cells reach beyond what every host needs (infra/fleet/network_parts.py).",
    )
    domain: str = Field(
        default="planner.internal",
        pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$",
        description="The domain of the private names.",
    )
    cell_weights: tuple[int, ...] = Field(
        default=(), description="The DNS weight of each cell, 0..255; equal when empty. 0: no callers."
    )

    @property
    def all_endpoints(self) -> tuple[Endpoint, ...]:
        return (*OF_EVERY_HOST, *self.endpoints)


class Authentication(Part):
    """The way in which callers are known: by mutual TLS against a trust store, or by a JWT of a named issuer."""

    method: Literal["none", "mtls", "jwt"] = "none"
    trust_bundle: str | None = Field(
        default=None,
        pattern=r"^s3://[a-z0-9.-]*(\{account\}|\d{12})[a-z0-9.-]*/.+$",
        description="For mtls: the certificates of trusted authorities, in PEM. The bucket's name holds {account}, "
        "the id of the fleet's account, or an id: a name without one can be taken by others first. A new bundle is "
        "trusted once its ?versionId= stands here.",
    )
    issuer: str | None = Field(default=None, pattern=r"^https://", description="For jwt: the issuer's URL.")
    jwks: str | None = Field(default=None, pattern=r"^https://", description="For jwt: the URL of its public keys.")
    caller_claim: str = Field(
        default="sub", pattern=r"^[A-Za-z0-9_:./-]{1,100}$", description="For jwt: the claim that names the caller."
    )

    def trusted(self, account: str) -> tuple[str, str, str | None]:
        """Return bucket, key and version of the trust bundle in that account. Raise ValueError where there is none."""
        if self.trust_bundle is None:
            raise ValueError(f"method {self.method!r} has no trust_bundle")
        bucket, _, rest = self.trust_bundle.removeprefix("s3://").partition("/")
        key, _, version = rest.partition("?versionId=")
        return bucket.replace("{account}", account), key, version or None

    @model_validator(mode="after")
    def _has_what_its_method_needs(self) -> Self:
        needed = {"none": (), "mtls": ("trust_bundle",), "jwt": ("issuer", "jwks")}[self.method]
        missing = [field for field in needed if getattr(self, field) is None]
        if missing:
            raise ValueError(f"method {self.method!r} needs {' and '.join(missing)}")
        return self


class LoadBalancer(Part):
    """The Application Load Balancer of each cell."""

    scheme: Literal["internal", "internet-facing"] = "internal"
    authentication: Authentication = Authentication()
    certificate_parameter: str = Field(
        default="/peakplan/certificate-arn",
        pattern=r"^/.+",
        description="The SSM parameter that holds the certificate's ARN.",
    )
    certificate_authority: str | None = Field(
        default=None,
        pattern=r"^arn:aws:acm-pca:",
        description="A private CA that issues the certificate. Left out, you issue or import it.",
    )
    reserve_capacity: bool = Field(
        default=False,
        description="LCUs are reserved during events, so that balancers need not ramp. The quota is 0 at first.",
    )


class Caller(Part):
    """One caller, and the networks and accounts that it calls from.

    Each caller gets a DNS name over a shuffle-sharded part of the cells.
    """

    name: Name
    cidrs: tuple[IPv4Network, ...] = Field(
        default=(),
        description="Networks that route to the VPC. None means PrivateLink alone, where networks may overlap.",
    )
    accounts: tuple[Annotated[str, Field(pattern=r"^\d{12}$")], ...] = Field(
        default=(), description="AWS accounts that may make PrivateLink endpoints to the cells."
    )
    share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="The share of the fleet's traffic that it sends, to its own cells alone. Cells are sized for the "
        "fullest; left out, what it sends is taken to spread over all cells.",
    )
    rate: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="The requests a second that each host takes from it; more are answered 429. Without one there is "
        "no limit. Its certificate's CN, or its token's claim, must be its name.",
    )


class CallerVpc(Part):
    """A VPC of a caller that resolves the fleet's private names by itself."""

    vpc_id: str = Field(pattern=r"^vpc-[0-9a-f]{8}([0-9a-f]{9})?$")
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    account: str | None = Field(
        default=None,
        pattern=r"^\d{12}$",
        description="Another account's id: `peakplan fleet access` authorises the association, and its owner makes it.",
    )


class Access(Part):
    """The ways in which callers' networks reach the cells' load balancers."""

    privatelink: bool = Field(
        default=True, description="Each cell has an endpoint service, to which callers make endpoints."
    )
    acceptance_required: bool = Field(
        default=True,
        description="An endpoint waits until `peakplan fleet access` accepts it, or a person in the console does.",
    )
    transit_gateway: str | None = Field(
        default=None,
        pattern=r"^tgw-[0-9a-f]{17}$",
        description="The VPC is attached to it, and callers' networks are routed there.",
    )
    peering: str | None = Field(
        default=None,
        pattern=r"^pcx-[0-9a-f]{8}([0-9a-f]{9})?$",
        description="Callers' networks are routed to this accepted connection.",
    )
    caller_vpcs: tuple[CallerVpc, ...] = Field(
        default=(), description="Callers' VPCs that resolve the private zone, over a transit gateway or peering."
    )

    @model_validator(mode="after")
    def _one_way_for_routes(self) -> Self:
        if self.transit_gateway and self.peering:
            raise ValueError("a network has one route: choose transit_gateway or peering")
        return self
