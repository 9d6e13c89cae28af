"""`python -m service.container`: the container's first process starts the gateway and its helpers, and stops them.

Own code, where tini, s6 or supervisord would be the usual answer: tini knows one child; supervisord copies every line
of output through itself, answers 0 whatever became of the gateway and takes SIGHUP for itself, which here means "load
the model anew"; s6-overlay wants a root file system that it may write. What is left is one loop over signals.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from service.settings import Settings
from service.telemetry.logs import configure_logging

_FORWARDED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_HANDLED = {*_FORWARDED, signal.SIGCHLD}
# A helper that ends is restarted after this delay, which doubles each time it ends soon after its start.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
_YOUNG_SECONDS = 60.0
# How long helpers may take to end once the gateway is gone, when they have nothing left to do.
HELPER_STOP_SECONDS = 15.0

logger = logging.getLogger("service.container")

_MISSING_PROGRAM = 127  # as shells report it


@dataclass
class Process:
    """A program to keep running; `pid` is 0 while it does not run."""

    name: str
    command: Sequence[str]
    pid: int = 0
    started: float = 0.0  # monotonic seconds
    due: float | None = None  # when to start it again
    pause: float = _FIRST_PAUSE_SECONDS
    status: int = field(default=0)  # of its last run: an exit code, 128 + n after signal n

    def start(self) -> None:
        """Start the program. Raises OSError when it does not exist."""
        # The child must receive signals; ours are blocked, and the mask is inherited.
        self.pid = os.posix_spawnp(self.command[0], list(self.command), os.environ, setsigmask=())
        self.started, self.due = time.monotonic(), None

    def ended(self, wait_status: int) -> None:
        """Record its end; `wait_status` comes from waitpid."""
        code = os.waitstatus_to_exitcode(wait_status)
        self.pid, self.status = 0, code if code >= 0 else 128 - code

    def start_later(self) -> None:
        lived = time.monotonic() - self.started
        self.pause = _FIRST_PAUSE_SECONDS if lived > _YOUNG_SECONDS else min(self.pause * 2, _LONGEST_PAUSE_SECONDS)
        self.due = time.monotonic() + self.pause


class Supervisor:
    """Runs until the gateway ends. Helpers start before it, are restarted when they end, and stop after it."""

    def __init__(
        self, gateway: Process, helpers: Sequence[Process] = (), helper_stop_seconds: float = HELPER_STOP_SECONDS
    ) -> None:
        self._gateway = gateway
        self._helpers = list(helpers)
        self._helper_stop_seconds = helper_stop_seconds

    def run(self) -> int:
        """Return the gateway's exit code, or 128 + n after signal n. Raises OSError when a program cannot start."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            for process in [*self._helpers, self._gateway]:
                process.start()
            while self._gateway.pid:
                self._next_signal()
        finally:
            self._stop_helpers()
        return self._gateway.status

    def _next_signal(self) -> None:
        due = [helper.due for helper in self._helpers if helper.due is not None]
        received = signal.sigtimedwait(_HANDLED, max(0.0, min(due, default=time.monotonic() + 60) - time.monotonic()))
        if received is not None and received.si_signo in _FORWARDED:
            # To the gateway only: it finishes the requests in flight, for which it needs the helpers.
            os.kill(self._gateway.pid, received.si_signo)
        self._reap()
        for helper in self._helpers:
            if self._gateway.pid and helper.due is not None and helper.due <= time.monotonic():
                helper.start()

    def _reap(self) -> None:
        """Reap every ended process, the container's orphans included, which become children of the first process."""
        by_pid = {process.pid: process for process in [*self._helpers, self._gateway] if process.pid}
        while (ended := _any_ended()) is not None:
            pid, wait_status = ended
            process = by_pid.get(pid)
            if process is None:
                continue
            process.ended(wait_status)
            if process is not self._gateway:
                process.start_later()
                logger.error(
                    "helper died", extra={"helper": process.name, "status": process.status, "pause": process.pause}
                )

    def _stop_helpers(self) -> None:
        """Stop helpers in reverse order of their start; kill one that takes too long."""
        for helper in reversed(self._helpers):
            if helper.pid:
                os.kill(helper.pid, signal.SIGTERM)
            until = time.monotonic() + self._helper_stop_seconds
            while helper.pid:
                signal.sigtimedwait({signal.SIGCHLD}, max(0.0, until - time.monotonic()))
                self._reap()
                if helper.pid and time.monotonic() >= until:
                    os.kill(helper.pid, signal.SIGKILL)
                    until = time.monotonic() + self._helper_stop_seconds


def _any_ended() -> tuple[int, int] | None:
    """Return an ended child's pid and wait status; None when all run, or none is left."""
    try:
        pid, wait_status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, wait_status) if pid else None


def helpers() -> list[Process]:
    """Return the processes that the settings require beside the gateway, which itself reports invalid settings."""
    try:
        hosted_by_triton = Settings().engine == "triton"
    except ValidationError:
        return []
    return [Process("triton", [sys.executable, "-m", "service.engines.triton"])] if hosted_by_triton else []


def main() -> int:
    """Run until the gateway ends; return its exit code, or 127 when a program is missing."""
    configure_logging("info")
    try:
        return Supervisor(Process("gateway", [sys.executable, "-m", "service"]), helpers()).run()
    except OSError as error:
        logger.error("cannot start", extra={"reason": str(error)})
        return _MISSING_PROGRAM


if __name__ == "__main__":
    sys.exit(main())
