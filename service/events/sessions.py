"""Shoppers as hashes: who a shop says a shopper is goes into no file, and cannot be found again once the salt is gone.

The salt changes every few days. Without a key of the operator's it is random and ends with the process; with one, hosts
that share it give a shopper the same hash, and whoever has the key can make the salts of earlier days anew.
"""

import hashlib
import os
import time
from collections.abc import Callable

_DAY_SECONDS = 86_400
_HASH_BYTES = 12


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
