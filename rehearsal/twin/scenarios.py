"""What a rehearsal puts a fleet through: named scenarios, each a load and a fault at its peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from infra.fleet.settings import FleetSettings

Load = Literal["event", "ordinary"]
Fault = Literal[
    "",
    "black-hole",
    "refuse",
    "fail-fast",
    "cold-cache",
    "lost-cache",
    "lost-reservation",
    "no-chips",
    "slow-release",
    "failing-release",
    "silence",
    "cell-out",
]


@dataclass(frozen=True)
class Scenario:
    """A load and what happens at its peak.

    `flash`: times the forecast within 60 s, unannounced. `boots`: factor of boot and warm start. `warm`: whether the
    pool is full. `retries`: attempts of a client after one that failed. `remembers`: whether hosts cache plans.
    """

    name: str
    words: str
    load: Load = "event"
    fault: Fault = ""
    flash: float = 1.0
    boots: float = 1.0
    warm: bool = True
    retries: int = 0
    remembers: bool = False

    @property
    def is_surge(self) -> bool:
        """Whether load comes that nobody scheduled."""
        return self.flash > 1


class ScenarioError(ValueError):
    """An unknown scenario, or one that the fleet cannot be put through. The message names it."""


_EVERY = (
    Scenario("nominal", "the forecast, and nothing goes wrong"),
    Scenario(
        "zone-lost", "a zone swallows requests without an answer, and its balancer nodes are gone", fault="black-hole"
    ),
    Scenario("zone-refused", "a zone refuses every connection: its hosts look idle and attract", fault="refuse"),
    Scenario("retries", "a zone is lost, and clients ask up to three times more", fault="black-hole", retries=3),
    Scenario("fail-fast", "one host in twenty answers every request with an error at once", fault="fail-fast"),
    Scenario("slow-boots", "a zone is lost while starts take three times as long", fault="black-hole", boots=3),
    Scenario("empty-pool", "a zone is lost while the warm pool is empty and stays so", fault="black-hole", warm=False),
    Scenario("cold-cache", "hosts remember plans, and all of them forget at once", fault="cold-cache", remembers=True),
    Scenario(
        "lost-cache",
        "hosts share a cache of plans, and it is gone for good: each has what it answered itself",
        fault="lost-cache",
        remembers=True,
    ),
    Scenario(
        "lost-reservation",
        "a zone's reservation was refused: its chips never started for the event, and no others can be had",
        fault="lost-reservation",
    ),
    Scenario(
        "no-chips",
        "an ordinary day's peak grows fourfold within a minute, and no chip can be started: processors take over",
        "ordinary",
        fault="no-chips",
        flash=4,
    ),
    Scenario("slow-release", "a deploy at the peak: plans take twice as long on new hosts", fault="slow-release"),
    Scenario("failing-release", "a deploy at the peak: one plan in five fails on new hosts", fault="failing-release"),
    Scenario("silence", "telemetry is lost for ten minutes", fault="silence"),
    Scenario("cell-out", "another cell is moved out, and its callers come here", fault="cell-out"),
    Scenario("flash-x4", "an ordinary day's peak grows fourfold within a minute, unannounced", "ordinary", flash=4),
    Scenario("flash-x10", "an ordinary day's peak grows tenfold within a minute, unannounced", "ordinary", flash=10),
    Scenario(
        "flash-x10-empty-pool",
        "the same while the warm pool is empty and stays so",
        "ordinary",
        flash=10,
        warm=False,
    ),
)
SCENARIOS = {scenario.name: scenario for scenario in _EVERY}
# No fleet file promises this one: it is there to be looked at, not to stop a deploy.
_BEYOND = ("flash-x10-empty-pool",)


def chosen(name: str, settings: FleetSettings) -> tuple[list[Scenario], dict[str, str]]:
    """Return the scenarios that `name` stands for (`all`, or one of them), and why others are left out.

    Raises:
        ScenarioError: there is no such scenario, or this fleet cannot be put through it.
    """
    if name != "all":
        if name not in SCENARIOS:
            raise ScenarioError(f"{name}: no such scenario; there are all, {', '.join(SCENARIOS)}")
        if why := _impossible(SCENARIOS[name], settings):
            raise ScenarioError(f"{name}: {why}")
        return [SCENARIOS[name]], {}
    left_out = {
        scenario.name: why
        for scenario in _EVERY
        if (why := _impossible(scenario, settings) or _not_promised(scenario, settings))
    }
    return [scenario for scenario in _EVERY if scenario.name not in left_out], left_out


def _impossible(scenario: Scenario, settings: FleetSettings) -> str:
    if scenario.fault == "cell-out" and len(settings.serving_cells) == 1:
        return f"{settings.name} has one cell, and no other can be moved out"
    if scenario.fault == "lost-cache" and not settings.shared_cache.enabled:
        return f"{settings.name} has no shared cache to lose"
    if scenario.fault == "lost-reservation" and not any(group.reserve for group in settings.groups):
        return f"{settings.name} reserves nothing"
    if scenario.fault == "no-chips" and not any(group.stands_in for group in settings.groups):
        return f"{settings.name} has no group that stands in for chips"
    return ""


def _not_promised(scenario: Scenario, settings: FleetSettings) -> str:
    if scenario.name in _BEYOND:
        return "beyond every promise; ask for it by name"
    if scenario.flash > settings.surge.times:
        return f"the fleet file promises a surge of {settings.surge.times:g} times, not {scenario.flash:g}"
    if scenario.fault == "failing-release" and settings.cells == 1:
        return f"{settings.name} has one cell, its own canary: a bad release is found there; ask for it by name"
    return ""
