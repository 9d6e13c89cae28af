"""A peer's process as the benchmark uses it: one request, one answer, and a reason where there is none."""

import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

SECONDS = 300.0  # for the longest answer: a model's first conversion


class PeerError(RuntimeError):
    """Raised when a peer gave no answer; the message is the reason that its figures are missing."""


class PeerProcess:
    """Asks a worker (worker.py) over its pipes, one request at a time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the worker. Raises PeerError where the command cannot be started."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **(environment or {})},
                cwd=Path(__file__).parents[3],
            )
        except OSError as error:
            self._stderr.close()
            raise PeerError(f"cannot be started: {error}") from error
        self._buffer = b""

    def ask(self, request: Mapping[str, Any], seconds: float = SECONDS) -> dict[str, Any]:
        """Return the answer. Raises PeerError for an error, a dead process, or no answer in time."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerError(self._death()) from None
        answer: dict[str, Any] = json.loads(self._read_line(seconds))
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _read_line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(seconds):
                    self.close()
                    raise PeerError(f"no answer within {seconds:g} s")
                piece = os.read(self._process.stdout.fileno(), 1 << 20)
                if not piece:
                    raise PeerError(self._death())
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self) -> str:
        """Return the last output of an ended process."""
        code = self._process.wait(timeout=10)
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with {code}: {lines[-1][:300] if lines else 'it said nothing'}"

    def close(self) -> None:
        """End the process, which waits for its next request or hangs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._stderr.close()

    def __enter__(self) -> "PeerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
