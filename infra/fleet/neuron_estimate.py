"""What a plan would take on a NeuronCore, by formulae over measured and published numbers. No chip was used.

A replica of one NeuronCore decodes N plans together. A step reads every weight of the layers once and 13 rows a plan,
and the host does what grammar, heads and LM head need before it sends the next:

    step    = FIXED_MS + weights / BYTES_PER_MS + N * rows * 2 * weights / 2 bytes / FLOPS_PER_MS
    S       = forwards * (step + DISPATCH_MS) + N * host            the replica is busy, for N plans
    rate    = replicas * N / S                                      at full use, a replica a core of the host at most

`make neuron-day` measures all of it on a device and replaces it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from infra.fleet.instances import catalogue
from infra.fleet.model_folder import KNOWN_BASES
from infra.fleet.parts import REPOSITORY_ROOT

LOOP = REPOSITORY_ROOT / "docs" / "figures" / "neuron_loop.json"
# Fitted to published latencies of inf2.xlarge, batch 1, one core (AWS Neuron, Inf2 inference performance): bert-base
# with 170 MB of layers takes 0.999 ms, distilbert with half of them 0.579.
FIXED_MS = 0.16
BYTES_PER_MS = 200e6
# Half of a NeuronCore-v2's 95 TFLOPS in bfloat16, as stated for rows as few as these.
FLOPS_PER_MS = 47e9
# NxDI's own Python a forward, and the host's part of a plan, were measured on a Zen 5 core; the hosts of inf2 and trn1
# are taken to be slower by so much (stated: AMD EPYC of the third generation, Intel Xeon of the third).
DISPATCH_MS = 0.6
HOST_SLOWER = 1.5
ROWS = 13  # the shipped tree and its root
BATCHES = (1, 8)


@dataclass(frozen=True)
class Loop:
    """The emulated loop's forwards a plan and the host's milliseconds, mean and at the 99th percentile."""

    forwards: float
    p99_forwards: float
    host_ms: float
    p99_host_ms: float

    @classmethod
    def read(cls, figure: Path = LOOP) -> Loop:
        """Read the figure that `make bench-neuron-loop` writes; its median stands for the host's mean."""
        run = json.loads(figure.read_text(encoding="utf-8"))["runs"][str(ROWS)]
        return cls(run["forwards"], run["p99_forwards"], run["host_ms_p50"], run["host_ms_p99"])


def layer_bytes(base: str = "smollm2-135m-instruct") -> int:
    """Return the bytes of a base's layers in bfloat16: attention and MLP, without embedding and LM head."""
    shape = KNOWN_BASES[base]
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    width = hidden // shape["num_attention_heads"]
    attention = 2 * hidden * hidden + 2 * hidden * shape["num_key_value_heads"] * width
    return 2 * shape["num_hidden_layers"] * (attention + 3 * hidden * inner)


def step_ms(batch: int = 1) -> float:
    """Return how long a core takes for a step of `batch` plans."""
    weights = layer_bytes()
    return FIXED_MS + weights / BYTES_PER_MS + batch * ROWS * weights / FLOPS_PER_MS


def busy_ms(loop: Loop, batch: int = 1) -> float:
    """Return how long a replica is busy with `batch` plans that it decodes together."""
    return _busy(loop.forwards, loop.host_ms, batch)


def p99_ms(loop: Loop) -> float:
    """Return how long a replica is busy with one of the plans that take longest, at batch 1."""
    return _busy(loop.p99_forwards, loop.p99_host_ms, 1)


def _busy(forwards: float, host_ms: float, batch: int) -> float:
    return forwards * (step_ms(batch) + HOST_SLOWER * DISPATCH_MS) + batch * HOST_SLOWER * host_ms


def plans_per_second(kind: str, loop: Loop, batch: int = 1) -> float:
    """Return the plans a second of an instance at full use: a replica a NeuronCore, or a core of the host if fewer."""
    instance = catalogue().types[kind]
    replicas = min(instance.cores, instance.vcpus // 2)  # two vCPUs are threads of one core
    return replicas * batch * 1000 / busy_ms(loop, batch)
