"""What a simulated cell tells by second and minute under the names of CloudWatch's metrics, and by Envoy's buckets."""

from __future__ import annotations

import numpy as np

from rehearsal.cloudwatch import Value
from rehearsal.stack.folder import PARTS
from rehearsal.twin.alarms import BEFORE
from rehearsal.twin.cell import ANSWERED, ASKED, BINS, BINS_PER_SECOND, DEGRADED, FAILED, REPORTED_SHED, Cell
from service.gateway.admission import FIRST_EXPECTATION

SEEN_SECONDS = 2.0  # until Envoy's checks have changed its mind: two of them, a second apart


def quantile(latencies: np.ndarray, share: float) -> float:
    """Return milliseconds as Prometheus estimates them from Envoy's buckets: linear within the bucket."""
    edges = buckets()
    bins = (np.arange(BINS) + 0.5) * 1000 / BINS_PER_SECOND
    counts = np.histogram(bins, bins=[0.0, *edges, float("inf")], weights=latencies)[0]
    cumulated = np.cumsum(counts)
    wanted = share * cumulated[-1]
    index = int(np.searchsorted(cumulated, wanted))
    if not cumulated[-1] or index >= len(edges):
        return edges[-1]
    below = cumulated[index - 1] if index else 0.0
    lower = edges[index - 1] if index else 0.0
    return float(lower + (edges[index] - lower) * (wanted - below) / max(counts[index], 1e-9))


def buckets() -> list[float]:
    """Return the upper edges of Envoy's buckets in milliseconds."""
    line = next(
        line for line in (PARTS / "envoy.yaml").read_text(encoding="utf-8").splitlines() if "buckets: [" in line
    )
    return [float(edge) for edge in line.partition("[")[2].rstrip("] ").split(",")]


def row(
    cell: Cell, ended: np.ndarray, hosts: int, away: tuple[int, float, float], second: int, is_shared: bool
) -> dict[str, float]:
    """Return a second of a cell under the names of CloudWatch's metrics.

    `ended` are its outcomes by kind, `away` how many of its hosts are away, and from when to when.
    """
    gone, begins, ends = away
    unseen = gone if begins + SEEN_SECONDS <= second < ends else 0
    down = gone if begins <= second < ends else 0
    counts = cell.host_counts[:hosts].sum(axis=0)
    means = np.array([cell.mean_seconds(host) or FIRST_EXPECTATION for host in range(hosts)])
    return {
        "SloGood": float(counts[ANSWERED]),
        "SloBad": 0.0,
        "Degraded": float(counts[DEGRADED]),
        "Shed": float(counts[REPORTED_SHED]),
        "Requests": float(counts[ANSWERED] + counts[REPORTED_SHED]),
        "RequestCount": float(ended.sum()),
        "HTTPCode_ELB_5XX_Count": float(ended[FAILED]),
        "OfferedWork": float((cell.host_counts[:hosts, ASKED] * means).sum()),
        "ReplicaSeconds": float(hosts - down),
        "TargetResponseTime": quantile(cell.latencies, 0.99) / 1000 if cell.latencies.any() else 0.0,
        "HealthyHostCount": float(hosts - unseen),
        "UnHealthyHostCount": float(unseen),
        "GroupDesiredCapacity": float(hosts),
        "GroupInServiceInstances": float(hosts - down),
        "FrontHealthyHostCount": float(hosts > unseen),
        "SharedCacheDown": float(not is_shared),
    }


_LAST = (
    "HealthyHostCount",
    "UnHealthyHostCount",
    "GroupDesiredCapacity",
    "GroupInServiceInstances",
    "FrontHealthyHostCount",
)
_WORST = ("TargetResponseTime", "SharedCacheDown")


def minutes(rows: list[dict[str, float]], seconds: int) -> dict[str, list[Value]]:
    """Return each metric by what the rules call a minute, with calm hosts and no requests before the first one."""
    found: dict[str, list[Value]] = {}
    for name in rows[0]:
        values = [[row[name] for row in rows[at : at + seconds]] for at in range(0, len(rows), seconds)]
        last = name in _LAST
        found[name] = [rows[0][name] if last else 0.0] * BEFORE
        found[name] += [each[-1] if last else max(each) if name in _WORST else sum(each) for each in values]
    return found
