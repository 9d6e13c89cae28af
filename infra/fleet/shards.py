"""The assignment of named callers to cells by shuffle sharding, so that one caller's poison reaches few others' cells.

Source: AWS Builders' Library, Workload isolation using shuffle-sharding.
"""

from __future__ import annotations

import hashlib

from infra.fleet.description import FleetDescription


def shards(settings: FleetDescription) -> dict[str, tuple[str, ...]]:
    """Return the cells of every caller, in cell order and the same at every synthesis.

    The largest caller chooses first. Each takes the cells that have the least load from those before it, so that no
    cell stands idle while another has two callers; among equals it ranks cells by a hash (rendezvous hashing).
    """
    wanted = settings.caller_shard_cells
    stated = sum(caller.share or 0 for caller in settings.callers)
    others = sum(caller.share is None for caller in settings.callers)
    # Callers without a share are taken to share what is left of the load; a little, where nothing is.
    shares = {
        caller.name: max(1e-6, (1 - stated) / others) if caller.share is None else caller.share
        for caller in settings.callers
    }
    load = dict.fromkeys(settings.serving_cells, 0.0)
    chosen: dict[str, tuple[str, ...]] = {}
    for name in sorted(shares, key=lambda name: (-shares[name], name)):
        cells = sorted(load, key=lambda cell: (round(load[cell], 9), _rank(name, cell)))[:wanted]
        for cell in cells:
            load[cell] += shares[name] / len(cells)
        chosen[name] = tuple(cell for cell in settings.serving_cells if cell in cells)
    return chosen


def _rank(caller: str, cell: str) -> bytes:
    return hashlib.sha256(f"{caller}/{cell}".encode()).digest()


def fullest_share(settings: FleetDescription, without: str = "") -> float:
    """Return the share of the fleet's load that the fullest cell gets, from 1 / cells with callers to 1.

    Callers with a share send it to their own cells alone, but for one `without` callers. Nobody knows where the rest
    goes: it is spread over all.
    """
    load = {cell: 0.0 for cell in settings.serving_cells if cell != without}
    cells_of = shards(settings)
    for caller in settings.callers:
        left = [cell for cell in cells_of[caller.name] if cell != without] if caller.share else []
        for cell in left:
            load[cell] += (caller.share or 0) / len(left)
    stated = sum(caller.share or 0 for caller in settings.callers)
    return max(load.values()) + max(0.0, 1 - stated) / len(load)


def fullest_share_without_one_cell(settings: FleetDescription) -> float:
    """Return the share that the fullest cell gets once the cell is moved out whose callers hurt the others most."""
    return max(fullest_share(settings, cell) for cell in settings.serving_cells)
