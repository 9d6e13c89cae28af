"""The data plane against queueing theory, and what must hold of every run of it."""

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rehearsal.twin.cell import BY_RULE, FAILED, MODEL, Array, Cell, Constants, Kind, Load, Mode, percentile
from rehearsal.twin.hosts import Memories
from rehearsal.twin.work import QUANTILES, log_normal

MEAN = 0.02
EXPONENTIAL = -MEAN * np.log(1 - (np.arange(QUANTILES) + 0.5) / QUANTILES)
DEFAULTS = Constants()
UNBOUNDED = 60.0  # seconds: a deadline that nobody meets


def cell(
    times: Array,
    rate: float,
    seconds: int,
    *,
    hosts: int = 1,
    replicas: int = 1,
    nodes: int = 1,
    deadline: float = 0.3,
    seed: int = 1,
    constants: Constants = DEFAULTS,
) -> Cell:
    """Return a cell in which every node knows every host, before its first request."""
    load = Load(
        times=times[None, None, :], seconds=seconds + 100, rates=np.full(seconds, rate), deadline=deadline, seed=seed
    )
    made = Cell(load, nodes=nodes, hosts=hosts, constants=constants)
    for host in range(hosts):
        made.bring_in(host, 0, replicas, np.full(8, times.mean()))
        made.put_in_everywhere(host, 0.0)
    return made


def mean_wait(made: Cell) -> float:
    """The mean time in the queue: bins of a quarter of a millisecond, by their middles."""
    waits = made.queue_times[0]
    return float(((np.arange(len(waits)) + 0.5) / 4000 * waits).sum() / waits.sum())


def erlang_c(servers: int, offered: float) -> float:
    """The probability of waiting in M/M/k."""
    last = offered**servers / math.factorial(servers) / (1 - offered / servers)
    return last / (sum(offered**each / math.factorial(each) for each in range(servers)) + last)


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (2, 0.7), (8, 0.85)])
def test_the_wait_in_m_m_k_is_erlangs_within_two_percent(servers: int, busy: float) -> None:
    rate = busy * servers / MEAN
    waits = []
    for seed in range(3):
        made = cell(EXPONENTIAL, rate, int(350_000 / rate), replicas=servers, deadline=UNBOUNDED, seed=seed)
        made.advance(made.outcomes.shape[0] * 10.0 - 30)
        assert made.outcomes.sum() == made.outcomes[:, MODEL].sum() == made.arrived
        waits.append(mean_wait(made) - 0.5 / 4000 * (1 - erlang_c(servers, busy * servers)))  # of those with no wait
    theory = erlang_c(servers, busy * servers) * MEAN / (servers * (1 - busy))
    assert np.mean(waits) == pytest.approx(theory, rel=0.02)


def test_the_wait_in_m_g_1_is_pollaczeks_and_khinchins_within_two_percent() -> None:
    times, busy = log_normal(MEAN, 3 * MEAN), 0.6
    second_moment = float((times**2).mean())
    waits = []
    for seed in range(3):
        made = cell(times, busy / MEAN, 12_000, deadline=UNBOUNDED, seed=seed)
        made.advance(12_090)
        waits.append(mean_wait(made) - 0.5 / 4000 * (1 - busy))
    theory = busy / MEAN * second_moment / (2 * (1 - busy))
    assert np.mean(waits) == pytest.approx(theory, rel=0.02)


@settings(max_examples=25, deadline=None)
@given(
    busy=st.floats(0.1, 12.0),
    hosts=st.integers(1, 12),
    nodes=st.integers(1, 6),
    replicas=st.integers(1, 4),
    retries=st.integers(0, 2),
    mode=st.sampled_from(list(Mode)),
    seed=st.integers(0, 2**32),
)
def test_no_request_is_lost_or_counted_twice(
    busy: float, hosts: int, nodes: int, replicas: int, retries: int, mode: Mode, seed: int
) -> None:
    """Every request has one outcome and none stays in a host, under any load and any change of hosts."""
    made = cell(
        log_normal(MEAN, 3 * MEAN), busy * hosts * replicas / MEAN, 4, hosts=hosts, nodes=nodes, replicas=replicas,
        seed=seed, constants=Constants(retries=retries),
    )  # fmt: skip
    made.schedule(1.0, Kind.HOST_MODE, 0, mode)
    made.schedule(2.0, Kind.TAKE_OUT, 0, 0)
    made.schedule(2.5, Kind.NODE_DIES, value=nodes - 1)
    made.schedule(3.0, Kind.HOST_MODE, 0, Mode.SERVES)
    made.schedule(3.0, Kind.PUT_IN, 0, 0)
    made.advance(60.0)
    assert made.outcomes.sum() == made.arrived
    assert made.in_flight == 0
    assert [made.inside(host) for host in range(hosts)] == [0] * hosts
    assert made.latencies.sum() == made.arrived


@pytest.mark.parametrize("busy", [0.5, 1.0, 4.0])
def test_more_hosts_are_never_worse(busy: float) -> None:
    """The same requests (common random numbers) on more and more hosts: fewer by the reader, more by the model."""
    by_model = []
    for hosts in (8, 10, 14, 20, 40):
        made = cell(log_normal(MEAN, 3 * MEAN), busy * 8 / MEAN, 60, hosts=hosts, nodes=3)
        made.advance(100.0)
        by_model.append(int(made.outcomes[:, MODEL].sum()))
        assert made.arrived == int(made.outcomes.sum())
    assert all(more >= fewer for fewer, more in pairwise(by_model))


def test_past_capacity_nobody_waits_beyond_the_deadline() -> None:
    made = cell(log_normal(MEAN, 3 * MEAN), 3 * 20 / MEAN, 20, hosts=20, nodes=4)
    made.advance(60.0)
    shares = made.outcomes.sum(axis=0) / made.arrived
    assert 0.6 < shares[BY_RULE] < 0.72
    assert percentile(made.latencies, 1.0) < 0.3
    assert shares[FAILED] == 0


def test_hosts_that_fail_fast_attract_until_they_are_taken_out() -> None:
    """A host that refuses is never busy, so a balancer that counts outstanding requests prefers it."""
    made = cell(log_normal(MEAN, 3 * MEAN), 0.6 * 20 / MEAN, 40, hosts=20, nodes=1)
    made.schedule(10.0, Kind.HOST_MODE, 0, Mode.REFUSES)
    made.schedule(20.0, Kind.TAKE_OUT, 0, 0)
    made.advance(80.0)
    failed = made.outcomes[:, FAILED]
    assert failed[1] > 1.5 * made.outcomes[1].sum() / 20, "far more than its share"
    assert failed[3] == 0


def test_a_node_whose_hosts_are_all_unhealthy_uses_them_all() -> None:
    made = cell(log_normal(MEAN, 3 * MEAN), 100.0, 30, hosts=4, nodes=1)
    for host in range(4):
        made.schedule(10.0, Kind.TAKE_OUT, host, 0)
    made.advance(60.0)
    assert made.outcomes[:, FAILED].sum() == 0
    for host in range(4):
        made.schedule(60.0, Kind.DEREGISTER, host, 0)


SHARES = np.cumsum(np.full(100, 0.01))


def memories(rows: np.ndarray) -> Memories:
    cell = cast(Cell, SimpleNamespace(remembered_until=rows))
    return Memories(cell, SHARES, 300.0, seed=1, shared=True)


def test_a_cache_that_comes_back_empty_knows_only_what_is_planned_since() -> None:
    for empty in (True, False):
        rows = np.full((2, 100), -1.0)
        rows[0, :10] = 50.0
        hosts = memories(rows)
        hosts.shared = False
        hosts.exchange()
        assert (rows[1] == -1.0).all()

        hosts.come_back(empty=empty)
        rows[0, 20] = 80.0
        hosts.exchange()

        assert rows[1, 20] == 80.0
        assert (rows[1, :10] == (-1.0 if empty else 50.0)).all()
