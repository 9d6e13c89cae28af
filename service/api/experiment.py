"""Which arm of the operator's experiment a shopper's plan is made by.

The caller names the shopper in a header, which is kept as a hash alone. The arm follows from the experiment's
name and the shopper (`peakplan_client.experiments`), so that a web page can know it beforehand; the answer says it too.
The exposure is kept with the plan (outcome_log.py).

An arm that is another model, release or shop folder has hosts of its own, and callers send its shoppers to them. Who
reaches another host all the same gets that host's plan, because a plan matters more than an experiment, and keeps the
arm: to leave them out would compare those alone for whom nothing went wrong. They are told apart, and counted.

Where arms of one process differ in who plans, each has cached plans of its own: the model's plan of one arm would
otherwise answer the same question in an arm in which the reader plans it. So it is where an arm has a shop folder of
its own, in which its shoppers' words are read.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType

from peakplan_client.experiments import assigned, is_unit

from service.events.keeper import Sessions
from service.planner.prompt import Planners
from service.planner.shop import current
from service.planner.shop.folder import Lexicon
from service.settings.groups import ROUTED

SHOPPER_HEADER, ANSWER_HEADER = "x-experiment-unit", "x-experiment"
_PLANNERS: dict[str, Planners] = {
    "rules": "rules", "routing-off": "off", "routing-overload": "overload", "routing-always": "always",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exposure:
    """What one shopper got: the arm, and who plans in it where that differs from the service's own setting.

    `missed`: this host does not serve the arm, and its plan is one of another. `cached_for` names the arm where it has
    cached plans of its own.
    """

    experiment: str
    arm: str
    shopper: str
    planners: Planners | None
    missed: bool = False
    cached_for: str = ""

    @property
    def header(self) -> bytes:
        """The answer's header, a dictionary as RFC 9651 writes one."""
        return f"{self.experiment}={self.arm}{';missed' if self.missed else ''}".encode("ascii")


class Experiment:
    def __init__(
        self,
        name: str,
        shares: Mapping[str, int],
        sessions: Sessions,
        served: frozenset[str] = frozenset(),
        shops: Mapping[str, Lexicon | None] = MappingProxyType({}),
    ) -> None:
        """Take the arms that this host serves, none is all of them; and the shops of those with one of their own.

        A reload replaces `shops`.
        """
        self._name, self._shares, self._sessions, self._served = name, shares, sessions, served
        self.shops = shops
        self._are_cached_apart = bool(shops) or not ROUTED.isdisjoint(served or shares)

    def exposure(self, headers: Mapping[bytes, bytes], caller: str) -> Exposure | None:
        """Return what the shopper gets whom these headers name; None where they name none."""
        shopper = headers.get(SHOPPER_HEADER.encode("ascii"), b"").decode("latin-1")
        if not is_unit(shopper):
            return None
        arm = assigned(self._name, self._shares, shopper)
        missed = bool(self._served) and arm not in self._served
        planners = None if missed else _PLANNERS.get(arm)
        cached_for = arm if self._are_cached_apart else ""
        return Exposure(self._name, arm, self._sessions.hashed(caller, shopper), planners, missed, cached_for)

    def reading(self, exposure: Exposure) -> AbstractContextManager[None]:
        """Have this request's words read as those of its arm's shop, meanwhile."""
        is_of_arm = exposure.arm in self.shops and not exposure.missed
        return current.reading(self.shops[exposure.arm]) if is_of_arm else nullcontext()
