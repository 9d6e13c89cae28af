"""What the tests of the stack need of this machine, and a stack's folder that is only looked at."""

from pathlib import Path

import pytest

from rehearsal.stack.folder import Folder, Shape, missing, write

needs_parts = pytest.mark.skipif(bool(missing()), reason="a stack needs " + "; ".join(missing()))
NETWORK = "127.19."  # free_network begins after it


def a_folder(path: Path, **shape: int) -> Folder:
    """Write a stack's folder that is not run."""
    path.mkdir()
    return write(path, Shape(**shape), NETWORK)
