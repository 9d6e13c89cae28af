"""How far a long work is, for people: done, speed and time left."""

import sys
import time


class Progress:
    """Writes one line a second at most to stderr: over itself on a terminal, else a new one every ten seconds."""

    def __init__(self, what: str, total: int | None, *, quiet: bool = False) -> None:
        self._what, self._total, self._quiet = what, total, quiet
        self._start = time.monotonic()
        self._shown = 0.0
        self._begun_at: int | None = None

    def at(self, done: int) -> None:
        """Say that so many are done. What was done before the first call counts for no speed."""
        now = time.monotonic()
        if self._begun_at is None:
            self._begun_at, self._start = done, now
        pause = 1.0 if sys.stderr.isatty() else 10.0
        if self._quiet or now - self._shown < pause:
            return
        self._shown = now
        speed = (done - self._begun_at) / max(now - self._start, 1e-9)
        of, left = "", ""
        if self._total:
            of = f" of {self._total:,}"
            left = f", {max(0, self._total - done) / speed:.0f} s left" if speed else ""
        line = f"{self._what}: {done:,}{of} ({speed:,.0f} a second{left})"
        sys.stderr.write(f"\r{line:<78}" if sys.stderr.isatty() else f"{line}\n")
        sys.stderr.flush()

    def end(self, done: int) -> None:
        if not self._quiet:
            seconds = time.monotonic() - self._start
            start = "\r" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{start}{self._what + ':'} {done:,} in {seconds:.0f} s{'':<40}\n")
