"""What a live rehearsal puts a stack through: a load, what happens to which part and when, and what must come of it.

Seconds count from the load's start. `must` are alerts that have to fire and to clear again, `may` those that can; any
other alert is a failure, as is an answer that is lost or late.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import yaml

from rehearsal.stack.folder import CELLS, RULES, Folder, StackError, set_clock, write_hosts
from rehearsal.stack.processes import START_SECONDS, Programs, healthy_hosts

FAULT, ENDS, CALM = 5.0, 32.0, 70.0  # seconds: what happens begins, ends; the load ends once alerts had time to clear
_OVERLOADED = ("ModelFastBurn", "ModelSlowBurn", "DeployHealth", "DegradedShare", "Saturation", "P99")

Act = Callable[[Programs], None]


@dataclass(frozen=True)
class Scenario:
    """A load and its acts. `surge`: times the calm load from FAULT to ENDS. `flood`: one caller's requests a second.

    `off_clock`: the first host's clock can be set, by libfaketime.

    `limit`: requests a second that a caller may send, where it is not Envoy's own: two cores do not carry a real flood.
    """

    name: str
    words: str
    acts: tuple[tuple[float, Act], ...] = ()
    surge: float = 1.0
    off_clock: bool = False
    flood: float = 0.0
    limit: int = 0
    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


def _kill_host(programs: Programs) -> None:
    programs.signal(f"cell-1/{programs.folder.hosts('cell-1')[0]}", signal.SIGKILL)


def _revive_host(programs: Programs) -> None:
    _start_again(programs, "cell-1", programs.folder.hosts("cell-1")[0])


def _start_again(programs: Programs, cell: str, address: str) -> None:
    programs.wait(f"{cell}/{address}")
    programs.start_host(cell, address)


def _kill_cell(programs: Programs) -> None:
    for address in programs.folder.hosts("cell-1"):
        programs.signal(f"cell-1/{address}", signal.SIGKILL)


def _revive_cell(programs: Programs) -> None:
    for address in programs.folder.hosts("cell-1"):
        _start_again(programs, "cell-1", address)


def _freeze_host(programs: Programs) -> None:
    programs.signal(f"cell-1/{programs.folder.hosts('cell-1')[0]}", signal.SIGSTOP)


def _thaw_host(programs: Programs) -> None:
    programs.signal(f"cell-1/{programs.folder.hosts('cell-1')[0]}", signal.SIGCONT)


def _slow_down(programs: Programs) -> None:
    (programs.folder.path / "slow" / programs.folder.hosts("cell-1")[0]).write_text("3", encoding="ascii")


def _speed_up(programs: Programs) -> None:
    (programs.folder.path / "slow" / programs.folder.hosts("cell-1")[0]).unlink()


def _kill_caches(programs: Programs) -> None:
    for cell in CELLS:
        programs.signal(f"{cell}/cache", signal.SIGKILL)


def _revive_caches(programs: Programs) -> None:
    for cell in CELLS:
        programs.wait(f"{cell}/cache")
        programs.start_cache(cell)


def _partition_caches(programs: Programs) -> None:
    """Let the caches accept connections and answer nothing, as behind a network that swallows what they say."""
    for cell in CELLS:
        programs.signal(f"{cell}/cache", signal.SIGSTOP)


def _join_caches(programs: Programs) -> None:
    for cell in CELLS:
        programs.signal(f"{cell}/cache", signal.SIGCONT)


def _set_clock(offset: str) -> Act:
    return lambda programs: set_clock(programs.folder, programs.folder.hosts(CELLS[0])[0], offset)


def _release(programs: Programs) -> None:
    """Replace the first host of each cell, one after the other: out of the balancer, drained, stopped, started."""
    for cell in CELLS:
        address = programs.folder.hosts(cell)[0]
        write_hosts(programs.folder, cell, frozenset([address]))
        programs.signal(f"{cell}/{address}", signal.SIGTERM)
        _start_again(programs, cell, address)
        write_hosts(programs.folder, cell)
        _until_healthy(programs)


def _until_healthy(programs: Programs) -> None:
    end = time.monotonic() + START_SECONDS
    while healthy_hosts(programs.folder) < programs.folder.shape.hosts * len(CELLS):
        if time.monotonic() > end:
            raise StackError(f"a new host is not healthy within {START_SECONDS:g} s")
        time.sleep(0.1)


def _replace_envoy(programs: Programs) -> None:
    """Start a second Envoy that takes over the first one's listeners; the first finishes what it has."""
    programs.start_envoy(epoch=1)
    programs.wait("envoy", START_SECONDS)


_EVERY = (
    Scenario("calm", "less than half of what the hosts can plan, and nothing goes wrong"),
    Scenario("surge", "six times as many requests", surge=6.0, must=("Saturation", "ModelFastBurn"), may=_OVERLOADED),
    Scenario(
        "host-killed",
        "a host is killed, and comes back",
        ((FAULT, _kill_host), (ENDS, _revive_host)),
        may=("LaunchFailures",),
    ),
    Scenario(
        "host-frozen",
        "a host stops in the middle of what it does, and goes on later",
        ((FAULT, _freeze_host), (ENDS, _thaw_host)),
        may=("LaunchFailures",),
    ),
    Scenario(
        "host-slow",
        "a host's plans take three times as long",
        ((FAULT, _slow_down), (ENDS, _speed_up)),
        may=_OVERLOADED,
    ),
    Scenario(
        "cell-lost",
        "every host of a cell is killed, and all come back",
        ((FAULT, _kill_cell), (ENDS, _revive_cell)),
        must=("UnhealthyHosts", "Privatelink"),
        may=(*_OVERLOADED, "LaunchFailures", "TelemetrySilent"),
    ),
    Scenario(
        "cache-lost",
        "both shared caches are killed, and start again empty",
        ((FAULT, _kill_caches), (ENDS, _revive_caches)),
        must=("SharedCacheDown",),
        may=_OVERLOADED,
    ),
    Scenario(
        "cache-partitioned",
        "both shared caches take what is written and answer nothing",
        ((FAULT, _partition_caches), (ENDS, _join_caches)),
        must=("SharedCacheDown",),
        may=_OVERLOADED,
    ),
    Scenario(
        "clock-off",
        "a host's clock goes an hour ahead, and back",
        ((FAULT, _set_clock("+3600")), (ENDS, _set_clock("+0"))),
        off_clock=True,
    ),
    Scenario("rolling-release", "a host of each cell is replaced by a new one", ((FAULT, _release),)),
    Scenario("envoy-replaced", "a new Envoy takes over from the old one", ((FAULT, _replace_envoy),)),
    Scenario("flood", "one caller sends three times what it may: 100 requests a second here", flood=300.0, limit=100),
)
SCENARIOS = {scenario.name: scenario for scenario in _EVERY}


# Stacks that lack one thing on purpose: a rehearsal that passes without it would prove nothing.


def _without_health_checks(envoy: str) -> str:
    """Neither checks nor outliers, and no other cell to try."""
    loaded = yaml.safe_load(envoy)
    for cluster in loaded["static_resources"]["clusters"]:
        cluster.pop("health_checks", None)
        cluster.pop("outlier_detection", None)
    route = _plan_route(loaded)
    del route["retry_policy"]["retry_priority"]
    return yaml.safe_dump(loaded)


def _without_deadline(envoy: str) -> str:
    """As many tries as it takes, however long."""
    loaded = yaml.safe_load(envoy)
    route = _plan_route(loaded)
    route["timeout"] = "0s"
    route["retry_policy"]["per_try_timeout"] = "1s"
    del route["hedge_policy"]
    return yaml.safe_dump(loaded)


def _plan_route(loaded: dict[str, dict[str, list[dict[str, list[dict[str, list[dict]]]]]]]) -> dict:  # type: ignore[type-arg]
    manager = loaded["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    found: dict = next(route for route in routes if route.get("name") == "plan")["route"]  # type: ignore[type-arg]
    return found


@dataclass(frozen=True)
class Broken:
    """What is left out: the scenario that shows it, and the `sign` by which: words of a complaint.

    `envoy` returns Envoy's configuration without it. `is_of_a_busy_machine`: the sign comes by itself where other
    programs have the processors.
    """

    scenario: str
    sign: str
    envoy: Callable[[str], str] | None = None
    is_of_a_busy_machine: bool = False


BROKEN = {
    "health-checks": Broken("cell-lost", "UnhealthyHosts did not fire", _without_health_checks),
    "deadline": Broken(
        "host-frozen", "answers came more than 50 ms after the deadline", _without_deadline, is_of_a_busy_machine=True
    ),
    "alert": Broken("surge", "Saturation did not fire"),
}
_ALERT = "PeakplanSaturation"


def rules_without(broken: str) -> str:
    """Return the alarms' rules for a stack that lacks something: all of them, unless it is one of them."""
    text = RULES.read_text(encoding="utf-8")
    if broken != "alert":
        return text
    loaded = yaml.safe_load(text)
    for group in loaded["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") != _ALERT]
    return yaml.safe_dump(loaded, width=10**6)


def break_envoy(folder: Folder, broken: str) -> None:
    """Rewrite Envoy's configuration before it starts. Raises StackError for what cannot be left out."""
    if broken not in BROKEN:
        raise StackError(f"{broken}: nothing of that name can be left out; there are {', '.join(BROKEN)}")
    without = BROKEN[broken].envoy
    path = folder.path / "envoy.yaml"
    if without is not None:
        path.write_text(without(path.read_text(encoding="utf-8")), encoding="utf-8")
