"""The stub process of a replica that Triton hosts, watched from the gateway where both see the same processes.

Triton does not notice a stub's end before the next request, and answers that one after a second; the kernel tells us at
once. Where the gateway cannot see the process (another host, another PID namespace), this module has no effect.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from service.engines.triton.wire import ProcessName


class StubWatch:
    """Calls `on_end` when the process ends; can kill it."""

    def __init__(self, process: ProcessName | None, on_end: Callable[[], None]) -> None:
        self._descriptor: int | None = None
        self._ended = asyncio.Event()
        self._on_end = on_end
        if process is None or ProcessName.of(process.pid) != process:
            return
        with contextlib.suppress(OSError):  # it has just ended, or this kernel has no process descriptors
            self._descriptor = os.pidfd_open(process.pid)
            asyncio.get_running_loop().add_reader(self._descriptor, self._end)
        if ProcessName.of(process.pid) != process:  # the process id was reused in between
            self.close()

    @property
    def sees(self) -> bool:
        """Whether the process is visible from here and has not been ended."""
        return self._descriptor is not None

    async def wait(self, seconds: float) -> bool:
        """Tell whether it ends within that time."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
        return self._ended.is_set()

    def kill(self) -> None:
        """Kill the process now; for one that hangs."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # it has ended, or is not ours to kill
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _end(self) -> None:
        self.close()
        self._ended.set()
        self._on_end()
