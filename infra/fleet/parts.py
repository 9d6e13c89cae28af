"""The parts of a fleet file, each refusing what it can judge alone; rules.py judges the whole."""

from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from infra.fleet.demand import Name, Part, ServiceTime
from infra.fleet.instances import Chip, InstanceType, catalogue
from infra.fleet.model_folder import read_model_folder

REPOSITORY_ROOT = Path(__file__).parents[2]
# The service's defaults for the number of compiled positions (service/engines/neuron/configuration.py).
SEQUENCE_LENGTH, SEQUENCE_STEP = 512, 64
# The tags of every resource of a fleet (infra/stacks.py). They split bills once the paying account activates them.
TAG, PART_TAG = "peakplan:fleet", "peakplan:part"
ROOT_DEVICE = "/dev/sda1"  # of the Ubuntu base images; those of Amazon Linux have another


class Group(Part):
    """One Auto Scaling group in every cell. It has one instance type, because warm pools refuse a mix of them."""

    instance_type: str = Field(description="An instance type of infra/fleet/instances.json.")
    engine: Literal["neuron", "torch"] = Field(
        default="neuron",
        description="neuron runs on inf2, trn1 and trn2; torch, with our int8 kernels, on c7i, c7a, c7g and c8g.",
    )
    service_time: ServiceTime | None = Field(
        default=None, description="The service time on this group; the model's where left out."
    )
    minimum: int = Field(
        ge=0, description="The fewest instances at any hour. It is taken as it is and never raised silently."
    )
    maximum: int = Field(ge=1, description="The most instances.")
    stands_in: bool = Field(
        default=False,
        description="The other groups are sized without it: it grows where they lack hosts, chips above all.",
    )
    reserve: bool = Field(
        default=False,
        description="EC2 promises the capacity of every event in each zone, reserve_hours before it until its end.",
    )

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
        """The accelerator family, inf2, trn1 or trn2, or cpu. It names the group inside its cell."""
        families: dict[str, Chip] = {"inf2": "inf2", "trn1": "trn1", "trn2": "trn2"}
        return families.get(self.instance_type.partition(".")[0], "cpu")

    @property
    def instance(self) -> InstanceType:
        return catalogue().types[self.instance_type]


class Slo(Part):
    """The promise to callers, from which latency policies and burn-rate alarms are derived."""

    p99_ms: int = Field(
        default=300, ge=20, le=10_000, description="The milliseconds from POST /plan to the whole plan."
    )
    goal: float = Field(
        default=0.999,
        gt=0.5,
        lt=1,
        description="The share of requests answered well, in time and not shed, over 28 days.",
    )
    model_goal: float = Field(
        default=0.99, gt=0.5, lt=1, description="The share of requests planned by the model or its cache, over 28 days."
    )


class Draft(Part):
    """An EAGLE draft that vLLM speculates with, where it runs the model; our own engine drafts with Medusa heads."""

    folder: str = Field(description="The draft's checkpoint, as the vLLM server sees it.")
    method: Literal["eagle", "eagle3"] = "eagle"
    tokens: int = Field(default=5, ge=1, le=16, description="Tokens drafted in each step.")


class Model(Part):
    """The model that every replica serves, the shapes that it was compiled for, and the SDK that compiled it.

    What the model folder knows (id, vocabulary, intents, heads, tree, max_plan_tokens) is read there, unless the fleet
    file says it too.
    """

    folder: str = Field(description="The model folder, from the repository's root.")
    id: Name = Field(default="", validate_default=True, description="Read from the folder's model.json.")
    vocabulary: int = Field(
        default=0, gt=0, validate_default=True, description="The number of tokens, read from the model's base."
    )
    intents: int = Field(
        default=0, gt=0, validate_default=True, description="Their number, read from the folder's vocabulary.json."
    )
    attention_heads: int = Field(default=0, gt=0, validate_default=True, description="Read from the model's base.")
    key_value_heads: int = Field(default=0, gt=0, validate_default=True, description="Read from the model's base.")
    weight_bytes: int = Field(
        default=0, ge=0, description="The base's layers and embedding in bfloat16, read from its shape; 0: unknown."
    )
    cache_bytes: int = Field(default=0, ge=0, description="Keys and values of a position, as read from the base.")
    strategy: Literal["medusa", "autoregressive"] = "medusa"
    heads: int = Field(
        default=0, ge=0, le=8, description="The number of Medusa heads, read from the folder's medusa_heads."
    )
    tree: list[list[int]] = Field(
        default=[], description="NxDI's list of choices, read from the folder's medusa_tree.json."
    )
    speculation_length: int = Field(
        default=0,
        ge=0,
        validate_default=True,
        description="The rows of a step, the tree's nodes + 1 at least, which it follows where it is left out.",
    )
    max_prompt_tokens: int = Field(default=384, ge=1)
    max_plan_tokens: int = Field(
        default=0, ge=1, validate_default=True, description="Read from the folder's model.json."
    )
    sequence_length: int = Field(
        default=0,
        ge=0,
        validate_default=True,
        description="The positions of the key/value cache; left out: 512, or the more that prompt, plan and rows need.",
    )
    context_buckets: tuple[int, ...] = Field(
        default=(), description="The prompt lengths that are compiled; left out: 32, 64, 128 and max_prompt_tokens."
    )
    routing: Literal["off", "overload", "always"] = Field(
        default="overload",
        description="Whom the reader plans for (PEAKPLAN_ROUTING); always: what the model's bound allows, too.",
    )
    work_by_choice: float = Field(
        default=1,
        gt=0,
        le=1,
        description="The share of the model's work left with routing always, read from the folder's reader.json.",
    )
    tensor_parallel: int = Field(
        default=1, ge=1, description="The NeuronCores that a replica spans; a chip has 2, one of trn2 4 logical ones."
    )
    batch_size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="The plans that a replica decodes together. Above 1 the gateway runs the replicas, without Triton.",
    )
    graph: Literal["tree", "chain"] = Field(
        default="tree", description="What a step reads on chips; chain: NxDI's plain graph, where trees do not compile."
    )
    weight_layout: bool = Field(
        default=False, description="Whether Neuron's compiler chooses the layout of the weights for steps."
    )
    device_rights: Literal["none", "memory", "aws"] = Field(
        default="none",
        description="What the container may do on chips: nothing, lock memory, or what AWS's image asks for (root with "
        "SYS_ADMIN and IPC_LOCK). `peakplan bench neuron-day` finds out what the runtime needs.",
    )
    lost_replica_seconds: int = Field(
        default=300,
        ge=0,
        description="A host one of whose replicas has been down for longer is replaced; 0: never. NeuronCores may stay "
        "taken after their process has ended.",
    )
    draft: Draft | None = Field(default=None, description="Used by `python -m infra.fleet vllm` alone.")
    async_mode: bool = False
    sdk: str = Field(default="2.28", pattern=r"^\d+\.\d+$", description="The version of the Neuron SDK.")
    image: str = Field(
        default="public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.28.0-ubuntu24.04",
        description="The container image, pinned by a tag that names the SDK.",
    )
    service_time: ServiceTime

    @property
    def work_share(self) -> float:
        """The share of the model's work that is left to the model: all of it unless the reader plans some by choice."""
        return self.work_by_choice if self.routing == "always" else 1.0

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

    @field_validator("sequence_length")
    @classmethod
    def _follow_the_lengths(cls, length: int, before: ValidationInfo) -> int:
        known = before.data
        if length or not {"max_prompt_tokens", "max_plan_tokens", "speculation_length"} <= known.keys():
            return length
        needed: int = known["max_prompt_tokens"] + known["max_plan_tokens"] + 1
        if known["strategy"] == "medusa":
            needed += known["heads"] + known["speculation_length"]
        return max(SEQUENCE_LENGTH, -(-needed // SEQUENCE_STEP) * SEQUENCE_STEP)


class MachineImage(Part):
    """The SSM parameters that keep the ids of machine images, so that no account's id is in a fleet file."""

    base_parameter: str = Field(
        default="/peakplan/neuron-base-image",
        pattern=r"^/.+",
        description="The AMI with the driver of the pinned SDK, which you choose.",
    )
    base_name: str = Field(
        default="Deep Learning Base Neuron AMI (Ubuntu 24.04)",
        description="The exact name of Amazon's image, without its date. `peakplan fleet bootstrap` takes the newest.",
    )
    parameter: str = Field(
        default="/imagebuilder/peakplan/machine-image",
        pattern=r"^/imagebuilder/.+",
        description="The AMI that cells boot, set by the image pipeline, whose role writes under /imagebuilder/; "
        "that of c7g and c8g is in the same name with -arm64.",
    )
    root_gib: int = Field(
        default=50,
        ge=16,
        le=1024,
        description="The root volume; no smaller than the base image's. Stopped hosts keep it.",
    )
    scan: bool = Field(default=False, description="Amazon Inspector looks for known vulnerabilities at each bake.")
    arm64_base_parameter: str = Field(
        default="/peakplan/arm64-base-image",
        pattern=r"^/.+",
        description="The AMI that the image of c7g and c8g is baked on, where a group has them.",
    )
    arm64_base_name: str = Field(
        default="ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server",
        description="The exact name of Canonical's image, without its date. "
        "`peakplan fleet bootstrap` takes the newest.",
    )
    arm64_container: str = Field(
        default="public.ecr.aws/docker/library/python:3.11-slim-bookworm",
        description="The container image that the service is built on there: Neuron's are for x86_64 alone.",
    )


_ADDRESS = r"^(arn:aws:sns:.+|https://\S+|[^@\s/]+@[^@\s]+\.[^@\s]+)$"


def _or_one_address(schema: dict[str, Any]) -> None:
    """Tell editors that one address stands for both targets."""
    both = {name: schema.pop(name) for name in ("type", "properties", "required", "additionalProperties")}
    schema["anyOf"] = [{"type": "string", "pattern": _ADDRESS}, both]


class OnCall(Part):
    """The people who are notified. Pages wake somebody and tickets can wait; both may have one address."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_or_one_address)

    page: str = Field(
        pattern=_ADDRESS, description="A pager's https:// address, the ARN of an SNS topic, or an e-mail address."
    )
    ticket: str = Field(pattern=_ADDRESS, description="The same, for what can wait until the morning.")

    @model_validator(mode="before")
    @classmethod
    def _one_address_is_both(cls, value: object) -> object:
        return {"page": value, "ticket": value} if isinstance(value, str) else value


class Rollout(Part):
    """The course of a release from cell to cell: the first is the canary, and the others follow several at a time."""

    canary_bake_minutes: float = Field(
        default=15, ge=0, le=24 * 60, description="The minutes that the first cell is watched after its deploy."
    )
    bake_minutes: float = Field(
        default=5, ge=0, le=24 * 60, description="The minutes that every other cell is watched after its deploy."
    )
    parallel_cells: int = Field(default=2, ge=1, le=16, description="The cells that change at once, after the canary.")
