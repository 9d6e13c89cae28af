"""Rules over several fields of a fleet file, each of which refuses one invalid combination and names its source."""

from collections.abc import Iterator
from itertools import pairwise

from infra.fleet import addresses, shared_cache, sizing
from infra.fleet.description import FleetDescription, Rule, Violation
from infra.fleet.instances import catalogue

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


GIB = 2**30
# Graphs and the runtime have the rest of a core's memory: stated (service/engines/neuron/compilation.py has them too).
USABLE = 0.9
COPIES, BESIDE_GIB = 2, 4.0


def _replica_fits_its_cores(fleet: FleetDescription) -> Iterator[Violation]:
    model = fleet.model
    cached = model.cache_bytes * model.sequence_length * model.batch_size / GIB
    held = model.weight_bytes / GIB + cached
    for group in fleet.groups:
        if group.engine == "torch" or group.chip == "cpu":
            continue
        room = USABLE * group.instance.device_gib / group.instance.cores * model.tensor_parallel
        if held > room:
            yield Violation(
                "model.tensor_parallel",
                f"a replica holds {held:.1f} GiB ({cached:.1f} of them keys and values) on {model.tensor_parallel} "
                f"core(s) of {group.instance_type}, which have {room:.1f} for it: {held - room:.1f} GiB lack; span "
                "more cores",
                "AWS Neuron documentation, device memory of an instance",
            )


def _compiler_fits_its_host(fleet: FleetDescription) -> Iterator[Violation]:
    """The image is baked on the first group with chips, which compiles for every other too."""
    for index, group in enumerate(fleet.groups):
        if group.engine == "neuron" and group.chip != "cpu":
            needed = COPIES * fleet.model.weight_bytes / GIB + BESIDE_GIB
            if needed > group.instance.host_gib:
                yield Violation(
                    f"groups.{index}.instance_type",
                    f"the image is baked on {group.instance_type}, whose {group.instance.host_gib} GiB are short of "
                    f"the {needed:.1f} that compiling takes: {needed - group.instance.host_gib:.1f} GiB lack; name a "
                    "larger size of the family",
                    "aws-neuron/neuronx-distributed#53: killed while an 8B model's graph was made on 32 GiB",
                )
            return


def _public_load_balancers_authenticate(fleet: FleetDescription) -> Iterator[Violation]:
    balancer = fleet.load_balancer
    if balancer.scheme == "internet-facing" and balancer.authentication.method == "none":
        yield Violation(
            "load_balancer.authentication",
            "none on an internet-facing load balancer: use mtls or jwt, or make it internal",
            "AWS Security Hub, and this project's rule: nothing public without authentication",
        )


def _callers_are_named_networks(fleet: FleetDescription) -> Iterator[Violation]:
    for index, caller in enumerate(fleet.callers):
        for cidr in caller.cidrs:
            if cidr.prefixlen < (8 if cidr.is_private else 16):
                yield Violation(
                    f"callers.{index}.cidrs",
                    f"{cidr} is nearly everyone; name the networks that call",
                    "AWS Security Hub EC2.18: no unrestricted ingress",
                )
    names = [caller.name for caller in fleet.callers]
    if len(set(names)) < len(names):
        yield Violation("callers", "two callers have one name; names become DNS names", "infra/constructs/edge.py")
    stated = sum(caller.share or 0 for caller in fleet.callers)
    if stated > 1 + 1e-9 or (stated < 1 - 1e-9 and all(caller.share for caller in fleet.callers)):
        yield Violation(
            "callers",
            f"the callers' shares add up to {stated:g}: make it 1, or leave out that of a caller which sends the rest",
            "infra/fleet/shards.py, fullest_share",
        )
    if fleet.caller_shard_cells > len(fleet.serving_cells):
        yield Violation(
            "caller_shard_cells",
            f"{fleet.caller_shard_cells} of {len(fleet.serving_cells)} cells with callers; use at most that many",
            "AWS Builders' Library, Workload isolation using shuffle-sharding",
        )


def _network_has_room(fleet: FleetDescription) -> Iterator[Violation]:
    source = "Amazon VPC user guide, VPC and subnet CIDR blocks"
    prefix = fleet.network.cidr.prefixlen
    if not addresses.LARGEST_PREFIX <= prefix <= addresses.SMALLEST_PREFIX:
        yield Violation(
            "network.cidr",
            f"{fleet.network.cidr}: AWS makes a VPC of /{addresses.LARGEST_PREFIX} to /{addresses.SMALLEST_PREFIX}; "
            f"use a /{addresses.LARGEST_PREFIX}",
            source,
        )
        return
    cut, needed = addresses.subnets(fleet), addresses.needed_in_a_zone(fleet)
    if cut.cells > addresses.SMALLEST_PREFIX or addresses.room(cut.cells) < needed:
        have = max(0, addresses.room(cut.cells)) if cut.cells <= addresses.SMALLEST_PREFIX else 0
        yield Violation(
            "network.cidr",
            f"{fleet.network.cidr} has {have} addresses a zone for hosts, load balancers and endpoints, which may come "
            f"to need {needed} with a zone lost: use a larger block",
            "infra/fleet/addresses.py",
        )
    elif cut.public is not None and cut.public > addresses.SMALLEST_LOAD_BALANCER_PREFIX:
        yield Violation(
            "network.cidr",
            f"{fleet.network.cidr} leaves a /{cut.public} for each public subnet, and a load balancer wants "
            f"/{addresses.SMALLEST_LOAD_BALANCER_PREFIX}: use a larger block",
            "Elastic Load Balancing user guide, Subnets for your load balancer",
        )


def _callers_have_a_way(fleet: FleetDescription) -> Iterator[Violation]:
    source = "infra/constructs/network.py and load_balancer.py"
    access = fleet.access
    for index, caller in enumerate(fleet.callers):
        if not caller.cidrs and not caller.accounts:
            yield Violation(f"callers.{index}", "name cidrs, or accounts for PrivateLink: nobody could come in", source)
        if caller.accounts and not access.privatelink:
            yield Violation(f"callers.{index}.accounts", "access.privatelink is off: turn it on, or use cidrs", source)
        routed = access.transit_gateway or access.peering
        for cidr in caller.cidrs if routed else ():
            if cidr.overlaps(fleet.network.cidr):
                yield Violation(
                    f"callers.{index}.cidrs",
                    f"{cidr} overlaps the VPC's {fleet.network.cidr}: no route can tell them apart; use PrivateLink",
                    "Amazon VPC user guide, route priority",
                )
    if access.privatelink and fleet.load_balancer.scheme == "internet-facing":
        yield Violation(
            "access.privatelink",
            "callers reach an internet-facing load balancer without PrivateLink: set it to false",
            source,
        )


def _limits_are_kept_by_their_callers(fleet: FleetDescription) -> Iterator[Violation]:
    nameless = fleet.load_balancer.authentication.method == "none"
    if fleet.caller_shard_cells > len(fleet.serving_cells):
        return  # another rule reports it
    for index, caller in enumerate(fleet.callers):
        if caller.rate is None:
            continue
        if nameless and not caller.cidrs:
            yield Violation(
                f"callers.{index}.rate",
                f"{caller.name} comes by PrivateLink alone, behind which nobody sees its address: use mtls or jwt in "
                "load_balancer.authentication",
                "infra/fleet/shards.py",
            )
        for group in fleet.groups:
            needed = sizing.full_host_rate(fleet, caller, group)
            if caller.rate < needed:
                yield Violation(
                    f"callers.{index}.rate",
                    f"{caller.rate:g} a second is less than the {needed:.0f} that {caller.name} sends to a full "
                    f"{group.instance_type} by its share of {caller.share:g}: write {needed:.0f} or more",
                    "infra/fleet/sizing.py, full_host_rate",
                )


def _reservations_have_events(fleet: FleetDescription) -> Iterator[Violation]:
    for index, group in enumerate(fleet.groups):
        if group.reserve and not fleet.events:
            yield Violation(
                f"groups.{index}.reserve",
                "is on, but the file has no events to reserve for: name them, or leave it out",
                "infra/fleet/calendar.py",
            )


# "Scheduled actions per Auto Scaling group", which AWS does not raise (Amazon EC2 Auto Scaling user guide, Quotas).
SCHEDULED_ACTIONS = 125


def _slo_can_be_met(fleet: FleetDescription) -> Iterator[Violation]:
    for index, group in enumerate(fleet.groups):
        utilisation, time = sizing.target_utilisation(fleet, group), sizing.service_time(fleet, group)
        if utilisation < sizing.LOWEST_UTILISATION:
            yield Violation(
                f"groups.{index}.service_time" if group.service_time else "model.service_time",
                f"mean {time.mean_ms} ms and p99 {time.p99_ms} ms leave replicas of {group.instance_type} only "
                f"{utilisation:.0%} busy inside an SLO of {fleet.slo.p99_ms} ms: use a faster model or a longer SLO",
                "infra/fleet/sizing.py, target_utilisation",
            )


def _can_be_sized(fleet: FleetDescription) -> bool:
    """Return whether the fleet can be sized at all; where it cannot, another rule reports it."""
    return all(
        sizing.replicas_per_instance(group, fleet.model.tensor_parallel)
        and sizing.target_utilisation(fleet, group) >= sizing.LOWEST_UTILISATION
        for group in fleet.groups
    )


def _ordinary_days_and_events_have_capacity(fleet: FleetDescription) -> Iterator[Violation]:
    if not _can_be_sized(fleet):
        return
    days = [("traffic.plans_per_minute", "an ordinary day", 1.0)]
    days += [(f"events.{index}", f"event {event.name!r}", event.multiplier) for index, event in enumerate(fleet.events)]
    for field, what, multiplier in days:
        for group in fleet.groups:
            wanted = sizing.instances_wanted(fleet, group, multiplier)
            if wanted > group.maximum:
                yield Violation(
                    field,
                    f"{what} needs {wanted} {group.instance_type} a cell, one zone's loss included, but the group's "
                    f"maximum is {group.maximum}: raise it, or the number of cells",
                    "infra/fleet/sizing.py; AWS Builders' Library, Static stability using Availability Zones",
                )


def _minimum_carries_the_quietest_hour(fleet: FleetDescription) -> Iterator[Violation]:
    if not _can_be_sized(fleet):
        return
    share = min((block.share for block in fleet.traffic.forecast), default=1.0)
    when = "the forecast's quietest hour" if fleet.traffic.forecast else "an ordinary day (there is no forecast)"
    for index, group in enumerate(fleet.groups):
        needed = sizing.floor_for(fleet, group, share)
        if group.minimum < needed <= group.maximum:
            yield Violation(
                f"groups.{index}.minimum",
                f"{group.minimum} is below the {needed} {group.instance_type} a cell that {when} needs, a zone's loss "
                f"and surge.absorb included: write {needed}",
                "infra/fleet/sizing.py, floor_for; AWS Builders' Library, Static stability using Availability Zones",
            )


def _surge_can_be_kept(fleet: FleetDescription) -> Iterator[Violation]:
    if not _can_be_sized(fleet):
        return
    surge, source = fleet.surge, "infra/fleet/sizing.py, surge_instances and surge_recovery_seconds"
    for group in fleet.groups:
        needed, takes = sizing.surge_instances(fleet, group), sizing.surge_recovery_seconds(fleet, group)
        if needed > group.maximum:
            yield Violation(
                "surge.times",
                f"{surge.times:g} times the load needs {needed} {group.instance_type} a cell, but the group's maximum "
                f"is {group.maximum}: promise less, raise it, or add cells",
                source,
            )
        if takes > surge.recover:
            yield Violation(
                "surge.recover",
                f"{surge.recover} s, but {group.instance_type} in this fleet needs {takes:.0f} s (warm_start_seconds "
                f"{fleet.warm_start_seconds} of them): promise that, or start faster",
                source,
            )


def _forecast_can_be_scheduled(fleet: FleetDescription) -> Iterator[Violation]:
    begun = [(day, block.begins) for block in fleet.traffic.forecast for day in block.days]
    if len(set(begun)) < len(begun):
        yield Violation(
            "traffic.forecast", "two blocks begin at the same time of the same day", "infra/fleet/calendar.py"
        )
    actions = len(fleet.traffic.forecast) * (len(fleet.events) + 1) + 2 * len(fleet.events)
    if actions > SCHEDULED_ACTIONS:
        yield Violation(
            "traffic.forecast",
            f"{len(fleet.traffic.forecast)} blocks around {len(fleet.events)} events make {actions} scheduled "
            f"actions a group; {SCHEDULED_ACTIONS} are allowed: use fewer blocks",
            "Amazon EC2 Auto Scaling quotas, scheduled actions per Auto Scaling group",
        )


def _events_leave_time_to_boot(fleet: FleetDescription) -> Iterator[Violation]:
    for index, event in enumerate(fleet.events):
        if event.lead_minutes * 60 < 2 * fleet.boot_seconds:
            yield Violation(
                f"events.{index}.lead_minutes",
                f"{event.lead_minutes} is less than two boots of {fleet.boot_seconds} s: the second is for what fails",
                "infra/fleet/scaling.py: capacity stands ready before an event",
            )


def _shared_cache_has_room(fleet: FleetDescription) -> Iterator[Violation]:
    cache = fleet.shared_cache
    if not cache.enabled:
        return
    zones = len(fleet.availability_zones)
    if cache.nodes > zones:
        yield Violation(
            "shared_cache.nodes",
            f"{cache.nodes} nodes over {zones} zones: a second one in a zone is lost with the first; use {zones}",
            "Amazon ElastiCache user guide, Minimizing downtime with Multi-AZ",
        )
    busiest = sizing.cell_rate(fleet, sizing.peak_multiplier(fleet))
    needed = busiest * shared_cache.KEPT_SECONDS * shared_cache.BYTES_AN_ENTRY
    if needed > cache.usable_bytes:
        yield Violation(
            "shared_cache.node_type",
            f"{cache.node_type} has {cache.usable_bytes / 2**30:.1f} GiB for plans, and a cell's busiest quarter of an "
            f"hour may bring {needed / 2**30:.1f}: use a larger one",
            "infra/fleet/shared_cache.py",
        )


RULES: tuple[Rule, ...] = (
    _sdk_runs_on_the_chip,
    _medusa_decodes_synchronously,
    _tensor_parallel_exists,
    _tree_fits_the_heads,
    _sequence_has_room,
    _groups_are_sane,
    _cell_stays_small,
    _replica_fits_its_cores,
    _compiler_fits_its_host,
    _slo_can_be_met,
    _ordinary_days_and_events_have_capacity,
    _minimum_carries_the_quietest_hour,
    _surge_can_be_kept,
    _forecast_can_be_scheduled,
    _events_leave_time_to_boot,
    _shared_cache_has_room,
    _events_do_not_overlap,
    _names_and_counts_agree,
    _public_load_balancers_authenticate,
    _callers_are_named_networks,
    _network_has_room,
    _callers_have_a_way,
    _limits_are_kept_by_their_callers,
    _reservations_have_events,
)
