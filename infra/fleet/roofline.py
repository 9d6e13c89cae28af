"""How many plans a second a host's memory lets its replicas make: a roofline.

Every replica is a process of its own and reads all weights of the layers once a forward, from memory: they are larger
than a core's share of any cache. What a host reads is therefore bounded by its share of the socket's bandwidth, which
is taken to be its share of the socket's cores:

    plans a second <= cores * min(1 / time of a plan on a core, bandwidth of a socket / its cores / bytes a plan)

(Williams, Waterman and Patterson, Roofline, CACM 2009). The bandwidth is that of the data sheet, which no program quite
reaches: the roof is lower than this says, never higher. It is also the same for every size of a family, as cores are.
"""

from __future__ import annotations

import json
from pathlib import Path

from infra.fleet.instances import processor
from infra.fleet.neuron_estimate import layer_bytes


def plan_bytes(figures: Path) -> float:
    """Return the bytes of int8 weights that a plan reads: forwards of docs/figures/decoding.json times the layers'.

    Raises OSError, KeyError, ValueError or StopIteration where the figure lacks them.
    """
    machines = json.loads((figures / "decoding.json").read_text(encoding="utf-8"))["machines"]
    natural = next(each for each in machines.values() if not each.get("forced"))
    forwards: float = natural["strategies"]["medusa"]["forwards"]
    return forwards * layer_bytes() / 2  # layer_bytes counts bfloat16


def least_core_ms(kind: str, bytes_a_plan: float) -> float:
    """Return the least mean time of a plan on one core of `kind` while all cores of the socket make plans."""
    socket = processor(kind)
    return bytes_a_plan * socket.cores / socket.gigabytes_per_second * 1e-6
