"""The names of a cell that other stacks may know, as plain strings, so that no cell refers to another."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CellNames:
    """The names under which AWS publishes one cell's metrics.

    At synthesis they may be tokens of the cell's own stack.
    """

    cell: str  # cell-1 ...
    load_balancer: str  # its full name, app/NAME/ID
    target_groups: tuple[str, ...]  # their full names, targetgroup/NAME/ID
    auto_scaling_groups: tuple[str, ...]  # in the order of the settings' groups
    network_load_balancer: str = ""  # of PrivateLink: its full name, net/NAME/ID
    network_target_group: str = ""
    cache_nodes: tuple[str, ...] = ()  # of the shared cache
    log_group: str = ""  # of its hosts
