"""When requests begin, and which are refused then: a few in a turn of the event loop, events behind all others."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from service.api.middleware import SAFE_HEADERS, callers_id
from service.api.observation import Observer
from service.api.problems import problem_response
from service.api.request_ids import RequestIds
from service.gateway.drain import Drain
from service.gateway.load_shedder import LoadShedder

_MOST_A_TURN = 8  # requests that begin in a turn of the event loop, however many connections it has;
_FEWEST_A_TURN = 2  # and where others keep the processor and a turn takes longer than it should, as few as this
_TURN_SECONDS = 0.012
_MOST_TURNED_AWAY = 64  # in a turn, of requests that come too late to begin: each costs a tenth of one that does
_ORDINARY_BYTES = 256  # of a body; a longer one may cost the reader so many times as much, and counts as so many
_GATHER_SECONDS = 0.02  # in which what enters behind is gathered, to begin together
_BUSY_SECONDS, _AGAIN_SECONDS = 0.06, 0.01  # longer, while every replica plans; and how often that is looked up
_BEHIND_A_TURN, _BEHIND_BYTES_A_TURN = 4, 2048  # of what enters behind: a plan that comes waits for so many at most


class StartLimit:
    """Lets a few requests begin in one turn of the event loop; the others wait, clients in turn, each in its order.

    Without it a turn grows with the number of busy connections, and new ones, of which libuv accepts one for each
    listener and turn, wait for seconds. How many begin follows what turns take (additive increase, multiplicative
    decrease): a health check waits for some turns, and on a busy machine each would be longer. A client that sends
    hundreds at once delays only itself: another client's next one begins after one of each client's.

    What enters behind (shoppers' events) is gathered, and begins a few a turn, after whatever else waits: a plan never
    waits for more than those few, and the processor is taken from a replica once for many. Best it is not taken at all:
    while every replica plans, they wait somewhat longer. A plan that takes some per cent more of a replica's time makes
    all who queue behind it later, at p99 by several times as much. However many plans there are, events go on.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, is_busy: Callable[[], bool] = lambda: False
    ) -> None:
        """Take `is_busy`: whether a processor that is needed now is one that makes a plan."""
        self._clock, self._is_busy = clock, is_busy
        self._waiting: OrderedDict[str, deque[tuple[Callable[[], object], int]]] = OrderedDict()  # whose is next first
        self._behind: deque[tuple[Callable[[], object], int]] = deque()
        self._gathers_until: float | None = None  # what enters behind; None: nothing is there, or it begins
        self._allowed = self._left = _MOST_A_TURN
        self._turned_away = 0  # in this turn
        self._since: float | None = None  # this turn's start; None between turns

    def enter(self, begin: Callable[[], object], body_bytes: int = 0, client: str = "") -> None:
        """Call `begin` now, or as soon as its turn comes; a long body takes the places of several.

        Where `begin` returns False it has turned the request away, which takes no place.
        """
        self._start_turn()
        if self._left > 0:
            self._begin(begin, body_bytes)
        else:
            self._waiting.setdefault(client, deque()).append((begin, body_bytes))

    def enter_behind(self, begin: Callable[[], object], body_bytes: int = 0) -> None:
        """Call `begin` together with others that come soon, behind whatever waits or comes meanwhile."""
        self._behind.append((begin, body_bytes))
        if self._gathers_until is None and len(self._behind) == 1:
            self._gathers_until = self._clock() + _GATHER_SECONDS
            asyncio.get_running_loop().call_later(_GATHER_SECONDS, self._end_gathering)

    def _end_gathering(self) -> None:
        assert self._gathers_until is not None
        if self._clock() < self._gathers_until + _BUSY_SECONDS and self._is_busy():
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._end_gathering)
        else:
            self._gathers_until = None
            self._start_turn()

    def _start_turn(self) -> None:
        if self._since is None:
            self._since = self._clock()
            asyncio.get_running_loop().call_soon(self._turn)

    def _begin(self, begin: Callable[[], object], body_bytes: int) -> None:
        if begin() is False and self._turned_away < _MOST_TURNED_AWAY:
            self._turned_away += 1
        else:
            self._left -= 1 + body_bytes // _ORDINARY_BYTES

    def _turn(self) -> None:
        assert self._since is not None
        is_slow = self._clock() - self._since > _TURN_SECONDS
        self._allowed = max(self._allowed // 2, _FEWEST_A_TURN) if is_slow else min(self._allowed + 1, _MOST_A_TURN)
        self._left, self._turned_away, self._since = self._allowed, 0, None
        if self._waiting:
            self._start_turn()
        while self._waiting and self._left > 0:
            self._begin(*self._next())
        if self._behind and self._gathers_until is None:
            self._begin_behind()

    def _begin_behind(self) -> None:
        count, size = 0, 0
        while self._behind and count < _BEHIND_A_TURN and size < _BEHIND_BYTES_A_TURN:
            begin, body_bytes = self._behind.popleft()
            count, size = count + 1, size + body_bytes
            begin()
        if self._behind:
            self._start_turn()

    def _next(self) -> tuple[Callable[[], object], int]:
        """Take out the oldest request of the client whose last request began longest ago."""
        client, waiting = self._waiting.popitem(last=False)
        first = waiting.popleft()
        if waiting:
            self._waiting[client] = waiting
        return first


BUSY = "More comes in than this host can even let the reader plan. Try again in a second."
TURNED_AWAY = "turned_away"  # of a request's state: the application has to say so


class RequestFilter:
    """Asked about each request of some paths when its turn comes, before anything is made for it.

    Where more come than are handled, most of what is done is to refuse, and the application's way costs a third of a
    plan by the reader: a queue of thousands stood for seconds, and all were late.
    """

    def __init__(
        self, load_shedder: LoadShedder, observer: Observer, drain: Drain, ids: RequestIds, paths: Collection[str]
    ) -> None:
        self._load_shedder = load_shedder
        self._observer = observer
        self._drain = drain
        self._ids = ids
        self._paths = frozenset(paths)

    def refusal(self, cycle: RequestResponseCycle) -> tuple[bytes, bool] | None:
        """Return the answer to a request that is turned away, and whether the connection ends with it; else None.

        A page of another origin may read only what the application's headers allow it to, so the application tells it.
        """
        scope: Any = cycle.scope
        if scope["path"] not in self._paths:
            return None
        state, client = scope["state"], scope["client"]
        waited = time.monotonic() - state["arrived"]
        if self._load_shedder.admits(waited, is_fresh=state["is_fresh"], client=client[0] if client else ""):
            return None
        headers = dict(reversed(scope["headers"]))  # of repeated headers the first counts
        if b"origin" in headers:
            state[TURNED_AWAY] = True
            return None
        request_id, is_last = self._ids.new(), self._drain.draining or not cycle.keep_alive
        self._observer.turned_away(request_id, scope["method"], scope["path"], waited)
        theirs = callers_id(headers.get(b"x-request-id", b""))
        more = {"x-callers-request-id": theirs} if theirs else {}
        return refusal_text(cycle.default_headers, request_id, 503, BUSY, is_last=is_last, more=more), is_last


def refusal_text(
    servers_headers: Sequence[tuple[bytes, bytes]],
    request_id: str,
    status: int,
    detail: str,
    *,
    is_last: bool,
    more: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Return an answer to a request that the application never sees, as it is sent."""
    named = {"x-request-id": request_id, **more}
    named |= {"connection": "close"} if is_last else {}
    answer = problem_response(request_id, status, detail, headers=named)
    lines = [b"%b: %b\r\n" % header for header in (*servers_headers, *answer.raw_headers, *SAFE_HEADERS)]
    return b"".join([STATUS_LINE[status], *lines, b"\r\n", bytes(answer.body)])
