"""Request ids: made by the service, never taken from a caller, and known again without being remembered.

An id is its time, randomness and a seal over both. Whoever reports an outcome can therefore name only a plan that this
service, or a host that shares its key, served lately; nobody can choose or guess another caller's.
"""

import hashlib
import hmac
import os
import time
from collections.abc import Callable

_TIME_BYTES, _RANDOM_BYTES, _SEAL_BYTES = 4, 6, 6
_ID_BYTES = _TIME_BYTES + _RANDOM_BYTES + _SEAL_BYTES
_CLOCKS_APART = 60  # seconds that another host's clock may be ahead
LATELY_SECONDS = 24 * 3600  # a purchase comes hours after its plan


class RequestIds:
    """Makes ids of 32 hex digits and recognises them."""

    def __init__(self, key: str = "", clock: Callable[[], float] = time.time) -> None:
        """Take a key that hosts share; without one this process knows only its own ids."""
        self._key = hashlib.blake2b(key.encode()).digest() if key else os.urandom(32)
        self._clock = clock

    def new(self) -> str:
        body = int(self._clock()).to_bytes(_TIME_BYTES, "big") + os.urandom(_RANDOM_BYTES)
        return (body + self._seal(body)).hex()

    def is_of_late(self, request_id: str) -> bool:
        """Tell whether the id is one of ours, of the last LATELY_SECONDS."""
        try:
            given = bytes.fromhex(request_id)
        except ValueError:
            return False
        body, seal = given[:-_SEAL_BYTES], given[-_SEAL_BYTES:]
        if len(given) != _ID_BYTES or not hmac.compare_digest(seal, self._seal(body)):
            return False
        age = self._clock() - int.from_bytes(body[:_TIME_BYTES], "big")
        return -_CLOCKS_APART <= age <= LATELY_SECONDS

    def _seal(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=_SEAL_BYTES).digest()
