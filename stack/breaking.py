"""Stacks that lack one thing on purpose: a rehearsal that passes without it would prove nothing."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from stack.folder import RULES, Folder, StackError


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


# What is left out, the scenario that shows it, and how Envoy's configuration goes without; "" leaves it as it is.
BROKEN: dict[str, tuple[str, Callable[[str], str] | None]] = {
    "health-checks": ("cell-lost", _without_health_checks),
    "deadline": ("host-frozen", _without_deadline),
    "alert": ("surge", None),
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
    without = BROKEN[broken][1]
    path = folder.path / "envoy.yaml"
    if without is not None:
        path.write_text(without(path.read_text(encoding="utf-8")), encoding="utf-8")
