"""Rules on memory: what a replica holds on its cores, and what the host needs where the model is compiled."""

from __future__ import annotations

from collections.abc import Iterator

from infra.fleet.description import FleetDescription
from infra.fleet.violations import Rule, Violation

GIB = 2**30
# Graphs and the runtime have the rest of a core's memory: stated (service/engines/neuron/memory.py has them too).
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


MEMORY_RULES: tuple[Rule, ...] = (_replica_fits_its_cores, _compiler_fits_its_host)
