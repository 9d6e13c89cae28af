"""Tests of the patch on a fake cache that loses moves as NxDI's does; tests/conformance/neuron has the real one."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from service.engines.neuron import relocation
from service.engines.neuron.relocation import fingerprint, persist_relocation


def manager_class() -> type:
    """Return a new class each time, so that patching does not outlive a test."""

    class Manager:
        is_medusa = True

        def __init__(self) -> None:
            self.moves = 0
            self.past_key_values = [torch.arange(8.0), torch.arange(8.0)]  # keys and values of one layer

        def _fetch_cache(self, idx: int, kvcache_buffer: Any = None) -> tuple[Tensor, Tensor]:
            if kvcache_buffer is not None:
                return tuple(kvcache_buffer[idx])
            return self.past_key_values[2 * idx], self.past_key_values[2 * idx + 1]

        def configure_medusa_gather_slice_idx(self, metadata: Any) -> Any:
            return metadata

        def get_kv_by_layer_id(
            self, idx: int, seq_len: int, skip_slice: bool = False, medusa_metadata: Any = None, **_rest: Any
        ) -> tuple[Tensor, Tensor]:
            self.moves += 1
            source, target = self.configure_medusa_gather_slice_idx(medusa_metadata)
            keys, values = (each.index_copy(0, target, each[source]) for each in self._fetch_cache(idx))
            return (keys, values) if skip_slice else (keys[:seq_len], values[:seq_len])

        def get_cache(self, **rest: Any) -> list[tuple[Tensor, Tensor]]:
            return [self.get_kv_by_layer_id(idx=0, **rest)]

        def update_cache(self, *, is_for_context_encoding: bool, **rest: Any) -> list[Tensor]:
            return list(self.update_kv_by_layer_id(0, is_for_context_encoding, **rest))

        def update_kv_by_layer_id(
            self,
            idx: int,
            is_for_context_encoding: bool,
            scatter_index: Tensor,
            kvcache_buffer: Any = None,
            **_rest: Any,
        ) -> tuple[Tensor, Tensor]:
            del is_for_context_encoding
            keys, values = self._fetch_cache(idx, kvcache_buffer)
            return keys.index_fill(0, scatter_index, -1.0), values.index_fill(0, scatter_index, -1.0)

    return Manager


class Model:
    def _medusa_forward(self) -> None: ...

    def get_model_output(self) -> None: ...


def updated(manager_class: type, *, is_prompt: bool, read: int = 8) -> list[float]:
    """Return the keys after one forward, as NxDI does it: a step reads the cache, and whatever it was is updated."""
    manager: Any = manager_class()
    moved = (torch.tensor([5]), torch.tensor([3]))
    if not is_prompt:
        manager.get_cache(seq_len=read, medusa_metadata=moved)
    keys, values = manager.update_cache(is_for_context_encoding=is_prompt, scatter_index=torch.tensor([6]))
    assert torch.equal(keys, values)
    assert manager.moves == (not is_prompt), "what was moved once is not moved again"
    return [float(key) for key in keys]


def test_what_a_step_moved_is_written_back_with_what_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_class()
    monkeypatch.setattr(relocation, "KNOWN_SOURCES", {"test": fingerprint(manager, Model)})
    assert updated(manager, is_prompt=False) == [0, 1, 2, 3, 4, 5, -1, 7]

    assert persist_relocation(manager, Model)
    assert persist_relocation(manager, Model)  # a second time changes nothing

    assert updated(manager, is_prompt=False) == [0, 1, 2, 5, 4, 5, -1, 7]
    assert updated(manager, is_prompt=True) == [0, 1, 2, 3, 4, 5, -1, 7]
    with pytest.raises(ValueError, match=r"reads \[4\] of the cache's \[8\]"):
        updated(manager, is_prompt=False, read=4)


def test_an_unknown_source_is_left_alone_and_the_log_names_the_fallback(caplog: pytest.LogCaptureFixture) -> None:
    manager = manager_class()
    stock = manager.update_cache  # type: ignore[attr-defined]

    with caplog.at_level(logging.WARNING):
        assert not persist_relocation(manager, Model)

    assert manager.update_cache is stock  # type: ignore[attr-defined]
    assert fingerprint(manager, Model) in caplog.text


def test_a_fingerprint_sees_code_and_no_layout() -> None:
    one, other = manager_class(), manager_class()
    assert fingerprint(one, Model) == fingerprint(other, Model)

    class Changed(Model):
        def _medusa_forward(self) -> None:
            raise NotImplementedError

    assert fingerprint(one, Changed) != fingerprint(one, Model)
