"""A catalogue in pieces on disk, each written whole, so that an ended run goes on; and how far a long work is."""

import json
import marshal
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import click

from peakplan.shop.merging import BadRow
from peakplan.shop.products import Product, product
from peakplan.shop.roles import Roles
from peakplan.shop.sources import rows

CHUNK = 5000  # products
_FORMAT = 2
T = TypeVar("T")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_bytes(data)
    os.replace(draft, path)


def save(path: Path, value: Any) -> None:
    """Write plain values (what `marshal` takes) whole or not at all."""
    write_whole(path, marshal.dumps((_FORMAT, value)))


def load(path: Path) -> Any:
    """Return what `save` wrote; None where there is nothing, or nothing that this version wrote."""
    try:
        version, value = marshal.loads(path.read_bytes())
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return value if version == _FORMAT else None


def shown(
    found: Iterable[T], what: str, total: int | None = None, *, quiet: bool, every: int = 1
) -> AbstractContextManager[Iterable[T]]:
    """Return the results; a terminal shows a progress bar on stderr meanwhile."""
    return click.progressbar(found, total, what, show_pos=True, file=sys.stderr, hidden=quiet, update_min_steps=every)


class Chunks:
    """The products of one catalogue under `folder`, and the rows that are none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = folder / "read.state"

    def read(self, source: Path, roles: Roles, table: str | None, total: int | None, *, quiet: bool) -> None:
        """Fill the missing chunks. Raises SourceError."""
        state = load(self._state) or {"chunks": 0, "line": 0, "products": 0, "bad": [], "bad_count": 0, "done": False}
        if state["done"]:
            return
        after, kept = state["line"], list[tuple[Any, ...]]()
        with shown(rows(source, table=table), "reading", total, quiet=quiet, every=1000) as bar:
            for found in bar:
                line = found.line if isinstance(found, BadRow) else found[0]
                if line <= after:
                    continue
                one = None if isinstance(found, BadRow) else product(line, found[1], roles)
                if one is not None:
                    kept.append(tuple(one))
                    state["line"] = max(state["line"], line)
                else:
                    state["bad_count"] += 1
                    reason = found.reason if isinstance(found, BadRow) else f"has no {roles.title}"
                    state["bad"] += [[line, reason]] if len(state["bad"]) < _MOST_BAD else []
                if len(kept) == CHUNK:
                    self._flush(kept, state)
                    kept = []
            self._flush(kept, state)
        save(self._state, state | {"done": True})

    def _flush(self, kept: list[tuple[Any, ...]], state: dict[str, Any]) -> None:
        if kept:
            save(self._folder / f"products-{state['chunks']:05}.bin", kept)
            state["chunks"] += 1
            state["products"] += len(kept)
            save(self._state, state)

    @property
    def state(self) -> dict[str, Any]:
        """How many `chunks` and `products` there are, and the rows that are `bad`."""
        return load(self._state) or {}

    def each(self) -> Iterator[list[Product]]:
        """Yield the products of every chunk."""
        for number in range(self.state["chunks"]):
            yield [Product(*values) for values in load(self._folder / f"products-{number:05}.bin")]


_MOST_BAD = 1000  # bad rows that are named; all are counted


def fingerprint(source: Path, roles: Roles, table: str | None) -> str:
    """Return the file's state and its fields' roles as text: a run goes on only from one with the same text."""
    status = source.stat()
    about = [
        str(source.absolute()),
        status.st_size,
        status.st_mtime_ns,
        table,
        roles.told(),
        roles.notation,
        roles.kind_counts,
        _FORMAT,
        CHUNK,
    ]
    return json.dumps(about, sort_keys=True)
