"""The parts of a fleet file, each refusing what it can judge alone; rules.py judges the whole."""

from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from infra.fleet.demand import Name, Part, ServiceTime
from infra.fleet.endpoints import OF_EVERY_HOST, Endpoint
from infra.fleet.instances import Chip, InstanceType, catalogue
from infra.fleet.model_folder import read_model_folder

REPOSITORY_ROOT = Path(__file__).parents[2]


class Group(Part):
    """One Auto Scaling group in every cell: one instance type, because warm pools refuse a mix of them."""

    instance_type: str = Field(description="a type of infra/fleet/instances.json")
    engine: Literal["neuron", "torch"] = Field(
        default="neuron", description="neuron on inf2 and trn1; torch, our int8 kernels, on c7i and c7a"
    )
    service_time: ServiceTime | None = Field(default=None, description="of this group; the model's where left out")
    minimum: int = Field(ge=0, description="instances, at least, at any hour; taken as it is, never raised silently")
    maximum: int = Field(ge=1, description="instances, at most")
    capacity_reservation_id: str | None = Field(default=None, pattern=r"^cr-[0-9a-f]+$")

    @field_validator("instance_type")
    @classmethod
    def _known(cls, instance_type: str) -> str:
        known = catalogue().types
        if instance_type not in known:
            raise ValueError(
                f"{instance_type!r} is not known; known are {', '.join(known)} (infra/fleet/instances.json)"
            )
        return instance_type

    @property
    def chip(self) -> Chip:
        """The accelerator family, inf2 or trn1, or cpu. It names the group inside its cell."""
        families: dict[str, Chip] = {"inf2": "inf2", "trn1": "trn1"}
        return families.get(self.instance_type.partition(".")[0], "cpu")

    @property
    def instance(self) -> InstanceType:
        """The catalogue entry of this group's instance type."""
        return catalogue().types[self.instance_type]


class Slo(Part):
    """What callers were promised; also what latency policies and burn-rate alarms are derived from."""

    p99_ms: int = Field(default=300, ge=20, le=10_000, description="milliseconds from POST /plan to the whole plan")
    goal: float = Field(
        default=0.999, gt=0.5, lt=1, description="share of requests answered well: in time and not shed, over 28 days"
    )
    model_goal: float = Field(
        default=0.99, gt=0.5, lt=1, description="share of requests planned by the model or its cache, over 28 days"
    )


class Draft(Part):
    """An EAGLE draft that vLLM speculates with, where it runs the model; our own engine drafts with Medusa heads."""

    folder: str = Field(description="the draft's checkpoint, as the vLLM server sees it")
    method: Literal["eagle", "eagle3"] = "eagle"
    tokens: int = Field(default=5, ge=1, le=16, description="drafted a step")


class Model(Part):
    """The model that every replica serves, how it was compiled for Neuron, and the SDK that compiled it.

    What the model folder knows (id, vocabulary, heads, tree, max_plan_tokens) is read there, unless the fleet file says
    it too.
    """

    folder: str = Field(description="model folder, from the repository's root")
    id: Name = Field(default="", validate_default=True, description="read from the folder's model.json")
    vocabulary: int = Field(default=0, gt=0, validate_default=True, description="tokens; read from the model's base")
    strategy: Literal["medusa", "autoregressive"] = "medusa"
    heads: int = Field(default=0, ge=0, le=8, description="Medusa heads; read from the folder's medusa_heads")
    tree: list[list[int]] = Field(default=[], description="NxDI choices list; read from the folder's medusa_tree.json")
    speculation_length: int = Field(
        default=0, ge=0, validate_default=True, description="tree nodes + 1; follows the tree where it is left out"
    )
    sequence_length: int = Field(default=512, ge=64, description="positions in the key/value cache")
    max_prompt_tokens: int = Field(default=384, ge=1)
    max_plan_tokens: int = Field(
        default=0, ge=1, validate_default=True, description="read from the folder's model.json"
    )
    tensor_parallel: int = Field(default=2, ge=1, description="NeuronCores a replica spans; 2 is one chip")
    batch_size: int = Field(default=1, ge=1)
    draft: Draft | None = Field(default=None, description="for `python -m infra.fleet vllm` alone")
    async_mode: bool = False
    sdk: str = Field(default="2.28", pattern=r"^\d+\.\d+$", description="Neuron SDK")
    image: str = Field(
        default="public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.28.0-ubuntu24.04",
        description="container image, pinned by tag, whose tag names the SDK",
    )
    service_time: ServiceTime

    @model_validator(mode="before")
    @classmethod
    def _read_the_folder(cls, content: object) -> object:
        if not isinstance(content, dict) or not isinstance(content.get("folder"), str):
            return content  # validation reports its errors field by field
        return read_model_folder(REPOSITORY_ROOT / content["folder"]) | content

    @field_validator("speculation_length")
    @classmethod
    def _follow_the_tree(cls, length: int, before: ValidationInfo) -> int:
        tree = before.data.get("tree")
        return len(tree) + 1 if tree and not length else length


class MachineImage(Part):
    """Where the ids of machine images are kept: SSM parameters, so that no account's id is in a fleet file."""

    base_parameter: str = Field(
        default="/peakplan/neuron-base-image",
        pattern=r"^/.+",
        description="AMI with the driver of the pinned SDK; by you",
    )
    parameter: str = Field(
        default="/imagebuilder/peakplan/machine-image",
        pattern=r"^/imagebuilder/.+",
        description="AMI that cells boot; by the image pipeline, whose service-linked role writes under /imagebuilder/",
    )


def _private(network: IPv4Network) -> IPv4Network:
    if not network.is_private:
        raise ValueError(f"{network} is not a private (RFC 1918) range: the VPC's addresses must not be routed outside")
    return network


class NetworkSettings(Part):
    """The VPC. Endpoints stand in for NAT unless a NAT is asked for."""

    cidr: Annotated[IPv4Network, AfterValidator(_private)] = IPv4Network("10.40.0.0/16")
    nat: bool = Field(default=False, description="NAT gateways, for models or tools fetched from the internet at boot")
    endpoints: tuple[Endpoint, ...] = Field(
        default=(), description="AWS services that cells reach beyond what every host needs (infra/fleet/endpoints.py)"
    )
    domain: str = Field(default="planner.internal", pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$", description="private DNS")
    cell_weights: tuple[int, ...] = Field(default=(), description="DNS weight of each cell, 0..255; equal when empty")

    @property
    def all_endpoints(self) -> tuple[Endpoint, ...]:
        """Every VPC endpoint of the fleet."""
        return (*OF_EVERY_HOST, *self.endpoints)

    @property
    def interface_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints in subnets, which cost by the hour and zone."""
        return tuple(endpoint for endpoint in self.all_endpoints if not endpoint.is_gateway)


class Authentication(Part):
    """How the load balancer knows its callers: mutual TLS against a trust store, or a JWT of a named issuer."""

    method: Literal["none", "mtls", "jwt"] = "none"
    trust_bundle: str | None = Field(
        default=None, pattern=r"^s3://[a-z0-9.-]+/.+$", description="mtls: certificates of trusted authorities, PEM"
    )
    issuer: str | None = Field(default=None, pattern=r"^https://", description="jwt: the issuer's URL")
    jwks: str | None = Field(default=None, pattern=r"^https://", description="jwt: where its public keys are")

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
        description="SSM parameter that holds the certificate's ARN",
    )
    certificate_authority: str | None = Field(
        default=None,
        pattern=r"^arn:aws:acm-pca:",
        description="a private CA that issues the certificate; left out: you issued or imported one, in the parameter",
    )
    reserve_capacity: bool = Field(
        default=False,
        description="reserve LCUs while an event lasts, so that the balancers need not ramp; the quota's default is 0",
    )


_ADDRESS = r"^(arn:aws:sns:.+|[^@\s]+@[^@\s]+\.[^@\s]+)$"


def _or_one_address(schema: dict[str, Any]) -> None:
    """Tell editors that one address stands for both targets."""
    both = {name: schema.pop(name) for name in ("type", "properties", "required", "additionalProperties")}
    schema["anyOf"] = [{"type": "string", "pattern": _ADDRESS}, both]


class OnCall(Part):
    """Who is told: what wakes somebody and what can wait go to addresses of their own, which may be the same."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_or_one_address)

    page: str = Field(pattern=_ADDRESS, description="an e-mail address, or the ARN of an SNS topic")
    ticket: str = Field(pattern=_ADDRESS, description="the same, for what can wait until the morning")

    @model_validator(mode="before")
    @classmethod
    def _one_address_is_both(cls, value: object) -> object:
        return {"page": value, "ticket": value} if isinstance(value, str) else value


class Caller(Part):
    """Someone who may call, and from where. Named callers get DNS names over a shuffle-sharded part of the cells."""

    name: Name
    cidrs: tuple[IPv4Network, ...] = Field(
        default=(), description="networks that route to the VPC; none: PrivateLink alone, where networks may overlap"
    )
    accounts: tuple[Annotated[str, Field(pattern=r"^\d{12}$")], ...] = Field(
        default=(), description="AWS accounts that may make PrivateLink endpoints to the cells"
    )


class CallerVpc(Part):
    """A VPC of a caller that resolves the fleet's private names by itself."""

    vpc_id: str = Field(pattern=r"^vpc-[0-9a-f]{8}([0-9a-f]{9})?$")
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    account: str | None = Field(
        default=None, pattern=r"^\d{12}$", description="another account: `make access` authorises, its owner associates"
    )


class Rollout(Part):
    """How a release goes from cell to cell: the first is the canary, the others follow several at a time."""

    canary_bake_minutes: float = Field(default=15, ge=0, le=24 * 60, description="the first cell is watched after it")
    bake_minutes: float = Field(default=5, ge=0, le=24 * 60, description="every other cell is watched after it")
    parallel_cells: int = Field(default=2, ge=1, le=16, description="cells that change at once, after the canary")


class Access(Part):
    """How callers' networks reach the cells' load balancers."""

    privatelink: bool = Field(default=True, description="an endpoint service a cell: callers make endpoints to it")
    acceptance_required: bool = Field(
        default=True, description="each endpoint waits until `make access` accepts it, or a person in the console"
    )
    transit_gateway: str | None = Field(
        default=None, pattern=r"^tgw-[0-9a-f]{17}$", description="attach the VPC, and route callers' networks there"
    )
    peering: str | None = Field(
        default=None,
        pattern=r"^pcx-[0-9a-f]{8}([0-9a-f]{9})?$",
        description="route callers' networks to this accepted connection",
    )
    caller_vpcs: tuple[CallerVpc, ...] = Field(
        default=(), description="associated with the private zone, over a transit gateway or peering"
    )

    @model_validator(mode="after")
    def _one_way_for_routes(self) -> Self:
        if self.transit_gateway and self.peering:
            raise ValueError("a network has one route: choose transit_gateway or peering")
        return self
