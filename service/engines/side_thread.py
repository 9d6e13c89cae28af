"""A second thread in a process that may be forked: it compiles grammars while the model's own thread reads."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


class SideThread:
    """One thread beside the caller's, started with the first work. A forked process starts its own."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._process = 0

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Run work on the thread; the future holds its result or exception."""
        if self._executor is None or self._process != os.getpid():  # threads do not survive a fork
            self._executor, self._process = ThreadPoolExecutor(1, "side"), os.getpid()
        return self._executor.submit(work)

    def rest(self) -> None:
        """End the thread until there is work again: a process should have no others when it is forked."""
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
