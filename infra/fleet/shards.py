"""The assignment of named callers to cells by shuffle sharding, so that one caller's poison reaches few others' cells.

Source: AWS Builders' Library, Workload isolation using shuffle-sharding.
"""

import hashlib

from infra.fleet.settings import FleetSettings


def shard(settings: FleetSettings, caller: str) -> tuple[str, ...]:
    """Return the cells of `caller`, in cell order and the same at every synthesis.

    Rendezvous hashing: each caller ranks all cells by a hash and takes the first ones, so that a new cell moves few.
    """

    def rank(cell: str) -> bytes:
        return hashlib.sha256(f"{caller}/{cell}".encode()).digest()

    chosen = sorted(settings.cell_names, key=rank)[: settings.caller_shard_cells]
    return tuple(cell for cell in settings.cell_names if cell in chosen)
