"""Where a long command says how far it is: with `--json`, standard output is for its result alone."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def progress_on_stderr(wanted: bool) -> Iterator[None]:
    """Send what is printed meanwhile, by processes that begin here too, to standard error if `wanted`."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
