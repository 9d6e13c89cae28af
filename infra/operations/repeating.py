"""A call that is repeated in the background while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(act: Callable[[], bool], seconds: float) -> Iterator[None]:
    """Call `act` every `seconds` until the block ends, however it ends, or `act` returns False.

    `act` runs in a thread of its own, so it must not raise.
    """
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(seconds) and act():
            pass

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
