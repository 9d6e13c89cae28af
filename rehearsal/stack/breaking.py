"""Stacks that lack one thing on purpose: a rehearsal that passes without it would prove nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import yaml

from rehearsal.stack.folder import RULES, Folder, StackError


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
