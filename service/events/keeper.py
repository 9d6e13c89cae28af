"""Takes events: once each, few of a plan, of plans that were served here, and without who the shopper is."""

import hashlib
import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.events.journal import Journal, Landing
from service.events.model import Happened
from service.events.shipping import Shipper, Sink

_DAY_SECONDS = 86_400
_HASH_BYTES = 12

MOST_OF_A_PLAN = 256  # events: a long page of results, and what the shopper did with them
RETURN_SECONDS = 30 * 24 * 3600  # after a plan, in which a purchase or a return still belongs to it
_REMEMBERED_EVENTS, _REMEMBERED_PLANS = 100_000, 20_000
_WORDS = {"message", "user_query"}
_WORDS_OF_ITEMS = {"name", "description", "object_detail"}
# What each event is counted as in the service's metrics, once a plan.
_COUNTED = {
    "first_shown": "AnswersShown", "click": "AnswersClicked", "click_through": "AnswersClicked",
    "purchase": "AnswersBought",
}  # fmt: skip
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # json.dumps would make one for each event
EMPTY, KEPT, FIRST_ANSWER = "AnswersEmpty", "EventsKept", "FirstAnswerTime"
Count = Callable[[str, float, str], None]  # a metric's name, a value, and the cell that made the plan ("" unknown)


class Sessions:
    """Hashes of a caller's shoppers, each good for `days`."""

    def __init__(self, key: str, days: int, clock: Callable[[], float] = time.time) -> None:
        self._key = hashlib.blake2b(key.encode(), person=b"sessions").digest() if key else os.urandom(64)
        self._seconds, self._clock = days * _DAY_SECONDS, clock
        self._period, self._salt = -1, b""

    def hashed(self, caller: str, shopper: str) -> str:
        """Return 24 hex digits, the same for the same shopper of the same caller until the salt changes."""
        period = int(self._clock() // self._seconds)
        if period != self._period:
            self._period = period
            self._salt = hashlib.blake2b(period.to_bytes(8, "big"), key=self._key, digest_size=32).digest()
        named = f"{caller}\0{shopper}".encode(errors="replace")
        return hashlib.blake2b(named, key=self._salt, digest_size=_HASH_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Refusal:
    """One event that is not kept, and why. `status` is HTTP's, for an event that comes alone."""

    place: int
    field: str
    detail: str
    status: int


@dataclass(slots=True)
class Taken:
    """What became of a request's events. `written` says once it is known whether the kept ones are in a file."""

    kept: list[Happened] = field(default_factory=list)
    repeated: int = 0
    refused: list[Refusal] = field(default_factory=list)
    written: "Future[bool] | None" = None
    ids: dict[bytes, bytes] = field(default_factory=dict)  # of those kept, with a digest of their contents
    lines: list[bytes] = field(default_factory=list)
    room: dict[str, int] = field(default_factory=dict)  # by plan: how many more events it may have
    judged: int = 0


@dataclass(slots=True)
class _Plan:
    events: int = 0
    seen: set[str] = field(default_factory=set)


class EventKeeper:
    """Keeps events in a journal. Neither it nor the journal makes a plan wait."""

    def __init__(
        self,
        journal: Journal,
        sessions: Sessions,
        *,
        keeps_text: bool,
        is_served: Callable[[str, float], bool],
        planned_in: Callable[[str], str],
        count: Count = lambda *_: None,
        own_actions: Mapping[str, str] | None = None,
    ) -> None:
        """Take `is_served`: whether an id is of a plan of the last seconds; and `planned_in`, the cell that made it.

        `own_actions` are the shop's, each with the name that it is kept by.
        """
        self.own_actions = own_actions or {}
        self.journal, self.sessions, self.landing = journal, sessions, Landing()
        self._is_served, self._planned_in, self._count = is_served, planned_in, count
        self._left_out = _left_out(keeps_text)
        self.shipper: Shipper | None = None
        self._seen: OrderedDict[bytes, bytes] = OrderedDict()  # the same of all lately
        self._plans: OrderedDict[tuple[str, str], _Plan] = OrderedDict()

    def take(self, events: Sequence[Happened], caller: str) -> Taken:
        """Judge a request's events and append those that are to be kept."""
        taken = Taken()
        self.judge(events, caller, taken)
        self.append(taken)
        return taken

    def judge(self, events: Sequence[Happened], caller: str, taken: Taken) -> None:
        now = round(time.time(), 3)
        for place, event in enumerate(events, taken.judged):
            known, contents = _identity(event, caller)
            before = self._seen.get(known) or taken.ids.get(known)
            if before == contents:
                taken.repeated += 1
                continue
            if before is not None:
                taken.refused.append(Refusal(place, "event_id", "is of another event of this plan already", 409))
                continue
            if event.query_id not in taken.room:
                taken.room[event.query_id] = MOST_OF_A_PLAN - self._events_of(event, caller)
            if (refusal := self._refusal(place, event, taken.room[event.query_id])) is not None:
                taken.refused.append(refusal)
                continue
            taken.room[event.query_id] -= 1
            taken.kept.append(event)
            taken.ids[known] = contents
            taken.lines.append(self._line(event, known, caller, now))
        taken.judged += len(events)

    def append(self, taken: Taken) -> None:
        if taken.lines:
            taken.written = self.journal.append(b"".join(taken.lines), len(taken.lines))

    def wrote(self, taken: Taken, caller: str) -> None:
        """Note that the events are in a file: sent again, they are repetitions."""
        self._seen |= taken.ids
        for event in taken.kept:
            self._counted(event, self._plan(event, caller))
        self._count(KEPT, len(taken.kept), "")
        while len(self._seen) > _REMEMBERED_EVENTS:
            self._seen.popitem(last=False)
        while len(self._plans) > _REMEMBERED_PLANS:
            self._plans.popitem(last=False)

    def close(self) -> None:
        self.journal.close()
        if self.shipper is not None:
            self.shipper.close()

    def ship(self, sink: Sink, also: Sequence[Path] = ()) -> None:
        """Bring every event to another place, too, from the files; and with them the lines of other rotating files."""
        self.shipper = Shipper([*self.journal.paths, *also], sink)
        self.journal.listener = self.shipper.wake

    def _events_of(self, event: Happened, caller: str) -> int:
        plan = self._plans.get((caller, event.query_id))
        return 0 if plan is None else plan.events

    def _plan(self, event: Happened, caller: str) -> _Plan:
        plan = self._plans.setdefault((caller, event.query_id), _Plan())
        self._plans.move_to_end((caller, event.query_id))
        plan.events += 1
        return plan

    def _refusal(self, place: int, event: Happened, room: int) -> Refusal | None:
        given = event.event_attributes
        if not self._is_served(event.query_id, RETURN_SECONDS):
            return Refusal(place, "query_id", "is of no plan that was served here in the last 30 days", 404)
        if room <= 0:
            return Refusal(place, "query_id", f"has its {MOST_OF_A_PLAN} events already", 409)
        if event.action_name == "first_shown" and given.milliseconds is None:
            return Refusal(place, "event_attributes.milliseconds", "is what first_shown is about: give it", 409)
        if event.action_name == "exposure" and None in (given.experiment, given.arm):
            return Refusal(place, "event_attributes.arm", "and experiment are what exposure is about: give both", 409)
        if given.team is not None and given.experiment is None:
            return Refusal(place, "event_attributes.experiment", "says whose team it is: give it", 409)
        return None

    def _line(self, event: Happened, known: bytes, caller: str, now: float) -> bytes:
        line: dict[str, Any] = {"record": "event", "event_id": event.event_id or known.hex(), "caller": caller}
        line["time"] = now
        shopper = event.client_id or event.user_id or event.session_id
        if shopper:
            line["client_id"] = self.sessions.hashed(caller, shopper)
        if event.session_id:
            line["session_id"] = self.sessions.hashed(caller, event.session_id)
        ours = _JSON(line)
        given = event.model_dump_json(exclude_none=True, exclude=self._left_out)  # an object with an action_name
        return f"{ours[:-1]},{given[1:]}\n".encode(errors="replace")

    def _counted(self, event: Happened, plan: _Plan) -> None:
        name = _COUNTED.get(event.action_name)
        if name is None or name in plan.seen:
            return
        plan.seen.add(name)
        cell = self._planned_in(event.query_id)
        self._count(name, 1, cell)
        if event.action_name == "first_shown":
            self._count(FIRST_ANSWER, event.event_attributes.milliseconds or 0.0, "")
            if event.event_attributes.results == 0:
                self._count(EMPTY, 1, cell)


def _left_out(keeps_text: bool) -> Mapping[str, Any]:
    """Return what of an event goes into no file, as pydantic's `exclude` has it."""
    hidden: dict[str, Any] = dict.fromkeys(("event_id", "client_id", "session_id", "user_id"), True)
    items: dict[str, Any] = {"object": {"object_detail": True}}
    if not keeps_text:
        hidden |= dict.fromkeys(_WORDS, True)
        items = {"object": dict.fromkeys(_WORDS_OF_ITEMS, True), "position": {"trail": True}}
    return hidden | {"event_attributes": items}


def _identity(event: Happened, caller: str) -> tuple[bytes, bytes]:
    """Return what tells whether two events are one, and a digest of their contents.

    That is the shop's id of it, or else its contents; with the plan, whose id a stranger cannot guess, as it can the
    shop's.
    """
    contents = event.model_dump_json(exclude_none=True)
    whole = f"{caller}\0{event.query_id}\0{bool(event.event_id)}\0{event.event_id or contents}"
    known, said = (hashlib.blake2b(text.encode(errors="replace"), digest_size=16) for text in (whole, contents))
    return known.digest(), said.digest()
