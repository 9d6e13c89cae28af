"""A patch that makes NxDI keep the keys and values that it moved, applied only to a known NxDI source.

Stock NxDI moves the accepted nodes' keys and values in the view that a tree step reads (`get_kv_by_layer_id`), then
fetches the cache anew and writes its new rows into that (`update_kv_by_layer_id`): the move is lost, and every later
step attends to what rejected nodes left there. The patch passes the moved cache to the write instead. It changes the
graph, so it must be in place before `compile()`; afterwards it does nothing.

It is guarded by a fingerprint of every method it relies on: with another source nothing is patched, and the caller
compiles a chain tree, whose accepted nodes never need to move.
"""

import hashlib
import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import Tensor

_log = logging.getLogger(__name__)

# Fingerprints of the sources that the conformance suite has run (docs/figures/neuron.json), by NxDI's version.
KNOWN_SOURCES = {"0.8.0": "0e177dcbf49b8ab8"}

_MANAGER_METHODS = (
    "_fetch_cache",
    "configure_medusa_gather_slice_idx",
    "get_kv_by_layer_id",
    "update_cache",
    "update_kv_by_layer_id",
)
_MODEL_METHODS = ("_medusa_forward", "get_model_output")
_MARK = "_peakplan_stock"

Update = Callable[..., tuple[Tensor, Tensor]]


def fingerprint(manager_class: type, model_class: type) -> str:
    """Return a digest of the parts of NxDI's unpatched classes that the patch relies on."""
    digest = hashlib.sha256()
    for owner, names in ((manager_class, _MANAGER_METHODS), (model_class, _MODEL_METHODS)):
        for name in names:
            method = getattr(owner, name, None)
            digest.update(f"\0{name}\0{_source(method) if method is not None else ''}".encode())
    return digest.hexdigest()[:16]


def _source(method: Callable[..., Any]) -> str:
    lines = inspect.getsource(getattr(method, _MARK, method)).splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())


def persist_relocation(manager_class: type, model_class: type) -> bool:
    """Patch `manager_class` if its source is known, else warn and return False. Repeating it is safe."""
    found = fingerprint(manager_class, model_class)
    if found not in KNOWN_SOURCES.values():
        _log.warning(
            "this NxDI's K/V cache (source %s) is none of those the patch was proven on (%s): a chain tree is compiled",
            found,
            ", ".join(f"{version}: {digest}" for version, digest in KNOWN_SOURCES.items()),
        )
        return False
    stock: Any = manager_class.update_kv_by_layer_id  # type: ignore[attr-defined]
    if not hasattr(stock, _MARK):
        manager_class.update_kv_by_layer_id = persisting(stock)  # type: ignore[attr-defined]
    return True


def persisting(stock: Update) -> Update:
    """Return NxDI's `update_kv_by_layer_id` changed to write, in a Medusa step, into the cache that the step read."""

    @wraps(stock)
    def update(self: Any, idx: int, *, is_for_context_encoding: bool, **rest: Any) -> tuple[Tensor, Tensor]:
        if self.is_medusa and not is_for_context_encoding:
            moved = self.get_kv_by_layer_id(
                idx=idx,
                seq_len=rest["seq_len"],
                skip_slice=True,
                medusa_metadata=rest["medusa_metadata"],
                kvcache_buffer=rest.get("kvcache_buffer"),
                seq_ids=rest.get("seq_ids"),
            )
            rest["kvcache_buffer"] = [moved] * (len(self.past_key_values) // 2)
        return stock(self, idx=idx, is_for_context_encoding=is_for_context_encoding, **rest)

    setattr(update, _MARK, stock)
    return update
