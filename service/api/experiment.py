"""Which arm of the operator's experiment a shopper's plan is made by.

Whoever asks says who the shopper is in a header, which is kept as a hash alone. The arm follows from the experiment's
name and the shopper (`peakplan_client.experiments`), so that a web page can know it beforehand; the answer says it too.
The exposure is kept with the plan (outcome_log.py).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from peakplan_client.experiments import assigned

from service.events.sessions import Sessions
from service.planner.prompt import Planners

SHOPPER_HEADER, ANSWER_HEADER = "x-experiment-unit", "x-experiment"
_SHOPPER = re.compile(rb"[\x21-\x7e]{1,100}")
_PLANNERS: dict[str, Planners] = {
    "rules": "rules", "routing-off": "off", "routing-overload": "overload", "routing-always": "always",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exposure:
    """What one shopper got: the arm, and who plans in it where that differs from the service's own setting."""

    experiment: str
    arm: str
    shopper: str
    planners: Planners | None

    @property
    def header(self) -> bytes:
        return f"{self.experiment}={self.arm}".encode("ascii")


class Experiment:
    """Assigns shoppers to arms."""

    def __init__(self, name: str, shares: Mapping[str, int], sessions: Sessions) -> None:
        self._name, self._shares, self._sessions = name, shares, sessions

    def exposure(self, headers: Mapping[bytes, bytes], caller: str) -> Exposure | None:
        """Return what the shopper gets whom these headers name; None where they name none."""
        given = headers.get(SHOPPER_HEADER.encode("ascii"), b"")
        if not _SHOPPER.fullmatch(given):
            return None
        shopper = given.decode("ascii")
        arm = assigned(self._name, self._shares, shopper)
        return Exposure(self._name, arm, self._sessions.hashed(caller, shopper), _PLANNERS.get(arm))
