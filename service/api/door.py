"""Which requests are turned away when their turn comes, before anything is made for them.

Where more come than are handled, most of what is done is to refuse. The application's way costs a third of a plan by
rule, and few requests begin in a turn of the event loop: a queue of thousands stood for seconds, and all were late.
"""

import time
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from service.api.middleware import SAFE_HEADERS, callers_id
from service.api.observation import Observer
from service.api.problems import problem_response
from service.api.request_ids import RequestIds
from service.gateway.drain import Drain
from service.gateway.load_shedder import LoadShedder

BUSY = "More comes in than this host can even turn down with a plan by rule. Try again in a second."
TURNED_AWAY = "turned_away"  # of a request's state: the application has to say so
_NO_ID = "0" * 32  # what the answer has in the place of its id


class Answer(NamedTuple):
    """An answer as it is sent, and whether the connection ends with it."""

    text: bytes
    is_last: bool


class Door:
    """Asked about each request of some paths when its turn comes."""

    def __init__(
        self, load_shedder: LoadShedder, observer: Observer, drain: Drain, ids: RequestIds, paths: Collection[str]
    ) -> None:
        self._load_shedder = load_shedder
        self._observer = observer
        self._drain = drain
        self._ids = ids
        self._paths = frozenset(paths)

    def refusal(self, cycle: RequestResponseCycle) -> Answer | None:
        """Return the answer to a request that is turned away; None where the application has it.

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
        request_id = self._ids.new()
        self._observer.turned_away(request_id, scope["method"], scope["path"], waited)
        is_last = self._drain.draining or not cycle.keep_alive
        text = _text(callers_id(headers.get(b"x-request-id", b"")), is_last=is_last)
        servers = b"".join(b"%b: %b\r\n" % header for header in cycle.default_headers)
        return Answer(STATUS_LINE[503] + servers + text.replace(_NO_ID.encode(), request_id.encode()), is_last)


@lru_cache(maxsize=64)  # callers' own ids differ
def _text(callers_request_id: str, *, is_last: bool) -> bytes:
    more = {"retry-after": "1", "x-request-id": _NO_ID}
    more |= {"x-callers-request-id": callers_request_id} if callers_request_id else {}
    more |= {"connection": "close"} if is_last else {}
    answer = problem_response(_NO_ID, 503, BUSY, headers=more)
    lines = [b"%b: %b\r\n" % header for header in (*answer.raw_headers, *SAFE_HEADERS)]
    return b"".join([*lines, b"\r\n", bytes(answer.body)])
