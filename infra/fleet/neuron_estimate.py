"""What a plan would take on NeuronCores and on processors, by formulae over measured and published numbers.

No chip was used. A replica of `cores` NeuronCores decodes N plans together. A step reads every weight of the layers
once, each core its share, and some rows a plan; it attends to all positions that the cache was compiled for, reads and
writes them; between the cores go two sums a layer; the rows' states come to the host; and the host does what grammar,
heads and LM head need before it sends the next:

    step    = FIXED_MS + weights / cores / bytes a ms + N * rows * 2 * weights / 2 bytes / cores / flops a ms
              + CACHE_PASSES * N * cache / shards / bytes a ms + N * attention / cores / flops a ms
              + 2 * layers * SUM_MS where cores > 1 + N * rows * states / HOST_COPY_BYTES_PER_MS
    S       = forwards * (step + DISPATCH_MS) + N * host            the replica is busy, for N plans
    rate    = replicas * N / S                                      at full use, a replica a core of the host at most

Not known: whether the compiler writes a step's rows into the cache in place (then it passes it once), what a transfer
to the host costs beside its bytes, and what the LM head's legal rows cost a host whose states are wider than the
shipped planner's. `peakplan bench neuron-day` measures all of it on a device and replaces it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from infra.fleet.instances import catalogue, processor
from infra.fleet.model_folder import GIB, SHIPPED, Planner
from infra.fleet.parts import REPOSITORY_ROOT

LOOP = REPOSITORY_ROOT / "docs" / "figures" / "neuron_loop.json"
# Fitted to published latencies of inf2.xlarge, batch 1, one core (AWS Neuron, Inf2 inference performance): bert-base
# with 170 MB of layers takes 0.999 ms, distilbert with half of them 0.579.
FIXED_MS = 0.16
BYTES_PER_MS = 200e6


@dataclass(frozen=True)
class Chip:
    """What a core of it is taken to reach, a millisecond: bytes of weights, and products of bfloat16 numbers."""

    bytes_per_ms: float
    flops_per_ms: float


# inf2, trn1: the fit above, which is 49% of a core's half of 820 GB/s, and half of a NeuronCore-v2's 95 TFLOPS, stated
# for rows as few as these. trn2: the same shares of a logical core's (two of eight NeuronCore-v3) quarter of 2.9 TB/s
# and 667 TFLOPS (AWS Neuron, Trainium2 architecture): stated, no latency of a small model is published.
CHIPS = {"inf2": Chip(BYTES_PER_MS, 47e9), "trn1": Chip(BYTES_PER_MS, 47e9), "trn2": Chip(354e6, 83e9)}
# A sum over the cores of a chip, of some 13 rows: stated.
SUM_MS = 0.02
# A step's attention reads the keys and values of every position, masked or not, and NxDI scatters its rows into a cache
# of the same size (update_kv_by_layer_id in modules/kvcache/kv_cache_manager.py), which passes it twice at most.
CACHE_PASSES = 3
# States that come to the host over PCIe: stated, a third of what sixteen lanes of its third generation carry.
HOST_COPY_BYTES_PER_MS = 5e6
# NxDI's own Python a forward, and the host's part of a plan, were measured on a Zen 5 core; the hosts of Neuron chips
# are taken to be slower by so much (stated: AMD EPYC of the third generation, Intel Xeon of the third and fourth).
DISPATCH_MS = 0.6
HOST_SLOWER = 1.5
# The host multiplies the Medusa heads, in int8: what a core reads of them, stated.
HOST_BYTES_PER_MS = 10e6
# Rows of a step: the shipped tree and its root, and as many as copies of the question fill where a row costs little.
ROWS, MOST_ROWS = 13, 48
BATCHES = (1, 8)
POSITIONS = 576  # of a sequence, for the memory of keys and values
USABLE = 0.9  # of a core's memory: graphs and the runtime need some


@dataclass(frozen=True)
class Loop:
    """The emulated loop's forwards a plan and the host's milliseconds, mean and at the 99th percentile."""

    forwards: float
    p99_forwards: float
    host_ms: float
    p99_host_ms: float

    @classmethod
    def read(cls, figure: Path = LOOP, rows: int = ROWS) -> Self:
        """Read the figure that `peakplan bench neuron-loop` writes; its median stands for the host's mean."""
        run = json.loads(figure.read_text(encoding="utf-8"))["runs"][str(rows)]
        return cls(run["forwards"], run["p99_forwards"], run["host_ms_p50"], run["host_ms_p99"])


@dataclass(frozen=True)
class Deployed:
    """A planner in batches on replicas of so many cores of a chip."""

    planner: Planner = SHIPPED
    chip: str = "inf2"
    batch: int = 1
    cores: int = 1
    rows: int = ROWS

    @property
    def step_ms(self) -> float:
        planner, rates, weights = self.planner, CHIPS[self.chip], self.planner.layer_bytes / self.cores
        rows = self.batch * self.rows
        cached = planner.cache_bytes(POSITIONS, self.batch) / min(self.cores, planner.key_value_heads)
        attention = 4 * rows * POSITIONS * planner.layers * planner.attention_heads * planner.head_width / self.cores
        moved = (weights + CACHE_PASSES * cached) / rates.bytes_per_ms
        sums = 2 * planner.layers * SUM_MS if self.cores > 1 else 0.0
        states = 2 * rows * planner.hidden / HOST_COPY_BYTES_PER_MS
        return FIXED_MS + moved + (rows * weights + attention) / rates.flops_per_ms + sums + states

    def busy_ms(self, loop: Loop) -> float:
        """Return how long a replica is busy with a batch."""
        return self._busy(loop.forwards, loop.host_ms)

    def p99_ms(self, loop: Loop) -> float:
        """Return how long a plan takes that takes longest, in the company of others of mean length."""
        slow = HOST_SLOWER * (loop.p99_host_ms - loop.host_ms)
        return self._busy(loop.p99_forwards, loop.host_ms * loop.p99_forwards / loop.forwards) + max(0.0, slow)

    def _busy(self, forwards: float, host_ms: float) -> float:
        heads = self.planner.heads * (self.planner.hidden**2 - SHIPPED.hidden**2) / HOST_BYTES_PER_MS
        host = HOST_SLOWER * (host_ms + max(0.0, forwards - 1) * heads)  # they draft nothing while the prompt is read
        return forwards * (self.step_ms + HOST_SLOWER * DISPATCH_MS) + self.batch * host

    def lacking_gib(self, device_gib: float) -> float:
        """Return the GiB of device memory that the replica's cores lack, each with so many; 0 where it fits."""
        needed = self.planner.device_bytes(POSITIONS, self.batch) / GIB
        return max(0.0, needed - USABLE * device_gib * self.cores)

    def plans_per_second(self, kind: str, loop: Loop) -> float:
        """Return the plans a second of an instance at full use: no more replicas than cores of its host."""
        instance = catalogue().types[kind]
        replicas = min(instance.cores // self.cores, instance.vcpus // 2)  # two vCPUs are threads of one core
        return replicas * self.batch * 1000 / self.busy_ms(loop)


def layer_bytes() -> int:
    return SHIPPED.layer_bytes


def busy_ms(loop: Loop, batch: int = 1) -> float:
    """Return how long a replica is busy with `batch` plans that it decodes together."""
    return Deployed(batch=batch).busy_ms(loop)


def plans_per_second(kind: str, loop: Loop, batch: int = 1) -> float:
    """Return the plans a second of an instance that serves the shipped planner at full use."""
    return Deployed(batch=batch, chip=kind.partition(".")[0]).plans_per_second(kind, loop)


@dataclass(frozen=True)
class Measured:
    """The figures of one processor: under load, with its best kernel, and held to AVX2 where that was tried.

    docs/figures/decoding.json has an entry for each machine and kernel, in any order; those that go together are of the
    processor that docs/figures/serving.json was measured on.
    """

    serving: dict[str, Any]
    best: dict[str, Any]
    narrow: dict[str, Any] | None

    @property
    def loaded(self) -> str:
        return f"concurrency_{self.serving['machine']['cores']}"

    @property
    def mean_ms(self) -> float:
        """How long a plan keeps a core busy while all of them plan."""
        mean: float = 1000 * self.serving["machine"]["cores"] / self.serving["capacity"]["plans_per_second"]
        return mean

    @property
    def ground(self) -> str:
        """What that is taken from."""
        machine = self.serving["machine"]
        rate = self.serving["capacity"]["plans_per_second"]
        return f"{rate} plans a second on {machine['cores']} cores of {machine['processor']}"

    @classmethod
    def read(cls, figures: Path) -> Self:
        """Read the figures of the processor that was measured under load.

        Raises OSError, ValueError, or KeyError where they lack, or the processor's entry with its best kernel does.
        """
        serving = json.loads((figures / "serving.json").read_text(encoding="utf-8"))
        machines = json.loads((figures / "decoding.json").read_text(encoding="utf-8"))["machines"]
        name = serving["machine"]["processor"]
        own = [each for each in machines.values() if each["machine"]["processor"] == name]
        natural = [each for each in own if not each.get("forced")]
        if not natural:
            raise KeyError(f"decoding.json has no entry of {name} with its best kernel, which serving.json is of")
        return cls(serving, natural[0], next((each for each in own if each["kernel"] == "avx2"), None))


# A roofline (Williams, Waterman and Patterson, CACM 2009): every replica is a process of its own and reads all weights
# of the layers once a forward, from memory, for they are larger than a core's share of any cache. So what a host reads
# is bounded by its share of the socket's bandwidth, taken to be its share of the socket's cores:
#     plans a second <= cores * min(1 / time of a plan on a core, bandwidth of a socket / its cores / bytes a plan)
# The bandwidth is that of the data sheet, which no program quite reaches: the roof is lower than this says.
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
