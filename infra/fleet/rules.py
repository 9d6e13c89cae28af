"""Rules over several fields of a fleet file, each of which refuses one invalid combination and names its source."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from infra.fleet.caller_limits import CALLER_RULES
from infra.fleet.capacity_rules import CAPACITY_RULES
from infra.fleet.description import FleetDescription
from infra.fleet.instances import catalogue
from infra.fleet.memory_rules import MEMORY_RULES
from infra.fleet.network_rules import NETWORK_RULES
from infra.fleet.reservations import RESERVATION_RULES
from infra.fleet.violations import Rule, Violation

# NxDI releases after SDK 2.28 run only on Trn2 and newer.
NEWEST_SDK = (2, 28)
# NxDI's Medusa buffers hard-code TOPK = 10.
MEDUSA_RANKS = 10
# This is the default quota "Targets per Application Load Balancer".
BALANCER_TARGETS = 1000
LOG_RETENTION_DAYS = frozenset(
    {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
)


def _sdk_runs_on_the_chip(fleet: FleetDescription) -> Iterator[Violation]:
    source = "AWS Neuron release notes, components/nxd-inference: pin 2.28 for Trn1/Inf2"
    major, minor = (int(part) for part in fleet.model.sdk.split("."))
    if (major, minor) > NEWEST_SDK:
        yield Violation(
            "model.sdk", f"{fleet.model.sdk} does not run on inf2 or trn1: NxDI of 2.29 needs Trn2; use 2.28", source
        )
    if f"sdk{fleet.model.sdk}." not in fleet.model.image:
        yield Violation(
            "model.image",
            f"its tag must name SDK {fleet.model.sdk} (sdk{fleet.model.sdk}.x): "
            f"{fleet.model.image!r} would be another SDK's or an unpinned image",
            source,
        )


def _medusa_decodes_synchronously(fleet: FleetDescription) -> Iterator[Violation]:
    if fleet.model.strategy == "medusa" and fleet.model.async_mode:
        yield Violation(
            "model.async_mode",
            "on with Medusa: the loop needs a step's states before it can draft the next; use false",
            "neuronx-distributed-inference 0.8, NeuronConfig with is_medusa",
        )


def _tensor_parallel_exists(fleet: FleetDescription) -> Iterator[Violation]:
    tensor_parallel = fleet.model.tensor_parallel
    for group in fleet.groups:
        if group.engine == "torch" or group.chip == "cpu":
            continue
        valid = [degree for degree in catalogue().tensor_parallel[group.chip] if degree <= group.instance.cores]
        if tensor_parallel not in valid:
            yield Violation(
                "model.tensor_parallel",
                f"{tensor_parallel} is not possible on {group.instance_type}; possible: {', '.join(map(str, valid))}",
                catalogue().source,
            )
    heads, keys = fleet.model.attention_heads, fleet.model.key_value_heads
    if keys != heads and keys % tensor_parallel and tensor_parallel % keys:
        yield Violation(
            "model.tensor_parallel",
            f"{tensor_parallel} does not divide the model's {keys} key and value heads, nor they it: use 1",
            "neuronx-distributed-inference 0.8, gqa.py: it cannot shard them (docs/decisions/0012)",
        )


def _tree_fits_the_heads(fleet: FleetDescription) -> Iterator[Violation]:
    model = fleet.model
    if model.strategy != "medusa":
        return
    source = "neuronx-distributed-inference, modules/generation: Medusa buffers from the choices list"
    # The plain graph reads a chain of each head's best guess, whatever tree the folder has.
    tree = [[0] * depth for depth in range(1, model.heads + 1)] if model.graph == "chain" else model.tree
    depth = max((len(path) for path in tree), default=0)
    if not depth:
        yield Violation("model.tree", "is empty: Medusa needs one; name the model's medusa_tree.json", source)
        return
    if depth > model.heads:
        yield Violation("model.heads", f"{model.heads} heads cannot fill a tree of depth {depth}", source)
    if model.speculation_length < len(tree) + 1:
        yield Violation(
            "model.speculation_length",
            f"{model.speculation_length}, but the {model.graph} has {len(tree)} nodes: "
            f"it must be {len(tree) + 1} or more",
            source,
        )
    choices = {tuple(path) for path in tree}
    for path in tree:
        if any(rank < 0 or rank >= MEDUSA_RANKS for rank in path):
            yield Violation("model.tree", f"{path} has a rank outside 0..{MEDUSA_RANKS - 1}", source)
        if len(path) > 1 and tuple(path[:-1]) not in choices:
            yield Violation("model.tree", f"{path} hangs in the air: its parent {path[:-1]} is not in the tree", source)


def _sequence_has_room(fleet: FleetDescription) -> Iterator[Violation]:
    model = fleet.model
    speculation = model.heads + model.speculation_length if model.strategy == "medusa" else 0
    needed = model.max_prompt_tokens + model.max_plan_tokens + 1 + speculation
    if model.sequence_length < needed:
        yield Violation(
            "model.sequence_length",
            f"{model.sequence_length} is short of prompt + plan + heads + 1 + speculation length = {needed}",
            "neuronx-distributed-inference: the key/value write position is not bounded",
        )
    source = "neuronx-distributed-inference, Medusa models' forward"
    if model.strategy == "medusa" and model.max_prompt_tokens == model.speculation_length:
        yield Violation(
            "model.max_prompt_tokens",
            f"{model.max_prompt_tokens} is the speculation length too: NxDI tells a prompt from a tree by its length",
            source,
        )
    elif model.strategy == "medusa" and model.speculation_length in model.context_buckets:
        yield Violation(
            "model.context_buckets",
            f"{model.speculation_length} is the speculation length too: NxDI tells a prompt from a tree by its length",
            source,
        )
    shortest = min(model.context_buckets, default=model.max_prompt_tokens)
    if model.strategy == "medusa" and shortest < min(model.speculation_length, model.max_prompt_tokens):
        yield Violation(
            "model.context_buckets", f"{shortest}: prompts up to the speculation length are read as trees", source
        )
    if model.context_buckets and max(model.context_buckets) != model.max_prompt_tokens:
        yield Violation(
            "model.context_buckets",
            f"the largest is {max(model.context_buckets)}, and max_prompt_tokens {model.max_prompt_tokens}: make them "
            "equal",
            "neuronx-distributed-inference, context_encoding_buckets",
        )


def _groups_are_sane(fleet: FleetDescription) -> Iterator[Violation]:
    source = "Amazon EC2 Auto Scaling, MinSize and MaxSize"
    for index, group in enumerate(fleet.groups):
        if group.minimum > group.maximum:
            yield Violation(
                f"groups.{index}.minimum",
                f"{group.minimum} is above maximum {group.maximum}; swap or raise them",
                source,
            )
        if group.engine == "torch" and group.chip != "cpu":
            yield Violation(
                f"groups.{index}.engine",
                f"torch on {group.instance_type} would leave its chips idle: use neuron, or a CPU type",
                "infra/fleet/instances.json",
            )
        if group.engine == "neuron" and group.chip == "cpu":
            yield Violation(
                f"groups.{index}.engine",
                f"{group.instance_type} has no Neuron chip: write engine: torch, and its service_time",
                "infra/fleet/instances.json",
            )
        if group.stands_in and group.minimum < len(fleet.availability_zones):
            yield Violation(
                f"groups.{index}.minimum",
                f"{group.minimum} of a group that stands in: what the others lack is the cell's work less its own, and "
                f"its own hosts must report that, so write {len(fleet.availability_zones)}, one in each zone",
                "infra/fleet/scaling.py: its steps are shares of the hosts that it has",
            )
    if all(group.stands_in for group in fleet.groups):
        yield Violation("groups", "all stand in, and none is sized for the load", "infra/fleet/sizing.py, group_rate")
    chips = [group.chip for group in fleet.groups]
    if len(set(chips)) < len(chips):
        yield Violation(
            "groups",
            f"two groups of {chips[0]}: one group a chip family; raise its maximum instead",
            "docs/decisions: one instance type per group",
        )


def _cell_stays_small(fleet: FleetDescription) -> Iterator[Violation]:
    size = sum(group.maximum for group in fleet.groups)
    if size > fleet.maximum_cell_instances:
        yield Violation(
            "groups",
            f"{size} instances a cell are more than maximum_cell_instances {fleet.maximum_cell_instances}: "
            "add cells instead of growing them",
            "AWS Well-Architected, Reducing the scope of impact with cell-based architecture: a fixed maximum size",
        )
    if fleet.maximum_cell_instances > BALANCER_TARGETS:
        yield Violation(
            "maximum_cell_instances",
            f"{fleet.maximum_cell_instances} is above the {BALANCER_TARGETS} targets that a load balancer takes",
            "Elastic Load Balancing quotas, targets per Application Load Balancer",
        )


def _events_do_not_overlap(fleet: FleetDescription) -> Iterator[Violation]:
    ordered = sorted(fleet.events, key=lambda event: event.start)
    for earlier, later in pairwise(ordered):
        if later.start < earlier.end:
            yield Violation(
                "events",
                f"{earlier.name!r} and {later.name!r} overlap: the end of one would take the other's capacity; merge",
                "Amazon EC2 Auto Scaling, scheduled actions: the last one to run wins",
            )


def _names_and_counts_agree(fleet: FleetDescription) -> Iterator[Violation]:
    for zone in fleet.availability_zones:
        if not zone.startswith(fleet.region):
            yield Violation("availability_zones", f"{zone} is not in {fleet.region}", "Amazon EC2, zone names")
    if len(set(fleet.availability_zones)) < len(fleet.availability_zones):
        yield Violation("availability_zones", "a zone is named twice", "Amazon EC2, zone names")
    weights = fleet.network.cell_weights
    if weights and (len(weights) != fleet.cells or set(weights) - set(range(256)) or not any(weights)):
        yield Violation(
            "network.cell_weights",
            f"give one weight of 0..255 for each of the {fleet.cells} cells, not all 0",
            "Amazon Route 53, weighted records",
        )
    if fleet.retention_days not in LOG_RETENTION_DAYS:
        yield Violation(
            "retention_days",
            f"{fleet.retention_days} is not a period CloudWatch Logs offers; it offers "
            f"{', '.join(map(str, sorted(LOG_RETENTION_DAYS)))}",
            "CloudWatch Logs, PutRetentionPolicy",
        )


RULES: tuple[Rule, ...] = (
    _sdk_runs_on_the_chip,
    _medusa_decodes_synchronously,
    _tensor_parallel_exists,
    _tree_fits_the_heads,
    _sequence_has_room,
    _groups_are_sane,
    _cell_stays_small,
    *MEMORY_RULES,
    *CAPACITY_RULES,
    _events_do_not_overlap,
    _names_and_counts_agree,
    *NETWORK_RULES,
    *CALLER_RULES,
    *RESERVATION_RULES,
)
