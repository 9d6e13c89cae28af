"""A patch that makes NxDI keep the keys and values that it moved, applied only to a known NxDI source.

Stock NxDI moves the accepted nodes' keys and values in the view that a tree step reads (`get_kv_by_layer_id`), then
fetches the cache anew and writes its new rows into that (`update_kv_by_layer_id`): the move is lost, and every later
step attends to what rejected nodes left there. The patch passes the moved cache to the write instead. It changes the
graph, so it must be in place before `compile()`; afterwards it does nothing.

It is guarded by a fingerprint of every method it relies on: with another source nothing is patched, and the caller
refuses to compile, or compiles a chain tree where it was told to: a chain's accepted nodes never need to move.
"""

import hashlib
import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

_log = logging.getLogger(__name__)

# Fingerprints of the sources that the whole conformance suite has run (`make neuron-conformance`), by NxDI's version.
KNOWN_SOURCES = {"0.8.0": "650d611a5c16843d", "0.9.0": "d79540333686ee9b"}

_MANAGER_METHODS = (
    "_fetch_cache",
    "configure_medusa_gather_slice_idx",
    "get_cache",
    "get_kv_by_layer_id",
    "update_cache",
    "update_kv_by_layer_id",
)
_MODEL_METHODS = ("_medusa_forward", "get_model_output")
_MARK = "_peakplan_stock"

Method = Callable[..., Any]


def fingerprint(manager_class: type, model_class: type) -> str:
    """Return a digest of the parts of NxDI's unpatched classes that the patch relies on."""
    digest = hashlib.sha256()
    for owner, names in ((manager_class, _MANAGER_METHODS), (model_class, _MODEL_METHODS)):
        for name in names:
            method = getattr(owner, name, None)
            digest.update(f"\0{name}\0{_source(method) if method is not None else ''}".encode())
    return digest.hexdigest()[:16]


def _source(method: Method) -> str:
    lines = inspect.getsource(_stock(method)).splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())


def persist_relocation(manager_class: type, model_class: type) -> bool:
    """Patch `manager_class` if its source is known, else warn and return False. Repeating it is safe."""
    found = fingerprint(manager_class, model_class)
    if found not in KNOWN_SOURCES.values():
        _log.warning(
            "this NxDI's K/V cache (source %s) is none of those the patch was proven on (%s)",
            found,
            ", ".join(f"{version}: {digest}" for version, digest in KNOWN_SOURCES.items()),
        )
        return False
    for name, method in persisting(manager_class).items():
        setattr(manager_class, name, method)
    return True


def persisting(manager_class: Any) -> dict[str, Method]:
    """Return `get_cache` and `update_cache` changed so that a Medusa step writes into the very tensors it read.

    Nothing is computed twice: traced, they have the stock graph's gathers and scatters (docs/figures/neuron.json).
    """
    stock_get = _stock(manager_class.get_cache)
    stock_update = _stock(manager_class.update_cache)

    @wraps(stock_get)
    def get_cache(self: Any, *arguments: Any, **named: Any) -> Any:
        self._moved = stock_get(self, *arguments, **named)
        return self._moved

    @wraps(stock_update)
    def update_cache(self: Any, *, is_for_context_encoding: bool, **named: Any) -> Any:
        if self.is_medusa and not is_for_context_encoding:
            named["kvcache_buffer"], self._moved = self._moved, None
            read, whole = named["kvcache_buffer"][0][0].shape, self.past_key_values[0].shape
            if read != whole:
                raise ValueError(f"a step reads {list(read)} of the cache's {list(whole)}: moves in it would be lost")
        return stock_update(self, is_for_context_encoding=is_for_context_encoding, **named)

    for patched, stock in ((get_cache, stock_get), (update_cache, stock_update)):
        setattr(patched, _MARK, stock)
    return {"get_cache": get_cache, "update_cache": update_cache}


def _stock(method: Method) -> Method:
    found: Method = getattr(method, _MARK, method)
    return found
