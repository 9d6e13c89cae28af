"""One process for each core, each with one thread; they end with the process that started them."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.spawn import spawn

from service.engines.worker.process import die_with_parent

_spawn: Callable[..., object] = spawn


def run_processes(work: Callable[..., None], count: int, *arguments: Any) -> None:
    """Call `work(rank, count, *arguments)` in `count` processes and wait; the first exception is raised here."""
    _spawn(_run_one, (work, count, arguments), nprocs=count)


def _run_one(rank: int, work: Callable[..., None], count: int, arguments: tuple[Any, ...]) -> None:
    die_with_parent(os.getppid())
    torch.set_num_threads(1)
    work(rank, count, *arguments)
