"""API keys: bearer tokens, stored only as SHA-256 digests, one line for each token.

    # name   SHA-256 of the token (64 hex digits)                                      requests a second (optional)
    search   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08            200

Two lines of one name allow rotating a token: add the new one, move the callers, drop the old one. `python -m
service.api.api_keys NAME` makes a token of 256 random bits and its line. A plain digest suffices for such tokens: no
dictionary attack is possible.
"""

import hashlib
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9._-]{1,64})\s+(?P<digest>[0-9a-f]{64})(?:\s+(?P<rate>\d+(?:\.\d+)?))?$")
_LOOK_SECONDS = 1.0  # between two checks of the file
_MOST_CHARACTERS = 512


class ApiKeysError(ValueError):
    """Raised for a line of the token list that is invalid. It names the line's number but not its content."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token. `rate` is requests per second; None means the general limit."""

    name: str
    rate: float | None = None


class ApiKeys:
    """Callers by their tokens' digests. A changed file is read again; one that is invalid or empty changes nothing.

    It is read once it has stayed the same between two checks: a file that is written in place is empty and then torn.
    """

    def __init__(self, lines: str, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the tokens. Raises ApiKeysError."""
        self._fixed = parse_tokens(lines, "PEAKPLAN_API_KEYS")
        self._required = bool(lines.strip()) or path is not None
        self._path = path
        self._clock = clock
        self._looked = clock()
        try:
            self._judged = self._seen = _stamp(path) if path else None
            self._read = parse_tokens(path.read_text(encoding="utf-8"), str(path)) if path else {}
        except OSError as error:
            raise ApiKeysError(f"PEAKPLAN_API_KEYS_FILE={path}: {error.strerror}") from error

    @property
    def required(self) -> bool:
        """Whether a token is required. A list with comments alone, or an empty file, admits nobody, not everybody."""
        return self._required

    def caller(self, authorization: str) -> Caller | None:
        """Return the caller of this Authorization header; None for an unknown one."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token or len(token) > _MOST_CHARACTERS:
            return None
        self._look()
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).hexdigest()
        return self._read.get(digest) or self._fixed.get(digest)

    def _look(self) -> None:
        if self._path is None or self._clock() - self._looked < _LOOK_SECONDS:
            return
        self._looked = self._clock()
        stamp = _stamp(self._path)
        is_settled, self._seen = stamp == self._seen, stamp
        if stamp == self._judged or not is_settled:
            return
        self._judged = stamp
        try:
            if not (lines := self._path.read_text(encoding="utf-8")).strip():
                raise ApiKeysError(f"{self._path} is empty; a comment (#) alone would lock all callers out")
            self._read = parse_tokens(lines, str(self._path))
            logger.info("tokens read again", extra={"count": len(self._read)})
        except (OSError, ValueError) as error:
            reason = str(error) if isinstance(error, ApiKeysError) else type(error).__name__
            logger.error("tokens not read: the old ones stay", extra={"reason": reason})


def parse_tokens(lines: str, source: str) -> dict[str, Caller]:
    """Return callers by digest, skipping empty lines and comments (#). Raises ApiKeysError."""
    callers: dict[str, Caller] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        if not (words := line.strip()) or words.startswith("#"):
            continue
        match = _LINE.match(words)
        if match is None:
            raise ApiKeysError(
                f"{source}, line {number}: not a name, 64 hex digits and, if you like, a rate. "
                "python -m service.api.api_keys NAME makes such a line"
            )
        rate = None if match["rate"] is None else float(match["rate"])
        if rate == 0:
            raise ApiKeysError(
                f"{source}, line {number}: a rate of 0 admits nothing. Remove the line to lock the caller out, or the "
                "rate for the general one (PEAKPLAN_RATE)"
            )
        callers[match["digest"]] = Caller(match["name"], rate)
    return callers


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes when the file does, also when another file takes its name; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def main() -> int:
    """Print a new token and its line for the list."""
    if len(sys.argv) != 2 or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", sys.argv[1]):
        print("usage: python -m service.api.api_keys NAME   (letters, digits, . _ -)", file=sys.stderr)
        return 2
    token = secrets.token_urlsafe(32)
    print(f"token for the caller, shown once:  {token}")
    print(f"line for the service:              {sys.argv[1]} {hashlib.sha256(token.encode()).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
