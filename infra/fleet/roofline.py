"""How many plans a second a host's memory lets its replicas make: a roofline.

Every replica is a process of its own and reads all weights of the layers once a forward, from memory: they are larger
than a core's share of any cache. What a host reads is therefore bounded by its share of the socket's bandwidth, which
is taken to be its share of the socket's cores:

    plans a second <= cores * min(1 / time of a plan on a core, bandwidth of a socket / its cores / bytes a plan)

(Williams, Waterman and Patterson, Roofline, CACM 2009). The bandwidth is that of the data sheet, which no program quite
reaches: the roof is lower than this says, never higher. It is also the same for every size of a family, as cores are.
"""

from __future__ import annotations

from pathlib import Path

from infra.fleet.instances import processor
from infra.fleet.measured import Measured
from infra.fleet.planners import SHIPPED, Planner


def plan_bytes(figures: Path, planner: Planner = SHIPPED) -> float:
    """Return the bytes of int8 weights that a plan reads: forwards of docs/figures/decoding.json times the layers'.

    Raises OSError, KeyError or ValueError where the figure lacks them.
    """
    forwards: float = Measured.read(figures).best["strategies"]["medusa"]["forwards"]
    return forwards * planner.layer_bytes / 2  # which counts bfloat16


def least_core_ms(kind: str, bytes_a_plan: float) -> float:
    """Return the least mean time of a plan on one core of `kind` while all cores of the socket make plans."""
    socket = processor(kind)
    return bytes_a_plan * socket.cores / socket.gigabytes_per_second * 1e-6
