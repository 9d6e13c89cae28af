"""Request ids: made by the service, never taken from a caller, and known again without being remembered.

An id is its time, the number of its cell, randomness and a seal over all three. A caller that reports an outcome
can therefore name only a plan that this service, or a host that shares its key, served lately; no
caller can choose or guess another caller's. Wherever an event arrives, its id tells which cell made the plan.
"""

import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable

_TIME_BYTES, _CELL_BYTES, _RANDOM_BYTES, _SEAL_BYTES = 4, 1, 5, 6
_ID_BYTES = _TIME_BYTES + _CELL_BYTES + _RANDOM_BYTES + _SEAL_BYTES
# The seals of ids: a release before this one wrote no cell, and its ids are known all the same.
_WITH_CELL, _BEFORE = b"cell", b""
_CELL = re.compile(r"cell-([1-9][0-9]{0,2})")
LATELY_SECONDS = 24 * 3600  # a purchase comes hours after its plan


class RequestIds:
    """Makes ids of 32 hex digits and recognises them."""

    def __init__(self, key: str = "", clock: Callable[[], float] = time.time, cell: str = "") -> None:
        """Take a key that hosts share, without which this process knows only its own ids, and this cell's name."""
        self._key = hashlib.blake2b(key.encode()).digest() if key else os.urandom(32)
        self._clock = clock
        number = int(named[1]) if (named := _CELL.fullmatch(cell)) else 0
        self._cell = bytes([number if number < 256 else 0])

    def new(self) -> str:
        body = int(self._clock()).to_bytes(_TIME_BYTES, "big") + self._cell + os.urandom(_RANDOM_BYTES)
        return (body + self._seal(body, _WITH_CELL)).hex()

    def is_of_late(self, request_id: str, seconds: float = LATELY_SECONDS) -> bool:
        """Tell whether the id is one of ours, made within `seconds` of now.

        Before as after: a clock that is set back, or another host's that is ahead, must not lose a purchase.
        """
        body = self._opened(request_id, _WITH_CELL) or self._opened(request_id, _BEFORE)
        if body is None:
            return False
        age = self._clock() - int.from_bytes(body[:_TIME_BYTES], "big")
        return abs(age) <= seconds

    def planned_in(self, request_id: str) -> str:
        """Return the name of the cell that made the plan; "" where the id does not tell."""
        body = self._opened(request_id, _WITH_CELL)
        return f"cell-{body[_TIME_BYTES]}" if body and body[_TIME_BYTES] else ""

    def _opened(self, request_id: str, kind: bytes) -> bytes | None:
        try:
            given = bytes.fromhex(request_id)
        except ValueError:
            return None
        body, seal = given[:-_SEAL_BYTES], given[-_SEAL_BYTES:]
        sealed = len(given) == _ID_BYTES and hmac.compare_digest(seal, self._seal(body, kind))
        return body if sealed else None

    def _seal(self, body: bytes, kind: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=_SEAL_BYTES, person=kind).digest()
