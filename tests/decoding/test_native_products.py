"""Products of int8 matrices: the same bits for a row whatever is multiplied with it, and weights that forks share."""

import ctypes
import os
import sys
from pathlib import Path

import pytest
import torch

from service.decoding.native_products import NativeLinear

MEGABYTE = 2**20


@pytest.mark.parametrize("inputs", [64, 576, 640, 1600], ids=["a group", "a chunk", "two chunks", "three chunks"])
def test_a_row_s_product_does_not_depend_on_the_rows_beside_it(library: ctypes.CDLL, inputs: int) -> None:
    """Rows of one tile, of several tiles, and of more than one panel (at most 48 rows)."""
    generator = torch.Generator().manual_seed(inputs)
    product = NativeLinear(torch.randn((96, inputs), generator=generator), library)
    rows = torch.randn((101, inputs), generator=generator)
    alone = torch.cat([product(row[None]) for row in rows])
    for count in (2, 5, 6, 7, 8, 13, 16, 48, 49, 101):
        assert torch.equal(product(rows[:count]), alone[:count])


@pytest.mark.skipif(sys.platform != "linux", reason="processes tell their shared memory on Linux")
def test_processes_that_are_forked_share_the_weights(library: ctypes.CDLL) -> None:
    """Replicas of one host are forked (fork_server.py): multiplying must not copy what all of them read."""
    product = NativeLinear(torch.ones((16_384, 4096)), library)
    rows = torch.ones((8, 4096))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        product(rows)
        os.write(writing, repr(_memory()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        shared, private = map(int, answer.read().decode().strip("()").split(","))
    assert os.waitpid(child, 0)[1] == 0
    assert shared >= 64 * MEGABYTE
    assert private < 16 * MEGABYTE


def _memory() -> tuple[int, int]:
    """Return the bytes that this process shares with others, and those that it has alone."""
    lines = (line.split() for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:])
    sizes = {name.rstrip(":"): 1024 * int(size) for name, size, *_ in lines}
    return sizes["Shared_Clean"] + sizes["Shared_Dirty"], sizes["Private_Clean"] + sizes["Private_Dirty"]
